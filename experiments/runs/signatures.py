"""The options of the Python functions as types, for editors and type checkers.

The fields of `Config` and `Grid` written once more, which a test holds to be the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, TypedDict, TypeVar, get_type_hints

from fedcal.strategies import FederatedStrategy
from fedcal.strategies.settings import Setting

Call = TypeVar("Call", bound=Callable[..., Any])


class Shared(TypedDict, total=False):
    """Options of which a comparison has one value, too."""

    class_names: str | None
    positive: str | None
    csv: str | None
    secure_aggregation: str | None
    committee: str | None
    colluding: int | None
    quorum: float
    noise_source: str
    dropout: float
    seed: int
    set: Mapping[str, Setting]


class EvaluateOptions(Shared, total=False):
    """Options of `evaluate`: those of `simulate` but the method."""

    clients: int | None
    partition: Any  # a text, or a partitioner object of flwr-datasets
    rounds: int | None
    sampling_rate: float
    epsilon: float
    delta: float
    unit: str
    trust: str | None
    mechanism: str
    engine: str
    ray_address: str | None
    control: str | None
    root_certificates: str | None
    federation: str | None
    timeout: float | None
    grace: float | None
    ledger: str | None
    cap: float | None
    cap_delta: float | None


class SimulateOptions(EvaluateOptions, total=False):
    """Options of `simulate`, the fields of `Config` but the data."""

    method: str | type[FederatedStrategy]


class CompareOptions(Shared, total=False):
    """Options of `compare`, the fields of `Grid` but the data: a value, or several."""

    method: str | Sequence[str]
    clients: int | str | Sequence[int]
    partition: str | Sequence[str]
    rounds: int | str | Sequence[int]
    sampling_rate: float | str | Sequence[float]
    epsilon: float | str | Sequence[float]
    delta: float | str | Sequence[float]
    unit: str | Sequence[str]
    trust: str | Sequence[str]
    mechanism: str | Sequence[str]
    seeds: int


def spelt_out(options: type, defaults: type) -> Callable[[Call], Call]:
    """Let `inspect`, and so notebooks, see a function's `**options` as keywords.

    Parameters
    ----------
    options : type
        The TypedDict that the function unpacks.
    defaults : type
        The dataclass with a field for each of them.
    """
    hints = get_type_hints(options)
    known = {
        f.name: f.default if f.default_factory is MISSING else f.default_factory()
        for f in fields(defaults)
    }

    def spelt(call: Call) -> Call:
        signature = inspect.signature(call)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        made = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=... if isinstance(known[name], tuple) else known[name],  # an axis
                annotation=hint,
            )
            for name, hint in hints.items()
        ]
        call.__signature__ = signature.replace(  # type: ignore[attr-defined]  # a function has it
            parameters=[*own, *made]
        )
        return call

    return spelt
