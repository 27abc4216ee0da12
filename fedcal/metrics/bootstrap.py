"""Differences between two models of the same test rows, with chance counted in.

Of several tests p-values are corrected for their number (Holm 1979).

Intervals of test metrics are from resampled test rows: before, after and the difference.

Rows are put into a few hundred random groups, each group's sums are taken once, and a bootstrap
replicate is a weighted sum of groups (multinomial weights): one matrix product instead of a pass
over the rows for each replicate. Groups of one row would be the ordinary bootstrap; with 200
groups a standard error is itself uncertain by 5 %.

Accuracy, NLL and Brier score are means: their intervals are percentiles of the replicates.

Calibration errors are sums of absolute gaps, so noise alone makes them positive:
their intervals invert a test instead, see below.

So an interval is for what infinitely many test rows would show. It reaches to the plug-in where it
would lie below it: a number lies in its own interval.
`tests/fedcal/metrics/test_intervals.py` measures the coverage.

Of a calibration error the plug-in is biased upwards, a replicate, which adds noise to noise, still
more, and percentile intervals then miss the truth nearly always (measured: they never cover a
calibrated truth, and never the classwise ECE of a mildly miscalibrated one; basic intervals cover
that in 0 to 65 %).

So a test is inverted. Let g be the observed gaps, d a replicate's deviations from g, and u the
gaps again, but none smaller than half its own standard error. The values ``sum |k u + d|`` are what
one could observe if the true gaps were k u; the interval holds all totals ``k sum |u|`` under which
the observed error lies within the central 95 % of them. Calibrated truth is k = 0, where this is
exact; far from it, it is the basic bootstrap interval.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core.checks import same
from fedcal.core.numerics import FLOOR, Floats, Integers, Purpose, stream
from fedcal.metrics.binning import bin_index
from fedcal.metrics.standard import BINS, Cells, check_scored, scan, summary

Name = TypeVar("Name")

ERROR = 0.05
"""Probability that any true hypothesis is rejected (familywise error)."""


def holm(p_values: Mapping[Name, float]) -> dict[Name, float]:
    """Return p-values corrected for their number, with familywise error at most alpha.

    The k-th smallest of m (k from 0) times m - k, none below one before it.
    """
    corrected, least = dict(p_values), 0.0
    for k, name in enumerate(sorted(corrected, key=corrected.__getitem__)):
        least = corrected[name] = min(max(least, (len(corrected) - k) * corrected[name]), 1.0)
    return corrected


def rejected(p_values: Mapping[Name, float]) -> tuple[Name, ...]:
    """Return the names of the hypotheses rejected at `ERROR`, the smallest p-value first."""
    sure = holm(p_values)
    return tuple(name for name in sorted(p_values, key=p_values.__getitem__) if sure[name] <= ERROR)


MOST_CLIENTS = 1000
"""Maximum number of clients with their own numbers: the first ones with rows."""

_LEAST = 0.5  # standard errors: no entry of the direction u is smaller
_CLEAR = 2.0  # standard errors: what stands out
_FACTORS = np.concatenate([np.linspace(0.0, 1.5, 16), np.linspace(1.75, 3.0, 6), [3.5, 4.5, 6, 8]])
_BLOCK = 2**18  # entries of replicates x cells


@dataclass(frozen=True)
class Inverted:
    """Interval of one calibration error, and the inputs of a paired difference.

    Attributes
    ----------
    low, high
        where the observed error is at the upper and at the lower end of what could be observed
    limit
        the high end had the observed error been at least the median of a calibrated truth's: an
        error that is small by luck then gives no interval of [0, 0]
    corrected
        where it is the median: a median-unbiased estimate, always in [low, high]
    noise
        median of the error, were the truth calibrated
    replicates
        (replicates,) errors, were the truth the corrected one
    """

    low: float
    high: float
    limit: float
    corrected: float
    noise: float
    replicates: Floats


def spread_out(gap: Floats, error: Floats) -> Floats:
    """Return the module docstring's direction with a true gap in every cell, (cells,)."""
    return np.asarray(np.where(gap < 0, -1.0, 1.0) * np.maximum(np.abs(gap), _LEAST * error))


