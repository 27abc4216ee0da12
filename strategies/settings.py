"""A method's own parameters (`--set`), and what a run must say before it can start."""

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from fedcal.core import checks
from fedcal.core.checks import InputError
from fedcal.core.shards import NO_SUBJECTS
from fedcal.datasets import Population
from fedcal.privacy import Federation
from fedcal.strategies import STRATEGIES
from fedcal.units import UNITS

Plain: TypeAlias = bool | int | float | str
Setting: TypeAlias = Plain | Sequence[str] | Sequence[float]
"""A method's own parameter: a truth value, a number, a name, or a list of numbers or names."""


def calibrating() -> list[str]:
    """Names of the methods that calibrate: what comparison and plan rank."""
    return [name for name, strategy in STRATEGIES.items() if strategy.family == "calibrate"]


def exact_only() -> list[str]:
    """Names of the methods that refuse a budget."""
    return [name for name, strategy in STRATEGIES.items() if strategy.exact_only]


def settings_of(method: str) -> Mapping[str, inspect.Parameter]:
    """Return the method's own parameters (`--set`) by name; none of a baseline."""
    return STRATEGIES[method].declared if method in STRATEGIES else {}


def fold_preset(made: Any) -> None:
    """Move the option `preset` into `set`: the method knows what it stands for."""
    if made.preset is not None:
        object.__setattr__(made, "set", {"preset": made.preset, **made.set})
        object.__setattr__(made, "preset", None)


def check_settings(method: str, settings: Mapping[str, Any]) -> None:
    """Refuse keys that the method does not have, and values that are none of its settings'.

    What they may be together, and in a federation, is checked by the method.
    """
    known = settings_of(method)
    for key, value in settings.items():
        checks.check_kept(f"{key}={value}")
        if key not in known:
            checks.check_kept(f"--set {key}")
            checks.check_kept(key)
            if key == "preset":
                why = "it is of no paper, or its defaults are the paper's"
                raise InputError(f"{method} has no preset: {why}")
            allowed = checks.near(key, [*known] or ["none"], "docs/guide/methods.md")
            raise InputError(f"unknown --set key {key!r} for {method}; {allowed}")
        if check := STRATEGIES[method].checks[key]:
            check(value)


def as_text(settings: Mapping[str, Setting]) -> str:
    """Return settings as one JSON object; lists are JSON texts in it, as for `--set`."""
    lists = {k: json.dumps(v) for k, v in settings.items() if isinstance(v, (list, tuple))}
    return json.dumps({**settings, **lists})


def lacks_rows(method: str, federation: Federation, settings: Mapping[str, Setting]) -> bool:
    """Return whether a run needs a nominal `rows_per_client` that is not given.

    A deployment must choose this public number without looking. A simulation may take rows /
    clients of its data, and has to say so: it tells how many rows there are.
    """
    undecided = "rows_per_client" in settings_of(method) and "rows_per_client" not in settings
    return undecided and STRATEGIES[method].needs_rows(federation, settings)


def nominal_rows(method: str, federation: Federation, shards: Population) -> float:
    """Mean number of a client's rows; of its subjects where the method counts each of them once."""
    once = needs_subjects(federation) and STRATEGIES[method].family in ("evaluate", "conformal")
    each = shards.count_subjects() if once else shards.size
    return each / shards.clients


def needs_subjects(federation: Federation) -> bool:
    """Return whether the guarantee is for subjects, so that rows must name theirs."""
    return federation.private and UNITS[federation.unit].column is not None


def check_subjects(federation: Federation, shards: Population) -> None:
    """Refuse a promise to subjects that the rows do not name, before anything is asked."""
    if needs_subjects(federation) and not shards.has_subjects:
        raise InputError(NO_SUBJECTS)
