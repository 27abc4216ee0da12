"""Options as they were given: in files, on the command line, as keywords of a function."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

from fedcal.core.checks import one_of
from fedcal.core.options import Option

Call = TypeVar("Call", bound=Callable[..., Any])


def layered(
    known: Mapping[str, Option],
    *layers: Mapping[str, Any],
    read: Callable[[Option, Any], Any] = Option.checked,
) -> dict[str, Any]:
    """Return values by option from several layers, later ones winning; tables are joined.

    Raises InputError if an option is unknown, or `read` refuses its value.

    Parameters
    ----------
    known : mapping of str to Option
        By name; a layer may write names with dashes.
    *layers : mapping
        Of what was given; None is nothing.
    read : callable
        The value of an option from what was given.
    """
    values: dict[str, Any] = {}
    for raw, given in (item for layer in layers for item in layer.items()):
        key = raw.replace("-", "_")
        if key not in known:
            one_of("option", raw, known, "--help")
        if given is not None:
            value = read(known[key], given)
            joined = isinstance(value, Mapping) and key in values
            values[key] = {**values[key], **value} if joined else value
    return values


def takes_options(of: Callable[..., Any], *without: str) -> Callable[[Call], Call]:
    """Let `inspect`, and so editors and notebooks, see a function's `**options` as keywords.

    Parameters
    ----------
    of : callable
        What takes them: a dataclass of options, or a function to which they are passed on.
    *without : str
        Those that the function does not take.
    """

    def spelt(call: Call) -> Call:
        signature, hints = inspect.signature(call), get_type_hints(of)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        passed = [
            p.replace(annotation=hints.get(p.name, p.annotation))
            for p in inspect.signature(of).parameters.values()
            if p.kind is p.KEYWORD_ONLY and p.name not in {*without, *signature.parameters}
        ]
        call.__signature__ = signature.replace(  # type: ignore[attr-defined]  # a function has it
            parameters=[*own, *passed]
        )
        return call

    return spelt
