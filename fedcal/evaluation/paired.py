"""Two views of the same rows: two models, or one before and after its calibration."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.types import Floats
from fedcal.evaluation.estimates import estimates_of, metrics_of
from fedcal.evaluation.estimators.base import Asked
from fedcal.evaluation.estimators.calibration import Ece
from fedcal.evaluation.estimators.metrics import Accuracy
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.intervals import (
    FEW,
    FIRM,
    Estimate,
    Span,
    estimate,
    fieller,
    mover,
    normal_quantile,
    of_share,
)


def compare(
    a: Histogram,
    b: Histogram,
    score: str,
    *,
    agreement: Floats | None = None,
    agreement_noise: float = 0.0,
    threshold: float = 0.5,
    level: float = 0.95,
    rows: str = "new",
    seed: int = 0,
    only: Collection[str] = (),
) -> dict[str, Estimate]:
    """Return every metric of b less that of a, on the same rows.

    Two histograms do not show how the metrics of one row go together. Intervals join those of a
    and b (Zou & Donner 2008) as if their sampling errors were independent: right or too wide
    where they are positively correlated, as those of two models on the same rows are. Where a
    calibration error may be 0 the sign of its correlation is anybody's guess, and the difference
    of the far ends is taken. `agreement` makes the difference of accuracies properly paired. Values
    are differences of the two values that `evaluate` and `accuracies` give.

    Parameters
    ----------
    a, b
        rows by score and outcome; noise of the two independent
    score, threshold, level, rows, seed, only
        as in `evaluate`
    agreement
        (2, 2) rows by whether a is correct (0 = no) and whether b is
    agreement_noise
        standard deviation of the independent noise of each

    Returns
    -------
    dict[str, Estimate]
        metric -> difference
    """
    asked, metrics = Asked(level, rows, seed=seed), metrics_of(score, threshold, only)
    first, second = ({n: m.span(h, asked) for n, m in metrics.items()} for h in (a, b))
    one, two = (estimates_of(metrics, s, h, level) for s, h in ((first, a), (second, b)))
    if agreement is not None:
        one["accuracy"], two["accuracy"] = accuracies(
            agreement, agreement_noise, level=level, rows=rows
        )
    differences = {}
    for name in [name for name in one if name in two]:
        metric = metrics[name]
        before, after = first[name], second[name]
        value = after.value - before.value
        span = mover(before, after, value, (-1.0, 1.0))
        if name == Ece.name and min(before.low, after.low) <= 0:
            span = replace(span, low=after.low - before.high, high=after.high - before.low)
        if name == "accuracy" and agreement is not None:
            span = _paired(np.asarray(agreement, np.float64), agreement_noise, rows, level)
        reach = metric.bounds[1] - metric.bounds[0]
        change = metric.estimate(span, level, a, b, bounds=(-reach, reach))
        differences[name] = _as_printed(change, one[name], two[name])
    return differences


def accuracies(
    agreement: Floats, noise: float, *, level: float = 0.95, rows: str = "new"
) -> tuple[Estimate, Estimate]:
    """Return the accuracies of both views from the paired rows, so that all three agree."""
    cells = np.asarray(agreement, np.float64)
    if cells.shape != (2, 2) or not np.isfinite(cells).all():
        raise InputError(f"agreement must be 2 x 2 finite counts, got shape {cells.shape}")
    first, second = (_accuracy(of, noise, rows, level) for of in (cells.T, cells))
    return first, second


def _accuracy(right: Floats, noise: float, rows: str, level: float) -> Estimate:
    """Return the share of the second column in (2, 2) counts, by Wilson's interval."""
    top, total, z = float(right[:, 1].sum()), float(right.sum()), normal_quantile(level)
    span = Span(math.nan, 0.0, 1.0, math.nan, math.nan, False)
    if total > 0:
        low, high = of_share(top, total, noise**2 * np.array([2.0, 2.0, 4.0]), z, rows)
        value = top / total
        by_rows = math.sqrt(max(value * (1 - value), 0.0) / total) if rows == "new" else 0.0
        by_noise = noise * math.sqrt(2 * (1 - 2 * value) + 4 * value**2) / total
        span = Span(value, float(low), float(high), by_rows, by_noise, total > FIRM * noise * 2)
    return estimate(span, 0.0, Accuracy.bounds, Accuracy.scale, level)


def _as_printed(change: Estimate, before: Estimate, after: Estimate) -> Estimate:
    """Return the difference of the two printed values, in its interval; drowned if either is."""
    value = after.value - before.value
    if not math.isfinite(value):
        return change
    return replace(
        change,
        value=value,
        low=min(change.low, value),
        high=max(change.high, value),
        drowned=change.drowned or before.drowned or after.drowned,
    )


def _paired(agreement: Floats, noise: float, rows: str, level: float) -> Span:
    """Return (only b correct - only a correct) / n, with its variance (McNemar 1947)."""
    only_b, only_a, total = agreement[0, 1], agreement[1, 0], float(agreement.sum())
    if total <= 0:
        return Span(math.nan, -1.0, 1.0, math.nan, math.nan, False)
    variance = noise**2 * np.array([2.0, 0.0, 4.0])
    moved = max(float(only_a + only_b), 0.0)
    difference = float(only_b - only_a)
    if rows == "new":  # of difference - t n; of few that moved two more (Agresti & Min 2005)
        variance += [moved + 2 * (moved < FEW), difference, total]
    z = normal_quantile(level)
    low, high = fieller(difference, total, variance, z, (-1.0, 1.0))
    value = difference / total
    by_rows = math.sqrt(max(moved / total - value**2, 0.0) / total) if rows == "new" else 0.0
    by_noise = noise * math.sqrt(2 + 4 * value**2) / total
    return Span(value, float(low), float(high), by_rows, by_noise, total > 3 * 2 * noise)
