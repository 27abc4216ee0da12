"""Figure 4 of Angelopoulos et al.: coverage and set size by the number of bins."""

from __future__ import annotations

from fedcal.conformal.levels.angelopoulos import best_bins
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.research.studies.rows import counted
from fedcal.experiments.research.studies.set_trials import (
    ALPHA,
    EXACT,
    PRIVATE,
    by_both,
    by_number,
    rng_of,
    row_of,
    scored,
    setting,
    split,
    where,
)
from fedcal.experiments.research.studies.spec import Rows, RowsClaim
from fedcal.strategies.server.outcome import Progress

DATA = "densenet-cifar100"
N, TESTS, SPLITS = 5_000, 5_000, 100
EPSILONS = {"the paper's epsilon": 5.0, "the paper's n epsilon": 30.0}
"""At its n = 30,000 the paper's epsilon = 5 is n epsilon = 150,000: ours at epsilon = 30."""

SHARES = (0.01, 0.05, 0.1, 1.0, 10.0)
"""Of n epsilon; the paper has them from .05 on."""
STAR = "m*"

CONSTANT = 0.005
"""By how much means of coverage may differ and still be called nearly constant."""
WELL = 0.02
"""By how much sets of m* may be larger than the smallest, relative."""


def rows(progress: Progress | None = None, *, splits: int = SPLITS) -> Rows:
    """Sets by the number of bins, on the same splits for all of them.

    Returns
    -------
    list of dict
        See `set_trials.row_of`; `data`, `like`, `sets`, `times` (bins / n epsilon; of m* "m*"),
        `n`, `tests`
    """
    data, found = scored(DATA), Rows()
    drawn = split(data, N, TESTS, splits, rng_of("angelopoulos-figure4"))
    todo = [(like, e, share) for like, e in EPSILONS.items() for share in (*SHARES, STAR)]
    for like, epsilon, share in counted(todo, progress):
        many = best_bins(N, epsilon, ALPHA) if isinstance(share, str) else share * N * epsilon
        rng = rng_of("angelopoulos-figure4", epsilon, share)
        both = by_both(drawn, epsilon, rng, round(many))
        place = {"data": DATA, "like": like, "n": N, "tests": TESTS}
        for sets, (rule, judged) in both.items():
            times = str(share) if sets == PRIVATE else "-"
            if sets == PRIVATE or share == STAR:
                found.append(row_of(place | {"sets": sets, "times": times}, rule, judged))
    return found


def _private(found: Rows, like: str) -> Rows:
    return where(found, what="setting", like=like, sets=PRIVATE)


def claims(found: Rows) -> list[RowsClaim]:
    """What section 4.2 and the figure's caption say."""
    said: list[RowsClaim] = []
    for like, epsilon in EPSILONS.items():
        mine = _private(found, like)
        coverage, sizes = ([r[k] for r in mine] for k in ("coverage", "set_size"))
        low, high = 100 * min(coverage), 100 * max(coverage)
        star = next(r["set_size"] for r in mine if r["times"] == STAR)
        over, about = 100 * (star / min(sizes) - 1), f"At epsilon = {epsilon:g} ({like}), "
        said += [
            (
                f"{about}coverage is nearly constant over three orders of bin numbers: within "
                f"{100 * CONSTANT:.1f} points",
                high - low <= 100 * CONSTANT,
                f"{low:.2f} to {high:.2f} %",
            ),
            (
                f"{about}m* of one seed works well: sets at most {100 * WELL:.0f} % over the "
                "smallest",
                over <= 100 * WELL,
                f"{over:.2f} % over",
            ),
        ]
    return said


def sheet(found: Rows) -> Sheet | None:
    """Coverage and size by the number of bins, one row of panels for each epsilon."""
    panels = []
    for like, epsilon in EPSILONS.items():
        mine = _private(found, like)
        lines = {
            "m0": [r for r in mine if r["times"] != STAR],
            "m7": [r for r in mine if r["times"] == STAR],
        }
        exact, note = setting(found, like=like, sets=EXACT), f"{DATA}, ε = {epsilon:g}"
        panels += [
            by_number(title, note, "bins m", "bins", lines, exact, y)
            for title, y in (("Coverage", "coverage"), ("Set size", "set_size"))
        ]
    legend = (("m0", "private"), ("m7", "private, m*"), ("b1", "non-private"))
    return Sheet("Prediction sets by the number of bins", 2, tuple(panels), legend)
