"""`fedcal site --dry-run`: what a site would send for the first question of each method."""

from __future__ import annotations

import math
import warnings
from typing import Any

from fedcal.core.errors import InputError, TooLittle
from fedcal.core.shards import Shards
from fedcal.experiments.report.tables import TextTable
from fedcal.privacy.federation import Federation
from fedcal.queries.request import Request
from fedcal.strategies import STRATEGIES
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.settings import settings_of
from fedcal.training.network import text_of
from fedcal.units import Example, User

SITES, ROWS = 10, 100
"""Public facts of the run that is imagined: clips and noise follow from them."""

_COLUMNS = ("method", "statistic", "numbers", "bytes", "clipped to", "noise by")
_WORDS = (0, 1, 4, 5)


def dry_run(shards: Shards) -> list[TextTable]:
    """Return a table for each budget with a row for each method, and one of the statistics."""
    shown = [_table(shards, epsilon) for epsilon in (1.0, math.inf)]
    return [*(table for table, _ in shown), _explained([r for _, made in shown for r in made])]


def _table(shards: Shards, epsilon: float) -> tuple[TextTable, list[Request]]:
    rows: list[tuple[str, ...]] = []
    asked: list[Request] = []
    for name, method in STRATEGIES.items():
        if shards.inputs is not None and method.family != "train":
            continue  # it is about scores, and there are none
        if method.exact_only and math.isfinite(epsilon):
            continue
        try:
            strategy, request = _first(method, shards, epsilon)
        except InputError as e:
            rows.append((name, f"cannot be run: {e}", "", "", "", ""))
            continue
        length = request.bound.length
        rows.append(
            (
                *(name, request.query.kind, str(length), str(8 * length)),
                *(_clip(strategy, request), strategy.plan.model.noise_by),
            )
        )
        asked.append(request)
    budget = (
        f"epsilon {epsilon:g}, unit {_unit(shards)}"
        if math.isfinite(epsilon)
        else "epsilon inf: no privacy; exact sums over this site's rows would be sent"
    )
    return TextTable(_COLUMNS, rows, budget, _WORDS), asked


def _unit(shards: Shards) -> str:
    """Return the default unit of a budget; `simulate` and `train` differ."""
    return User.name if shards.inputs is None else Example.name


def _first(
    method: type[FederatedStrategy], shards: Shards, epsilon: float
) -> tuple[FederatedStrategy, Request]:
    federation = Federation(
        SITES, shards.classes, epsilon=epsilon, unit=_unit(shards), noise_source="system"
    )
    settings: dict[str, Any] = {}
    if "rows_per_client" in settings_of(method.name) and method.needs_rows(federation, {}):
        settings["rows_per_client"] = ROWS
    if shards.inputs is not None:
        settings["shape"] = text_of(shards.input_shape)
    make: Any = method
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooLittle)
        strategy: FederatedStrategy = make(federation, secure_aggregation="none", **settings)
        asked = strategy.open_round(1)
    if asked is None:
        raise InputError("it asks nothing")
    return strategy, asked.request


def _clip(strategy: FederatedStrategy, request: Request) -> str:
    """Return the bound of the answer; without privacy there may be none."""
    bound = request.bound
    if not bound.norms:
        return "nothing"
    norms = sorted(set(bound.norms))
    part = User.name if bound.per == "client" else bound.per
    values = f"{norms[0]:g}" if len(norms) == 1 else f"{norms[0]:g} to {norms[-1]:g}"
    return f"{values} (L{bound.order} norm of a {part})"


def _explained(requests: list[Request]) -> TextTable:
    kinds = {request.query.kind: type(request.query) for request in requests}
    rows = [(kind, (query.__doc__ or "").partition("\n")[0]) for kind, query in kinds.items()]
    return TextTable(("statistic", "what it is"), rows, "", (0, 1))
