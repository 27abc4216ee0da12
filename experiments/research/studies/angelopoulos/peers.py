"""Private and federated thresholds of prediction sets side by side, on the same random splits.

Unit example: one row is added or removed. Rules and what they promise:

* non-private: the rank of split conformal prediction; and the same, rounded up to our grid;
* Angelopoulos et al., 2024, at their epsilon = 1; by exact account this spends 1/2 where a row is
  added or removed (see `fedcal.conformal.levels.angelopoulos`), so it is also run at their epsilon
  = 2;
* ours, a draw: the exponential mechanism on the crossing of a level
  (`fedcal.conformal.levels.crossing`), epsilon = 1, delta = 0; n is private;
* ours, a release: noisy counts in public buckets, the rank by the exact law of its order statistic
  and noise (`fedcal.conformal.levels.levels`), which serve every alpha; n is public;
* P-COQS (`pcoqs`): at rho = 1/8, with and without its two decimals, and at rho = 1/2, which its
  notebooks call epsilon = 1;
* FedCP-QQ (`fedcp_qq`): not private, rows dealt evenly to clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import product

import numpy as np

from fedcal.accounting import gaussian_multiplier
from fedcal.conformal.conformity import spread
from fedcal.conformal.levels.angelopoulos import best_bins, private_thresholds
from fedcal.conformal.levels.crossing import OF_ROWS, Draw
from fedcal.conformal.levels.levels import marginal_level
from fedcal.conformal.levels.noise_law import Normal
from fedcal.core.types import Floats, Integers
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.research.studies.angelopoulos import fedcp_qq, pcoqs
from fedcal.experiments.research.studies.angelopoulos.splits import (
    ALPHA,
    Judged,
    Scored,
    by_number,
    exact_thresholds,
    scored,
    split,
)
from fedcal.experiments.research.studies.rows import counted, one, rng_of, span, where
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.queries.encodings import column_norm, decoder_of
from fedcal.strategies.methods.quantiles.noisy import BINS
from fedcal.strategies.server.outcome import Progress

SIZES = (300, 1_000, 5_000)
FEW = 50
"""Rows where little can be promised: of uniform scores and of masses only."""

SPLITS, MADE, TESTS = 400, 2_000, 2_000
"""Splits of data; calibrations by scores of a known law; test rows."""
DATA = ("resnet110-cifar10", "densenet-cifar100", "imdb-binary")
UNIFORM, MASSES = "uniform scores", "masses at .85 (88 %) and .98"
AUTHORS, PCOQS, FEDCP = "Angelopoulos et al.", "P-COQS", "FedCP-QQ"
DRAW, RELEASE, GRID = "ours, a draw", "ours, a release", "non-private, our grid"
UNROUNDED = "P-COQS, not rounded"
THEIRS, EXACTLY = "their epsilon = 1", "epsilon = 1, exactly"
EPSILON, DELTA, RHO = 1.0, 1e-5, 1 / 8

CLIENTS = {50: 5, 300: 10, 1_000: 20, 5_000: 100}
"""n -> clients of FedCP-QQ."""

Thresholds = Callable[[Floats, np.random.Generator], Floats]
"""(k, n) scores -> (k,) thresholds."""


@dataclass(frozen=True)
class Rule:
    """A rule and what it promises: `privacy` in words."""

    name: str
    privacy: str
    found: Thresholds


def _upto(scores: Floats, grid: Floats) -> Integers:
    """Rows with a score of at most each threshold, (k, n), (m,) -> (k, m)."""
    place = np.searchsorted(grid, scores)
    k, m = len(scores), len(grid)
    counts = np.bincount((place + m * np.arange(k)[:, None]).ravel(), minlength=k * m)
    return np.cumsum(counts.reshape(k, m), axis=1)


def on_grid(scores: Floats, _: np.random.Generator, grid: Floats) -> Floats:
    """Return the exact rank's threshold, rounded up to the grid."""
    return np.asarray(grid[np.searchsorted(grid, exact_thresholds(scores, ALPHA))])


def authors(
    scores: Floats, rng: np.random.Generator, epsilon: float, bins: int | None = None
) -> Floats:
    """Angelopoulos et al., with gamma*, and m* where no number of bins is given."""
    bins = best_bins(scores.shape[1], epsilon, ALPHA) if bins is None else bins
    return private_thresholds(scores, bins, epsilon, ALPHA, rng)


