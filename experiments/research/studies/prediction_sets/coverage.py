"""Coverage of private prediction sets, compared with their guarantee.

Each run draws all clients' rows anew from a law of conformity scores, releases a threshold, and is
told exactly how often that threshold covers a new row of the law.

`promises`: sets must cover in 1 - alpha of cases in the mean over runs. A law may be unkind: ties,
masses at or just above the thresholds that are looked at, masses that end below and far above
1 - alpha, a single score.
Sets of all labels cover always and say nothing, so that their share, and coverage without them,
stand beside. Most cells draw sums by their law (`laws`); some run clients and engine. The cells
stand in `prediction_sets.toml`.

`excess`: mean coverage where rows are protected, beside the non-private rule's on the same
thresholds, whose mean is computed exactly: that of the ceil((n + 1) (1 - alpha))-th smallest score,
rounded up to a threshold. What the thresholds themselves cost is so left out, and said in a column
of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

from fedcal.conformal.levels import NoiseFree, marginal_level
from fedcal.core.numerics import Floats
from fedcal.experiments.research.studies.prediction_sets.laws import (
    ALPHA,
    ScoreLaw,
    Setup,
    engine_thresholds,
    exact_thresholds,
    law_of,
    thresholds_of,
)
from fedcal.experiments.research.studies.registry import study
from fedcal.experiments.research.studies.rows import counted, grouped, rng_of, span
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim, Study
from fedcal.mechanisms import Gaussian, Laplace, Target
from fedcal.strategies.server.outcome import Progress

ERRORS = 3.5
"""Standard errors of the mean that coverage may be below what is promised."""
_LEAST = 1e-6

GRID = (np.arange(64) + 1) / 64
"""At which masses lie where a rule has no thresholds of its own."""


@dataclass(frozen=True)
class Cell:
    """Runs of one kind; `how` is "laws" or "engine"."""

    setup: Setup
    law: str
    how: str = "laws"


def _cells() -> Iterator[Cell]:
    shared = study("prediction_sets")["shared"]
    setups = {name: Setup(**facts) for name, facts in shared["setups"].items()}
    for entry in shared["cells"]:
        for name, law in product(entry["setups"], entry["laws"]):
            yield Cell(setups[name].of(law), law, entry.get("how", "laws"))


CELLS_RUN = tuple(_cells())


def _promised(
    progress: Progress | None = None,
    *,
    runs: int = 2000,
    engine_runs: int = 100,
    cells: Sequence[Cell] = CELLS_RUN,
) -> Rows:
    """Coverage of each rule's sets under each law.

    Parameters
    ----------
    progress
        called after each cell
    runs, engine_runs
        of each cell, by its law and by the engine
    cells
        what is run

    Returns
    -------
    list of dict
        `how`, `rule`, `unit`, `trust`, `noise`, `epsilon`, `n`, `n_is` (public, private), `law`,
        `runs`; mean `coverage` and its standard `error`; the share of runs with `all_labels`, and
        `coverage_else`, without these
    """
    return [
        _promise(cell, engine_runs if cell.how == "engine" else runs)
        for cell in counted(cells, progress)
    ]


def _promise(cell: Cell, runs: int) -> Record:
    setup = cell.setup
    key = list(vars(setup).values())
    key.insert(8, "marginal")  # of earlier versions, so that the draws are theirs
    rng = rng_of("prediction sets coverage", 0, *key, cell.law, cell.how)
    thresholds = _found(cell, runs, rng)
    strategy = setup.strategy()
    query, private = strategy.query(1), strategy.plan.private
    grid = GRID if setup.quantile == "exact" else query.thresholds
    covered = law_of(cell.law, grid).covered(thresholds)
    every = thresholds >= 1.0
    return {
        "how": cell.how,
        "rule": setup.quantile,
        "unit": setup.unit if private else "",
        "trust": strategy.plan.trust,
        "noise": strategy.plan.mechanism.name if private else "none",
        "epsilon": setup.epsilon if private else None,
        "n": setup.total,
        "n_is": "public" if setup.known else "private",
        "law": cell.law,
        "runs": runs,
        "coverage": float(covered.mean()),
        "error": float(covered.std() / math.sqrt(runs)),
        "all_labels": float(every.mean()),
        "coverage_else": float(covered[~every].mean()) if not every.all() else None,
    }


def _found(cell: Cell, runs: int, rng: np.random.Generator) -> Floats:
    setup = cell.setup
    if cell.how == "engine":
        return engine_thresholds(setup, cell.law, runs, rng)
    if setup.quantile != "exact":
        return thresholds_of(setup, cell.law, runs, rng)
    level = marginal_level(setup.total, ALPHA, NoiseFree())
    rank = math.floor(level) + 1  # a level is just above the last rank that is too low
    return exact_thresholds(law_of(cell.law, GRID), setup.total, rank, runs, rng)


_KIND = ("rule", "unit", "trust")


def _promised_claims(found: Rows) -> Iterator[RowsClaim]:
    """Coverage of each rule, unit and trust; and that engine and laws agree."""
    for (rule, unit, trust), mine in grouped(found, *_KIND).items():
        text = f"{rule}, {f'unit {unit}, {trust}' if unit else 'no privacy'}: "
        text += "sets cover 90 % of rows in the mean over runs"
        low = [r for r in mine if r["coverage"] < 1 - ALPHA - ERRORS * r["error"] - 1e-9]
        shown = _span(r["coverage"] for r in mine)
        if low:
            shown += f"; less: {', '.join(map(_name, low))}"
        if empty := [r for r in mine if r["all_labels"] > 0.5]:
            shown += f"; mostly all labels, which shows nothing: {', '.join(map(_name, empty))}"
        yield text, not low, shown
    alike = grouped(found, *_KIND, "noise", "epsilon", "n", "n_is", "law").values()
    off = [
        _apart(engine, law)
        for mine in alike
        for engine, law in product(mine, mine)
        if (engine["how"], law["how"]) == ("engine", "laws")
    ]
    if off:
        text = "Runs of the engine cover as often as the laws say, within 3.5 standard errors"
        yield text, max(off) <= ERRORS, f"{len(off)} pairs, at most {max(off):.1f}"


def _apart(row: Record, law: Record) -> float:
    """Return the standard errors between coverage by the engine and by the law."""
    more = math.sqrt(1.0 + law["runs"] / row["runs"])  # of a difference, to that of the law's
    return float(abs(row["coverage"] - law["coverage"]) / max(law["error"] * more, _LEAST))


def _name(row: Record) -> str:
    return f"{row['law']}, {row['noise']}, n = {row['n']:,}"


def _span(shares: Iterable[float]) -> str:
    return f"{span(shares, '.1f', 100)} %"


promises = Study(_promised, _promised_claims)

# -- above the non-private rule ------------------------------------------------------------------

SIZES = (300, 1000, 5000)
DELTA, MULTIPLIER = 1e-5, 2.0
LAWS = ("smooth", "densenet-cifar100 lac", "resnet110-cifar10 lac")
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
class Protected:
    """Runs of a rule of `RULES` whose number of rows is public, or not."""

    rule: str
    law: str
    n: int
    known: bool

    @property
    def setup(self) -> Setup:
        """The setting for 100 clients."""
        setup = replace(RULES[self.rule], clients=100, rows=self.n // 100, known=self.known)
        return setup.of(self.law)


PROTECTED = tuple(
    Protected(rule, law, n, known)
    for rule, law, n, known in product(RULES, LAWS, SIZES, (True, False))
    if not (known and (rule.startswith("crossing") or law != LAWS[0]))
)


def _above(
    progress: Progress | None = None, *, runs: int = 500, cells: Sequence[Protected] = PROTECTED
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


def _measured(cell: Protected, runs: int) -> Record:
    setup = cell.setup
    rng = rng_of("prediction sets rows", 0, *vars(cell).values())
    found = thresholds_of(setup, cell.law, runs, rng)
    query = setup.strategy().query(1)
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
    """Return the coverage of the non-private rule: the first threshold with enough of all rows."""
    rank = math.ceil((rows + 1) * (1.0 - ALPHA) - 1e-9)
    share = law.covered(thresholds)
    above = np.asarray(binom.cdf(rank - 1, rows, share))  # P(the threshold is a later one)
    above[-1] = 0.0
    here = np.concatenate([[1.0], above[:-1]]) - above
    return float(here @ share)


def _above_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the aims, by rule and number of rows."""
    for (rule, law, n), mine in grouped(found, "rule", "law", "n").items():
        aims = AIMS if "rho" in rule else PURE_AIMS if "epsilon = 1" in rule else {}
        if n not in aims:
            continue
        worst = [f"n {r['n_is']}" for r in mine if r["excess"] > aims[n]]
        shown = span((r["excess"] for r in mine), ".4f")
        shown += f"; more: {'; '.join(worst)}" if worst else ""
        text = f"{rule}, {law}: {n:,} rows cover at most {aims[n]:g} above the non-private rule"
        yield text, not worst, shown
    yield (
        "All cover 90 % in the mean over runs, but for 3.5 standard errors",
        all(r["coverage"] >= 1 - ALPHA - ERRORS * r["error"] for r in found),
        f"{len(found)} rows, at least {100 * min(r['coverage'] for r in found):.2f} %",
    )


excess = Study(_above, _above_claims)
