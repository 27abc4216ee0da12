"""How much more than they must private sets cover where rows are protected. Our own study.

Mean coverage over fresh rows, beside the non-private rule's on the same thresholds, whose mean is
computed exactly: that of the ceil((n + 1) (1 - alpha))-th smallest score, rounded up to a
threshold. What the thresholds themselves cost is so left out, and said in a column of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

from fedcal.core.types import Floats
from fedcal.experiments.research.studies.rows import counted
from fedcal.experiments.research.studies.score_worlds import rng_of
from fedcal.experiments.research.studies.set_worlds import (
    ALPHA,
    ScoreLaw,
    Setup,
    law_of,
    thresholds_of,
)
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.mechanisms import Gaussian, Laplace, Target
from fedcal.strategies.server.outcome import Progress

RUNS = 500
SIZES = (300, 1000, 5000)
DELTA, MULTIPLIER = 1e-5, 2.0
LAWS = ("smooth", "densenet-cifar100 lac", "resnet110-cifar10 margin")
AIMS = {300: 0.02, 1000: 0.006, 5000: 0.002}
"""At most so much above the non-private rule, at rho = 1/8."""
PURE_AIMS = {1000: 0.024, 5000: 0.0055}
"""At epsilon = 1: half of what the rule of Angelopoulos et al. has there."""


def _same_noise(epsilon: float) -> float:
    return Gaussian.calibrate(Target(epsilon, DELTA, 1)).multiplier - MULTIPLIER


EPSILON = float(brentq(_same_noise, 0.5, 8.0, xtol=1e-9))
"""At which Gaussian noise has a std of 2 sensitivities: rho = 1/8."""

RULES = {
    "prefix, rho = 1/8": Setup("prefix", epsilon=EPSILON, delta=DELTA, mechanism=Gaussian.name),
    "prefix, (1, 1e-5)": Setup("prefix", delta=DELTA, mechanism=Gaussian.name),
    "prefix, epsilon = 1": Setup("prefix", mechanism=Laplace.name),
    "crossing, epsilon = 1": Setup("crossing"),
}


@dataclass(frozen=True)
class Cell:
    """Runs of one kind."""

    rule: str
    law: str
    n: int
    known: bool

    @property
    def setup(self) -> Setup:
        """100 clients."""
        setup = replace(RULES[self.rule], clients=100, rows=self.n // 100, known=self.known)
        return setup.of(self.law)


CELLS_RUN = tuple(
    Cell(rule, law, n, known)
    for rule, law, n, known in product(RULES, LAWS, SIZES, (True, False))
    if not (known and (rule.startswith("crossing") or law != LAWS[0]))
)


def rows(
    progress: Progress | None = None, *, runs: int = RUNS, cells: Sequence[Cell] = CELLS_RUN
) -> Rows:
    """Coverage above the non-private rule's.

    Returns
    -------
    list of dict
        `rule`, `law`, `n`, `n_is`, `buckets`, mean `coverage`, its standard `error`, `grid` (the
        non-private rule's on these thresholds), `exact` (its on all), `excess` over `grid`, and
        the share of runs with `all_labels`
    """
    return [_measured(cell, runs) for cell in counted(cells, progress)]


def _measured(cell: Cell, runs: int) -> Record:
    setup = cell.setup
    rng = rng_of("prediction sets rows", 0, *vars(cell).values())
    found = thresholds_of(setup, cell.law, runs, rng)
    query = setup.strategy().query(1)
    if query is None:
        raise TypeError("nothing is asked")
    law = law_of(cell.law, query.thresholds)
    covered = law.covered(found)
    grid = mean_coverage(law, cell.n, query.thresholds)
    return {
        "rule": cell.rule,
        "law": cell.law,
        "n": cell.n,
        "n_is": "public" if cell.known else "private",
        "buckets": len(query.thresholds),
        "coverage": float(covered.mean()),
        "error": float(covered.std() / math.sqrt(runs)),
        "grid": grid,
        "exact": mean_coverage(law, cell.n, law.scores),
        "excess": float(covered.mean()) - grid,
        "all_labels": float(np.mean(found >= 1.0)),
    }


def mean_coverage(law: ScoreLaw, rows: int, thresholds: Floats) -> float:
    """Of the non-private rule on thresholds: of the first with enough of so many rows."""
    rank = math.ceil((rows + 1) * (1.0 - ALPHA) - 1e-9)
    share = law.covered(thresholds)
    above = np.asarray(binom.cdf(rank - 1, rows, share))  # P(the threshold is a later one)
    above[-1] = 0.0
    here = np.concatenate([[1.0], above[:-1]]) - above
    return float(here @ share)


def claims(found: Rows) -> list[RowsClaim]:
    """The aims, by rule and number of rows."""
    said: list[RowsClaim] = []
    for rule, law, n in dict.fromkeys((r["rule"], r["law"], r["n"]) for r in found):
        aims = AIMS if "rho" in rule else PURE_AIMS if "epsilon = 1" in rule else {}
        if n not in aims:
            continue
        mine = [r for r in found if (r["rule"], r["law"], r["n"]) == (rule, law, n)]
        text = f"{rule}, {law}: {n:,} rows cover at most {aims[n]:g} above the non-private rule"
        worst = [f"n {r['n_is']}" for r in mine if r["excess"] > aims[n]]
        shown = f"{min(r['excess'] for r in mine):.4f} to {max(r['excess'] for r in mine):.4f}"
        if worst:
            shown += f"; more: {'; '.join(worst)}"
        said.append((text, not worst, shown))
    short = [r for r in found if r["coverage"] < 1 - ALPHA - 3.5 * r["error"]]
    text = "All cover 90 % in the mean over runs, but for 3.5 standard errors"
    shown = f"{len(found)} rows, at least {100 * min(r['coverage'] for r in found):.2f} %"
    said.append((text, not short, shown))
    return said
