"""Is a claimed epsilon refuted? Attacks on every mechanism, trust model and unit."""

from __future__ import annotations

from collections.abc import Iterator

from fedcal.experiments.research.benchmarks.audit import (
    ERROR,
    TRIALS,
    attacks,
    name_of,
    row_of,
)
from fedcal.experiments.research.studies.rows import counted, span
from fedcal.experiments.research.studies.spec import Rows, RowsClaim, Study
from fedcal.mechanisms import Laplace
from fedcal.strategies.server.outcome import Progress


def _attacked(progress: Progress | None = None, *, trials: int = TRIALS) -> Rows:
    """One row for each attack of `fedcal.experiments.research.benchmarks.audit`.

    Parameters
    ----------
    progress
        called after each attack
    trials
        runs in each of two worlds

    Returns
    -------
    list of dict
        As `row_of`; all bounds hold together but for a probability of `ERROR`
    """
    return [row_of(attack, trials, ERROR) for attack in counted(attacks(), progress)]


def _attacked_claims(found: Rows) -> Iterator[RowsClaim]:
    """No attack succeeds, and those on pure mechanisms are strong enough to say something."""
    bad = [name_of(r) for r in found if r["refuted"]]
    laplace = [r["of_it"] for r in found if r["mechanism"] == Laplace.name]
    shown = f"refuted: {'; '.join(bad)}" if bad else f"{len(found)} attacks"
    yield "No claimed epsilon is refuted", not bad, shown
    yield (
        "Attacks on Laplace noise prove at least three quarters of the claim",
        min(laplace) >= 0.75,
        span(laplace, ".0%").replace("%", " %"),
    )


noise = Study(_attacked, _attacked_claims)
