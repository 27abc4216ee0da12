"""A plan of prediction sets from plain options: what `fedcal plan` and Python callers ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcal.core.streams import check_seed
from fedcal.experiments.planner.plan import facts_of
from fedcal.experiments.planner.sets.advice import SetAdvice, advise_sets
from fedcal.experiments.runs.load import load_any
from fedcal.strategies.server.outcome import Progress
from fedcal.strategies.settings import Setting


def plan_sets(
    *,
    clients: int | None = None,
    rows_per_client: float | None = None,
    classes: int | None = None,
    data: Any = None,
    settings: Mapping[str, Setting] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **facts: Any,
) -> SetAdvice:
    """Say what coverage, set sizes and slack to expect of prediction sets, before anything runs.

    Parameters
    ----------
    clients, rows_per_client
        needed; the latter a public nominal number, not a count
    classes
        of the model; None = the classes of `data`
    data
        rows that stand in for the clients', as `simulate` takes them: they must be public, made up,
        or one's own. Without any, scores are taken to be evenly spread, and set sizes are not told
    settings
        of the method `conformal`: alpha, score, quantile, by, guarantee, ...
    seed
        of everything that is drawn
    **facts
        epsilon, delta, unit, trust, sampling_rate, quorum, mechanism, as of `simulate`

    Raises
    ------
    InputError
        A fact that is missing or not allowed, or no rule that goes with the facts.
    """
    check_seed(seed)
    rows = None if data is None else load_any(data)
    known = facts_of(clients, rows_per_client, classes, [rows.classes] if rows else None, **facts)
    return advise_sets(known, settings or {}, data=rows, seed=seed, progress=progress)
