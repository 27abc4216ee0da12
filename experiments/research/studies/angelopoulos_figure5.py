"""Figure 5 of Angelopoulos et al.: coverage and set size by epsilon.

Algorithm 5 as printed takes the number of bins that had the luckiest single draw, out of 100 to a
million; the authors' program tries none below 10,000. That matters where scores crowd near 1, as
here (the 90 % quantile is .99): a few hundred bins of equal width hardly tell them apart. So both
are run, and m* with several seeds of its draws.
"""

from __future__ import annotations

from itertools import pairwise, product
from math import hypot
from statistics import median

from fedcal.conformal.levels.angelopoulos import best_bins
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.research.studies.claims import larger
from fedcal.experiments.research.studies.rows import counted
from fedcal.experiments.research.studies.set_trials import (
    ALPHA,
    EXACT,
    PRIVATE,
    Splits,
    by_both,
    by_number,
    rng_of,
    row_of,
    scored,
    setting,
    split,
    where,
)
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.strategies.server.outcome import Progress

DATA = "densenet-cifar100"
N, TESTS, SPLITS = 5_000, 5_000, 100
PAPER, MORE = (0.5, 1.0, 5.0, 10.0), (3.0, 6.0, 30.0, 60.0)
"""The paper's epsilons; and those that make n epsilon what it is there, with n = 30,000."""

SPREAD = "spread"
BINS = {"m*": None, "10,000": 10_000}
"""By Algorithm 5, 100 and more; and the least of the authors' program."""

SEEDS = 20
"""Of the draws of m*."""

LITTLE = 0.05
"""By how much set sizes may differ, relative, and still be called hardly sensitive."""


def rows(progress: Progress | None = None, *, splits: int = SPLITS) -> Rows:
    """Sets by epsilon, on the same splits for all of them.

    Returns
    -------
    list of dict
        See `set_trials.row_of`; `data`, `sets`, `chosen` (of `BINS`), `n`, `tests`. What =
        "spread": of m* over `SEEDS` seeds, least, median and most of `bins`, mean set size
        (`size_...`) and mean coverage
    """
    data, found = scored(DATA), Rows()
    drawn = split(data, N, TESTS, splits, rng_of("angelopoulos-figure5"))
    place = {"data": DATA, "n": N, "tests": TESTS}
    epsilons = sorted({*PAPER, *MORE})
    todo = [(chosen, epsilon) for chosen in (*BINS, SPREAD) for epsilon in epsilons]
    for chosen, epsilon in counted(todo, progress):
        if chosen == SPREAD:
            found.append(_spread(drawn, epsilon))
            continue
        both = by_both(drawn, epsilon, rng_of("angelopoulos-figure5", epsilon), BINS[chosen])
        if not found:
            found.append(row_of(place | {"sets": EXACT, "chosen": ""}, *both[EXACT]))
        found.append(row_of(place | {"sets": PRIVATE, "chosen": chosen}, *both[PRIVATE]))
    return found


def _spread(drawn: Splits, epsilon: float) -> Record:
    """What m* comes to over seeds of its draws."""
    bins, sizes, coverage = [], [], []
    for seed in range(SEEDS):
        m = best_bins(N, epsilon, ALPHA, seed)
        rng = rng_of("angelopoulos-figure5", epsilon, seed)
        judged = by_both(drawn, epsilon, rng, m)[PRIVATE][1].record
        bins.append(m)
        sizes.append(judged["set_size"])
        coverage.append(judged["coverage"])
    return {
        **{"what": SPREAD, "epsilon": epsilon, "seeds": SEEDS},
        **{"bins_low": min(bins), "bins_median": median(bins), "bins_high": max(bins)},
        **{"size_low": min(sizes), "size_median": median(sizes), "size_high": max(sizes)},
        **{"coverage_least": min(coverage), "coverage_most": max(coverage)},
    }


def claims(found: Rows) -> list[RowsClaim]:
    """What section 4.3 and the figure's caption say; and how far m* is luck."""
    said: list[RowsClaim] = [
        (
            f"m = m*, epsilon = {r['epsilon']:g}: over {r['seeds']} seeds of its draws sets are "
            f"within {100 * LITTLE:.0f} %",
            r["size_high"] <= (1 + LITTLE) * r["size_low"],
            f"{r['size_low']:.2f} to {r['size_high']:.2f} labels, with m* from "
            f"{r['bins_low']:,} to {r['bins_high']:,}",
        )
        for r in where(found, what=SPREAD)
    ]
    likes = {"the paper's epsilons": PAPER, "the paper's n epsilon": MORE}
    for chosen, (like, epsilons) in product(BINS, likes.items()):
        mine = [setting(found, sets=PRIVATE, chosen=chosen, epsilon=e) for e in epsilons]
        coverage, sizes = ([r[k] for r in mine] for k in ("coverage", "set_size"))
        errors = [r["coverage_error"] for r in mine]
        ends = larger(coverage[0], coverage[-1], 2 * hypot(errors[0], errors[-1]))
        steps = zip(pairwise(coverage), pairwise(errors), strict=True)
        rises = any(larger(b, a, 2 * hypot(*of)) is True for (a, b), of in steps)
        more = 100 * (max(sizes) / min(sizes) - 1)
        shown, places = [f"{100 * c:.2f}" for c in coverage], [f"{e:g}" for e in epsilons]
        of = f"{chosen} of one seed" if BINS[chosen] is None else chosen
        about = f"m = {of}, {like} ({', '.join(places)}): "
        said += [
            (
                f"{about}the rule becomes less conservative as epsilon grows",
                False if rises else ends,
                f"coverage {', '.join(shown)} %",
            ),
            (
                f"{about}there is little sensitivity to epsilon, sets are within "
                f"{100 * LITTLE:.0f} %",
                more <= 100 * LITTLE,
                f"the largest are {more:.1f} % over the smallest",
            ),
        ]
    return said


def sheet(found: Rows) -> Sheet | None:
    """Coverage and size by epsilon."""
    looks = dict(zip(("m0", "m1"), BINS, strict=True))
    lines = {look: where(found, sets=PRIVATE, chosen=chosen) for look, chosen in looks.items()}
    exact = setting(found, sets=EXACT)
    panels = tuple(
        by_number(title, DATA, "epsilon", "epsilon", lines, exact, y)
        for title, y in (("Coverage", "coverage"), ("Set size", "set_size"))
    )
    legend = [(look, f"private, m = {chosen}") for look, chosen in looks.items()]
    legend.append(("b1", "non-private"))
    return Sheet("Prediction sets by epsilon", 2, panels, tuple(legend))