def concentrated(gap: Floats, error: Floats) -> Floats:
    """Return the direction whose true gaps are only those that stand out from their error.

    Among all true gaps with one sum, those in few cells give the largest observed error, because
    the noise of all other cells comes on top; gaps that are spread out give the smallest. An
    interval with its low end from here and its high end from `spread_out` is valid for both.
    """
    least = _LEAST / 2 * error
    return np.asarray(np.where(np.abs(gap) > _CLEAR * error, gap, np.copysign(least, gap)))


def invert(
    gap: Floats,
    direction: Floats,
    deviations: Callable[[slice], NDArray[Any]],
    replicates: int,
    tails: tuple[float, float],
) -> Inverted:
    """Invert the test of the module's docstring.

    Parameters
    ----------
    gap
        (cells,) observed gaps, in units of the error
    direction
        (cells,) what true gaps are multiples of, from their standard errors, such as `spread_out`
    deviations
        cells -> (replicates, cells) float32 draws of observed less true gaps
    replicates
        number of replicates
    tails
        probabilities of the interval's ends, (.025, .975) for 95 %

    Returns
    -------
    Inverted
        in units of the error
    """
    if not len(gap):  # every row right with probability 1: no gap, and no noise
        return Inverted(0.0, 0.0, 0.0, 0.0, 0.0, np.zeros(replicates))
    step = max(1, _BLOCK // replicates)
    columns = [slice(i, i + step) for i in range(0, len(gap), step)]

    def spread(factors: Floats) -> Floats:
        """Return the error for true gaps of factor * direction, (factors, replicates)."""
        errors = np.zeros((len(factors), replicates))
        for part in columns:
            noise = deviations(part)
            for k, factor in enumerate(factors):
                gaps = noise + (factor * direction[part]).astype(np.float32)
                errors[k] += np.abs(gaps, out=gaps).sum(axis=1)
        return errors

    observed, unit = (float(np.abs(x).sum()) for x in (gap, direction))
    values = spread(_FACTORS)
    ends = np.quantile(values, (tails[1], 0.5, tails[0]), axis=1)
    low, middle, high = (_crossing(end, observed) for end in ends)
    return Inverted(
        low=low * unit,
        high=high * unit,
        limit=_crossing(ends[2], max(observed, float(ends[1][0]))) * unit,
        corrected=middle * unit,
        noise=float(np.median(values[0])),
        replicates=spread(np.array([middle]))[0],
    )


def _crossing(quantile: Floats, observed: float) -> float:
    """Return the factor at which a quantile, which grows with it, reaches the observed value."""
    grown = np.maximum.accumulate(quantile)
    return 0.0 if grown[0] >= observed else float(np.interp(observed, grown, _FACTORS))


GROUPS = 200
REPLICATES = 1000
LEVEL, TAILS = 0.95, (0.025, 0.975)
MEANS = ("accuracy", "nll", "brier")
GAPS = ("ece", "classwise_ece")
FEWEST = 20
"""With fewer test rows a bootstrap is unreliable: results do not have intervals then."""


def metric_intervals(
    before: ArrayLike, after: ArrayLike, labels: ArrayLike, *, seed: int = 0
) -> dict[str, Any]:
    """Return the confidence intervals of the scores of `fedcal.metrics.summary`, over test rows.

    Raises InputError as the scores, or if the two differ in shape.

    Parameters
    ----------
    before, after
        (n, c) probabilities of the same rows
    labels
        (n,) whole numbers in [0, c)
    seed
        random seed of groups and weights; the same seed gives the same bits

    Returns
    -------
    dict[str, Any]
        level, replicates, rows
        before, after : metric -> [low, high], in the metric's own unit (fractions)
        difference : metric -> [low, high] of after - before, paired by row
        noise : "before", "after" -> calibration error -> its median if the truth were calibrated
    """
    p, y = check_scored(before, labels)
    q, _ = check_scored(after, labels)
    same("shape of after, as of before,", q.shape, p.shape)
    rng, n = stream(seed, Purpose.BOOTSTRAP), len(y)
    order, groups = rng.permutation(n), min(n, GROUPS)
    edges = np.arange(groups + 1) * n // groups
    weights = rng.multinomial(groups, np.full(groups, 1 / groups), REPLICATES).astype(np.float32)
    sides = [_sums(x, y, order, edges) for x in (p, q)]
    parts = ("before", "after", "difference")
    record: dict[str, Any] = {"level": LEVEL, "replicates": REPLICATES, "rows": n}
    record |= {part: {} for part in parts} | {"noise": {"before": {}, "after": {}}}
    first, second = summary(p, y), summary(q, y)
    seen = dict(zip(parts, (first, second, {m: second[m] - first[m] for m in first}), strict=True))

    def note(part: str, metric: str, low: float, high: float) -> None:
        value = seen[part][metric]
        record[part][metric] = [min(float(low), value), max(float(high), value)]

    for metric in MEANS:
        sums = np.stack([side[metric] for side in sides], axis=1)
        values = weights.astype(np.float64) @ sums / (weights @ np.diff(edges))[:, None]
        for part, of in zip(parts, (*values.T, values[:, 1] - values[:, 0]), strict=True):
            note(part, metric, *np.quantile(of, TAILS))
    for metric in GAPS:
        fits = [_invert(side[metric], weights) for side in sides]
        for part, fit in zip(("before", "after"), fits, strict=True):
            note(part, metric, min(fit.low, 1.0), min(fit.high, 1.0))
            record["noise"][part][metric] = fit.noise
        equal = np.array_equal(p, q)
        note("difference", metric, *((0.0, 0.0) if equal else _difference(*fits)))
    return record


def _difference(before: Inverted, after: Inverted) -> tuple[float, float]:
    """Return the interval of after - before from those of both and their correlation.

    Zou & Donner 2008 (MOVER): unlike percentiles of paired replicates, which cover the truth in
    69 to 82 % where one of the two is calibrated, it knows how lopsided the two intervals are.
    Where one of them reaches 0, replicates do not show the sign of the correlation (a gap that
    is nearly 0 may lie on either side): the ends are then taken as they are, the safe way.
    """
    if min(before.low, after.low) <= 0:
        return after.low - before.high, after.high - before.low
    x, y = before.replicates, after.replicates
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    correlation = float(x @ y) / size if size > 0 else 0.0

    def reach(a: float, b: float) -> float:
        return math.sqrt(max(a * a + b * b - 2 * correlation * a * b, 0.0))

    middle = after.corrected - before.corrected
    down = reach(after.corrected - after.low, before.high - before.corrected)
    up = reach(after.high - after.corrected, before.corrected - before.low)
    return middle - down, middle + up


def _sums(
    probs: NDArray[Any], labels: Integers, order: Integers, edges: Integers
) -> dict[str, NDArray[Any]]:
    """Return sums by group of rows: of means (groups,), of calibration errors (groups, cells).

    The latter are gaps, summed probability - correct, in units of the metric.
    """
    (n, c), groups = probs.shape, len(edges) - 1
    of_row = np.repeat(np.arange(groups), np.diff(edges))  # in the order of `order`
    seen, squares = scan(probs, labels, own=True, top=True), np.empty(n)
    own, top, hit = seen.own[order], seen.confidence[order], seen.hit[order]
    gaps = np.empty((groups, c * BINS))
    for k, (first, end) in enumerate(pairwise(edges.tolist())):
        rows, cells = order[first:end], Cells(c, BINS)
        block = np.ascontiguousarray(probs[rows], np.float64)
        squares[first:end] = np.einsum("ij,ij->i", block, block)
        cells.add(block, labels[rows])
        gaps[k] = cells.gap().ravel()
    brier = np.square(probs[order, 1] - labels[order]) if c == 2 else squares - 2 * own + 1
    summed = {"accuracy": hit, "nll": -np.log(np.maximum(own, FLOOR)), "brier": brier}
    cell = of_row * BINS + bin_index(top, BINS)
    top_gaps = np.bincount(cell, top - hit, groups * BINS).reshape(groups, BINS)
    tables = {"ece": top_gaps / n, "classwise_ece": gaps / (n * c)}
    return {k: np.bincount(of_row, v, groups) for k, v in summed.items()} | {
        k: np.ascontiguousarray(table[:, table.any(axis=0)], np.float32)
        for k, table in tables.items()
    }


def _invert(table: NDArray[np.float32], weights: NDArray[np.float32]) -> Inverted:
    """Invert the test of this module for the gaps of one set of probabilities by group."""
    around = weights - 1  # deviations of a replicate are around @ table
    gap = table.sum(axis=0, dtype=np.float64)
    error = np.sqrt(np.square(table - table.mean(axis=0)).sum(axis=0, dtype=np.float64))
    direction = spread_out(gap, error)
    return invert(gap, direction, lambda part: around @ table[:, part], len(weights), TAILS)
