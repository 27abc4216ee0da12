"""Intervals of test metrics from resampled test rows: before, after and the difference.

Rows are put into a few hundred random groups, each group's sums are taken once, and a bootstrap
replicate is a weighted sum of groups (multinomial weights): one matrix product instead of a pass
over the rows for each replicate. Groups of one row would be the ordinary bootstrap; with 200
groups a standard error is itself uncertain by 5 %.

Accuracy, NLL and Brier score are means: their intervals are percentiles of the replicates.

Calibration errors are sums (or a maximum) of absolute gaps, so noise alone makes them positive:
their intervals invert a test instead (`fedcal.metrics.inversion`).

So an interval is for what infinitely many test rows would show, and may lie below the plug-in.
`tests/fedcal/metrics/test_bootstrap.py` measures the coverage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core.checks import whole
from fedcal.core.errors import InputError
from fedcal.core.numerics import FLOOR
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats, Integers
from fedcal.metrics.binning import HIGHEST, bin_index
from fedcal.metrics.inversion import Inverted, invert, spread_out
from fedcal.metrics.standard import BINS, check_scored

GROUPS = 200
REPLICATES = 1000
MEANS = ("accuracy", "nll", "brier")
GAPS = ("ece", "classwise_ece", "mce")
FEWEST = 20
"""With fewer test rows a bootstrap is unreliable: results do not have intervals then."""
HIGHEST_VALUE = {"accuracy": 1.0, "brier": 2.0, "ece": 1.0, "classwise_ece": 1.0, "mce": 1.0}

_BLOCK = 2**18  # entries of a block of rows


def metric_intervals(
    before: ArrayLike,
    after: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = BINS,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the confidence intervals of the scores of `fedcal.metrics.summary`, over test rows.

    Raises InputError as the scores; the two differ in shape; the level is not in (0, 1).

    Parameters
    ----------
    before, after
        (n, c) probabilities of the same rows
    labels
        (n,) whole numbers in [0, c)
    bins
        as in `fedcal.metrics.ece`
    level
        confidence level of each interval alone
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
    if not 0 < level < 1:
        raise InputError(f"level must be in (0, 1), got {level!r}")
    whole("bins", bins, 1, 2**12)
    p, y = check_scored(before, labels)
    q, _ = check_scored(after, labels)
    if p.shape != q.shape:
        raise InputError(f"before and after differ in shape: {p.shape} and {q.shape}")
    rng = stream(seed, Purpose.BOOTSTRAP)
    order = rng.permutation(len(y))
    groups = min(len(y), GROUPS)
    weights = rng.multinomial(groups, np.full(groups, 1 / groups), REPLICATES).astype(np.float32)
    tails = (0.5 - level / 2, 0.5 + level / 2)
    sides = [_side(x, y, order, groups, bins) for x in (p, q)]
    record: dict[str, Any] = {
        "level": level,
        "replicates": REPLICATES,
        "rows": len(y),
        **{part: {} for part in ("before", "after", "difference")},
        "noise": {"before": {}, "after": {}},
    }

    def note(part: str, metric: str, low: float, high: float) -> None:
        record[part][metric] = [float(low), float(high)]

    for metric in MEANS:
        sums = np.stack([side.means[metric] for side in sides], axis=1)
        replicates = weights.astype(np.float64) @ sums / (weights @ sides[0].rows)[:, None]
        for i, part in enumerate(("before", "after")):
            note(part, metric, *np.quantile(replicates[:, i], tails))
        note("difference", metric, *np.quantile(replicates[:, 1] - replicates[:, 0], tails))
    for metric in GAPS:
        fits = [_invert(side, metric, weights, tails) for side in sides]
        top = HIGHEST_VALUE[metric]
        for part, fit in zip(("before", "after"), fits, strict=True):
            note(part, metric, min(fit.low, top), min(fit.high, top))
            record["noise"][part][metric] = fit.noise
        same = np.array_equal(p, q)
        note("difference", metric, *((0.0, 0.0) if same else _difference(*fits)))
    return record


@dataclass(frozen=True)
class _Side:
    """Sums by group of one set of probabilities.

    rows : (groups,) how many
    means : metric -> (groups,) summed score of the rows
    tables : metric -> (groups, cells) gaps, summed probability - correct, in units of the metric
    """

    rows: Floats
    means: dict[str, Floats]
    tables: dict[str, NDArray[np.float32]]


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


def _side(probs: NDArray[Any], labels: Integers, order: Integers, groups: int, bins: int) -> _Side:
    n, c = probs.shape
    edges = np.arange(groups + 1) * n // groups
    of_row = np.repeat(np.arange(groups), np.diff(edges))  # in the order of `order`
    own, top, hit = np.empty(n), np.empty(n), np.empty(n, np.bool_)
    squares = np.empty(n)
    gaps = np.zeros(groups * c * bins)
    step = max(1, _BLOCK // c)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        block = np.asarray(probs[order[rows]], np.float64)
        if not (block.min() >= 0.0 and block.max() <= HIGHEST):
            raise InputError("probabilities must be finite and in [0, 1]")
        y, at = labels[order[rows]], np.arange(len(block))
        predicted = block.argmax(axis=1)
        own[rows], top[rows], hit[rows] = block[at, y], block[at, predicted], predicted == y
        squares[rows] = np.einsum("ij,ij->i", block, block)
        _add_cells(gaps, block, y, of_row[rows], bins)
    summed = {
        "accuracy": hit.astype(np.float64),
        "nll": -np.log(np.maximum(own, FLOOR)),
        "brier": squares - 2 * own + 1,
    }
    index = bin_index(top, bins)
    top_gaps = np.bincount(of_row * bins + index, top - hit, groups * bins).reshape(groups, bins)
    count = np.bincount(index, minlength=bins)
    return _Side(
        rows=np.diff(edges).astype(np.float64),
        means={k: np.bincount(of_row, v, groups).astype(np.float64) for k, v in summed.items()},
        tables={
            "ece": _used(top_gaps / n),
            "classwise_ece": _used(gaps.reshape(groups, c * bins) / (n * c)),
            "mce": _used(top_gaps / np.maximum(count, 1)),
        },
    )


def _add_cells(gaps: Floats, block: Floats, labels: Integers, group: Integers, bins: int) -> None:
    """Add p_ij - 1{y_i = j} to the cells (group, class, bin); most entries lie in bin 0."""
    m, c = block.shape
    table = gaps.reshape(-1, c, bins)
    first, which = np.unique(group, return_index=True)
    table[first, :, 0] += np.add.reduceat(block, which, axis=0)
    row, column = np.nonzero(block * bins >= 1.0)
    values = block[row, column]
    cell = (group[row] * c + column) * bins
    index = bin_index(values, bins)
    own = bin_index(block[np.arange(m), labels], bins)
    where = np.concatenate([cell, cell + index, (group * c + labels) * bins + own])
    what = np.concatenate([-values, values, np.full(m, -1.0)])
    low = where.min() if len(where) else 0  # rows are sorted by group: a short stretch of cells
    added = np.bincount(where - low, what)
    gaps[low : low + len(added)] += added


def _used(table: Floats) -> NDArray[np.float32]:
    """Return the columns that are non-zero in some group."""
    return np.ascontiguousarray(table[:, table.any(axis=0)], np.float32)


def _invert(
    side: _Side, metric: str, weights: NDArray[np.float32], tails: tuple[float, float]
) -> Inverted:
    """Invert the test of `fedcal.metrics.inversion` for the sums of one set of probabilities."""
    table = side.tables[metric]
    around = weights - 1  # deviations of a replicate are around @ table
    gap = table.sum(axis=0, dtype=np.float64)
    error = np.sqrt(np.square(table - table.mean(axis=0)).sum(axis=0, dtype=np.float64))
    return invert(
        gap,
        spread_out(gap, error),
        lambda columns: around @ table[:, columns],
        len(weights),
        "max" if metric == "mce" else "sum",
        tails,
    )