def crossing(scores: Floats, rng: np.random.Generator, epsilon: float) -> Floats:
    """Draw by the exponential mechanism on the crossing of a level."""
    n = scores.shape[1]
    scale = 2 * (1 - ALPHA) / epsilon  # a row changes a centred count by at most 1 - alpha
    draw = Draw.of(ALPHA * n, scale, OF_ROWS)
    grid, level = spread(draw.candidates), 1 - ALPHA + draw.slack(scale, whole_rows=True)
    sums = _upto(scores, grid) - (1 - ALPHA) * n
    costs = np.zeros(sums.shape)
    costs[:, 1:] = np.maximum(sums[:, :-1] - level, 0.0)
    costs[:, :-1] = np.maximum(costs[:, :-1], level - sums[:, :-1])
    logs = draw.tilt * np.arange(draw.candidates) - costs / scale
    return np.asarray(grid[np.argmax(logs + rng.gumbel(size=logs.shape), axis=1)])


def release(scores: Floats, rng: np.random.Generator, grid: Floats, multiplier: float) -> Floats:
    """Count by the prefix encoding with Gaussian noise, n public, scanned from the top."""
    n, m = scores.shape[1], len(grid)
    weights, std = _prefix_noise(m)
    weights = weights[:-1] * (std * multiplier)
    size = np.linalg.norm(weights, axis=1)
    largest = float(size.max())
    level = marginal_level(n, ALPHA, Normal(largest))
    noisy = _upto(scores, grid)[:, :-1] + rng.standard_normal((len(scores), m)) @ weights.T
    more = np.sqrt(np.maximum(largest**2 - size**2, 0.0))
    noisy += more * rng.standard_normal(noisy.shape)
    short = noisy < level
    last = m - 1 - np.argmax(short[:, ::-1], axis=1)
    return np.asarray(grid[np.where(short.any(axis=1), last, 0)])


@cache
def _prefix_noise(m: int) -> tuple[Floats, float]:
    """Noise of prefix sums in units of each answer's, (m, m); what one row changes answers by."""
    decoder = np.cumsum(decoder_of("prefix", m), axis=0)
    return decoder, column_norm("prefix", m, 1, 2)


def rules_of(n: int) -> list[Rule]:
    """Return all rules that the study runs for n rows."""
    grid, once = spread(BINS, arcs=True), 1 / math.sqrt(2 * RHO)
    approximate = gaussian_multiplier(EPSILON, DELTA)
    return [
        Rule("non-private", "none", lambda s, _: exact_thresholds(s, ALPHA)),
        Rule(GRID, "none", partial(on_grid, grid=grid)),
        Rule(FEDCP, "none", lambda s, _: fedcp_qq.thresholds(s, CLIENTS[n], ALPHA)),
        Rule(AUTHORS, THEIRS, partial(authors, epsilon=EPSILON)),
        Rule(f"{AUTHORS}, m = 10,000", THEIRS, partial(authors, epsilon=EPSILON, bins=10_000)),
        Rule(AUTHORS, EXACTLY, partial(authors, epsilon=2 * EPSILON)),
        Rule(DRAW, "epsilon = 1", partial(crossing, epsilon=EPSILON)),
        Rule(RELEASE, "rho = 1/8", partial(release, grid=grid, multiplier=once)),
        Rule(RELEASE, "(1, 1e-5)", partial(release, grid=grid, multiplier=approximate)),
        Rule(PCOQS, "rho = 1/8", lambda s, rng: pcoqs.thresholds(s, ALPHA, RHO, rng)),
        Rule(PCOQS, "rho = 1/2", lambda s, rng: pcoqs.thresholds(s, ALPHA, 0.5, rng)),
        Rule(UNROUNDED, "rho = 1/8", lambda s, rng: pcoqs.thresholds(s, ALPHA, RHO, rng, 12)),
    ]


def _made(world: str, n: int, splits: int, rng: np.random.Generator) -> Floats:
    """Scores of a law that is known, (splits, n)."""
    drawn = rng.random((splits, n))
    return drawn if world == UNIFORM else np.where(drawn < 0.88, 0.85, 0.98)


def _known(world: str, thresholds: Floats) -> Judged:
    """Return the exact coverage of thresholds under a known law; no sets are counted."""
    if world == UNIFORM:
        covered = np.clip(thresholds, 0.0, 1.0)
    else:
        covered = np.where(thresholds >= 0.98, 1.0, np.where(thresholds >= 0.85, 0.88, 0.0))
    nothing = np.zeros(len(thresholds))
    return Judged(covered, nothing, np.ones(1, np.int64), float((thresholds >= 1).mean()))


# the most that a release may cover above the non-private rule on its grid, by n
_MOST = {300: 0.02, 1_000: 0.006, 5_000: 0.002}


