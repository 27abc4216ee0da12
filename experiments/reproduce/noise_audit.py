"""Attacks on every mechanism, trust model and unit: is a claimed epsilon refuted? Our own study."""

from __future__ import annotations

from fedcal.experiments.benchmarks.audit import ERROR, TRIALS, attacked, cells
from fedcal.experiments.reproduce.spec import Record, Rows, RowsClaim
from fedcal.mechanisms import Laplace
from fedcal.strategies.job import Progress


def rows(progress: Progress | None = None, *, trials: int = TRIALS) -> Rows:
    """One row for each cell of `fedcal.experiments.benchmarks.audit`.

    Parameters
    ----------
    progress : called after each cell
    trials : runs in each of two worlds

    Returns
    -------
    list of dict
        `mechanism`, `trust`, `unit`, `neighbours`, `note`, `claimed` epsilon, `at_least` (the
        bound that the attack proves, all together but for a probability of `ERROR`), `of_it` (its
        share), `trials` (of this cell), `refuted`
    """
    found: Rows = []
    todo = cells()
    for cell in todo:
        finding = attacked(cell, trials, ERROR)
        found.append(
            {
                "mechanism": cell.mechanism,
                "trust": cell.trust,
                "unit": cell.unit,
                "neighbours": cell.plan().adjacency,
                "note": cell.note,
                "claimed": finding.claimed,
                "at_least": finding.lower_bound,
                "of_it": finding.lower_bound / finding.claimed,
                "trials": finding.trials,
                "refuted": finding.refuted,
            }
        )
        if progress is not None:
            progress(len(found), len(todo))
    return found


def claims(found: Rows) -> list[RowsClaim]:
    """No attack succeeds, and those on pure mechanisms are strong enough to say something."""
    bad = [_name(r) for r in found if r["refuted"]]
    laplace = [r["of_it"] for r in found if r["mechanism"].endswith(Laplace.name)]
    return [
        (
            "No claimed epsilon is refuted",
            not bad,
            f"refuted: {'; '.join(bad)}" if bad else f"{len(found)} attacks",
        ),
        (
            "Attacks on (discrete) Laplace noise prove at least three quarters of the claim",
            min(laplace) >= 0.75,
            f"{min(laplace):.0%} to {max(laplace):.0%}".replace("%", " %"),
        ),
    ]


def _name(row: Record) -> str:
    return ", ".join(row[k] for k in ("mechanism", "trust", "unit", "note") if row[k])
