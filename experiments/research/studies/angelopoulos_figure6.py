"""Figure 6 of Angelopoulos et al.: sets for a medical task.

The paper has 1,000 chest X-rays with three diagnoses to calibrate by. Shipped are patients with
suspected heart disease (769 in all, two outcomes, so n is 500), and questions of life sciences that
a language model answered (1,254, four answers each), which are medical by their subject only.
"""

from __future__ import annotations

from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.research.studies.rows import counted
from fedcal.experiments.research.studies.set_trials import (
    ALPHA,
    BARS,
    EXACT,
    MEDICAL,
    PRIVATE,
    by_both,
    histogram,
    histograms,
    rng_of,
    row_of,
    scored,
    setting,
    split,
    where,
)
from fedcal.experiments.research.studies.spec import Rows, RowsClaim
from fedcal.strategies.server.outcome import Progress

SETTINGS = (("heart-disease", 500, 10.0), ("heart-disease", 500, 20.0), (MEDICAL, 1_000, 10.0))
"""Data, n, epsilon. The paper's n epsilon is 10,000."""

SPLITS, MEDIAN, NEAR = 1_000, 0.904, 0.01
"""Splits; the paper's median coverage; how near is near."""


def rows(progress: Progress | None = None, *, splits: int = SPLITS) -> Rows:
    """Exact and private sets of random splits; all rows that are left are test rows.

    Returns
    -------
    list of dict
        See `set_trials.row_of` and `histograms`; `data`, `sets`, `n`, `tests`, `budget`
        (epsilon of the private sets), `accuracy`
    """
    found: Rows = []
    for name, n, epsilon in counted(SETTINGS, progress):
        data, rng = scored(name), rng_of("angelopoulos-figure6", name, epsilon)
        tests = len(data.own) - n
        for sets, (rule, judged) in by_both(
            split(data, n, tests, splits, rng), epsilon, rng
        ).items():
            place = {"data": name, "sets": sets, "n": n, "tests": tests, "budget": epsilon}
            found.append(row_of(place | {"accuracy": data.accuracy}, rule, judged))
            found += histograms(place, judged)
    return found


def claims(found: Rows) -> list[RowsClaim]:
    """What section 4.4 says."""
    said: list[RowsClaim] = []
    for name, n, epsilon in SETTINGS:
        mine = setting(found, data=name, budget=epsilon, sets=PRIVATE)
        about = f"{name}, n = {n:,}, epsilon = {epsilon:g}: "
        off = abs(mine["coverage_median"] - MEDIAN)
        said += [
            (
                f"{about}sets cover 90 % in the mean of all splits",
                mine["coverage"] >= 1 - ALPHA - 3.5 * mine["coverage_error"],
                f"{100 * mine['coverage']:.2f} %",
            ),
            (
                f"{about}median coverage within a point of the paper's {100 * MEDIAN:.1f} %",
                off <= NEAR,
                f"{100 * mine['coverage_median']:.2f} %",
                f"{100 * MEDIAN:.1f} %",
            ),
        ]
    return said


def sheet(found: Rows) -> Sheet | None:
    """Coverage and size, one row of panels for each setting."""
    panels = []
    for name, n, epsilon in SETTINGS:
        mine = {
            look: where(found, data=name, budget=epsilon, sets=sets)
            for look, sets in zip(BARS, (EXACT, PRIVATE), strict=True)
        }
        title = "heart disease" if name != MEDICAL else "life sciences"
        note = f"n = {n:,}, ε = {epsilon:g}"
        panels += [
            histogram(f"{title}: coverage", note, "coverage", mine),
            histogram(f"{title}: set sizes", note, "size", mine),
        ]
    legend = tuple(zip(BARS, (f"{EXACT} sets", f"{PRIVATE} sets"), strict=True))
    return Sheet("Medical prediction sets", 2, tuple(panels), legend)