def rows(progress: Progress | None = None, *, splits: int = SPLITS, made: int = MADE) -> Rows:
    """Every rule on every law of scores and number of rows.

    Returns
    -------
    list of dict
        `data`, `n`, `rule`, `privacy`; coverage and size as in `splits.Judged.record`, with
        `excess` over 1 - alpha; `set_size` None where scores have no labels
    """
    todo = [*product((UNIFORM, MASSES), (FEW, *SIZES)), *product(DATA, SIZES)]
    found: Rows = []
    for world, n in counted(todo, progress):
        rng = rng_of("prediction-sets-peers", 0, world, n)
        data: Scored | None = scored(world) if world in DATA else None
        of = None if data is None else split(data, n, TESTS, splits, rng)
        scores = _made(world, n, made, rng) if of is None else of.calibration
        for number, rule in enumerate(rules_of(n)):
            own = rng_of("prediction-sets-peers", 0, world, n, number)
            drawn = rule.found(scores, own)
            judged = _known(world, drawn) if of is None else of.judged(drawn)
            place: Record = {"data": world, "n": n, "rule": rule.name, "privacy": rule.privacy}
            record = judged.record | {"excess": float(judged.coverage.mean()) - (1 - ALPHA)}
            if of is None:
                record |= {"set_size": None, "set_size_error": None, "empty": None}
            found.append({"what": "setting", **place, **record})
    return found


def claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield which rules cover, and what coverage costs."""
    for name in (AUTHORS, f"{AUTHORS}, m = 10,000", DRAW, RELEASE, FEDCP, PCOQS, UNROUNDED):
        mine = where(found, rule=name)
        few = [r for r in mine if _errors_over(r) < -3.5]
        shown = f"least, in standard errors: {_shown(min(mine, key=_errors_over))}"
        if few:
            shown = f"not in {len(few)} of {len(mine)}: {'; '.join(map(_shown, few))}"
        text = f"{name}: mean coverage is at least 90 % less 3.5 standard errors everywhere"
        yield text, not few, shown
    uniform = where(found, data=UNIFORM)
    over = {
        n: one(uniform, n=n, rule=RELEASE, privacy="rho = 1/8")["coverage"]
        - one(uniform, n=n, rule=GRID)["coverage"]
        for n in SIZES
    }
    yield (
        "ours, a release at rho = 1/8: at most 2 / 0.6 / 0.2 points above the non-private rule "
        "on its grid at n = 300 / 1,000 / 5,000, uniform scores",
        all(over[n] <= _MOST[n] for n in SIZES),
        " / ".join(f"{100 * over[n]:.2f}" for n in SIZES),
    )
    for privacy in (THEIRS, EXACTLY):
        shares = [
            one(found, data=data, n=n, rule=DRAW)["excess"]
            / one(found, data=data, n=n, rule=AUTHORS, privacy=privacy)["excess"]
            for data, n in product((UNIFORM, *DATA), SIZES[1:])
        ]
        yield (
            f"ours, a draw at epsilon = 1: at most half of what {AUTHORS} cover above 90 % at "
            f"{privacy}, n = 1,000 and 5,000, uniform scores and data",
            max(shares) <= 0.5,
            f"{span(shares, '.2f')} times",
        )


def _shown(row: Record) -> str:
    """Format a mean with its standard error, and the data it was measured on."""
    coverage = f"{100 * row['coverage']:.2f} +- {100 * row['coverage_error']:.2f} %"
    return f"{coverage} ({row['data']}, n = {row['n']:,}, {row['privacy']})"


def _errors_over(row: Record) -> float:
    """Return the standard errors of a mean above 90 %; a constant threshold is exact."""
    error = max(float(row["coverage_error"]), 1e-9)
    return (float(row["coverage"]) - (1 - ALPHA)) / error


SHOWN = {
    "m0": (AUTHORS, THEIRS),
    "m1": (DRAW, "epsilon = 1"),
    "m2": (RELEASE, "rho = 1/8"),
    "m4": (PCOQS, "rho = 1/8"),
    "m5": (FEDCP, "none"),
}
"""Look -> rule and privacy that the figure shows."""


def sheet(found: Rows) -> Sheet:
    """Mean coverage by n, and set sizes where there are any."""
    panels = []
    for y, data in [("coverage", d) for d in (UNIFORM, *DATA)] + [("set_size", d) for d in DATA]:
        mine = where(found, data=data)
        lines = {
            look: where(mine, rule=rule, privacy=privacy) for look, (rule, privacy) in SHOWN.items()
        }
        exact = one(mine, n=max(SIZES), rule="non-private")
        panels.append(by_number(y, data, "rows n", "n", lines, exact))
    legend = [
        (look, rule if privacy == "none" else f"{rule}, {privacy}")
        for look, (rule, privacy) in SHOWN.items()
    ]
    legend.append(("b1", "non-private, n = 5,000"))
    return Sheet("Private prediction sets beside each other", 4, tuple(panels), tuple(legend))
