"""Intervals of metrics read from noisy counts: sampling, noise of the release, and buckets.

They are for new rows like those that were counted, each drawn by itself. Two sources are random
and enter as variances: which rows there are (sampling), and the noise that privacy added. The
third, that a score's place in its bucket is unknown, is not random but a bound, and is added to
both ends.

A ratio top / bottom of estimates is not covered by its delta method when the bottom is uncertain.
Its interval inverts a test instead (Fieller 1954): all t for which top - t * bottom, which has
mean 0 if t is the truth, lies within z of its standard deviations. For a share of rows the
sampling variance is taken at t too, bottom * t (1 - t), which without noise is Wilson's interval.

Base classes of metrics: name, presentation, source and interval.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedcal.core.checks import fraction
from fedcal.core.numerics import Floats
from fedcal.metrics.histogram import Histogram

CLIPPED = "clipping may shift it far"
"""Warning of an interval that does not contain the bias of clipping whole clients."""

HIDES = "noise hides it"
"""Text in place of a value that noise drowns."""


def beyond(excluded: Sequence[str]) -> str:
    """Return a sentence on errors outside all intervals, after a space; "" if there are none."""
    return f" No interval contains {' or '.join(excluded)}." if excluded else ""


FIRM = 3.0
"""Noise standard deviations that a denominator must lie above 0."""

FEW = 30.0
"""Rows or events below which an interval is widened for small counts."""

DROWNED = 0.25
"""A metric is drowned if noise alone gives a half-width above this share of its `scale`."""


@dataclass(frozen=True)
class Estimate:
    """One metric of a release, with its uncertainty.

    Attributes
    ----------
    value
        value on the pooled rows, as estimated under the noise; NaN where it is undefined
    low, high
        interval of the estimand, binning included; it holds the value
    sampling, noise
        standard deviations that the choice of rows and the release's noise give the value
    binning
        largest distance to the value of the rows themselves, in finer buckets
    drowned
        the noise hides the value, which is then not shown
    warning
        why the interval may be short, for the same line of every output; "" = it is not
    """

    value: float
    low: float
    high: float
    sampling: float
    noise: float
    binning: float
    drowned: bool
    warning: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers; None for a drowned value and for anything not finite."""
        record: dict[str, Any] = {
            name: number if math.isfinite(number) else None
            for name, number in vars(self).items()
            if name not in ("drowned", "warning")
        }
        if self.drowned:
            record["value"] = None
        record["drowned"] = self.drowned
        return {**record, "warning": self.warning} if self.warning else record


def from_json(record: Mapping[str, Any]) -> Estimate:
    """Return the estimate from a dict of `to_json`, with NaN for None."""
    numbers: dict[str, Any] = {name: math.nan if x is None else x for name, x in record.items()}
    return Estimate(**numbers)


@dataclass(frozen=True)
class Span:
    """An interval without binning, and its parts.

    `firm` = no denominator may be 0; `hidden` = noise alone may have made the value.
    """

    value: float
    low: float
    high: float
    sampling: float
    noise: float
    firm: bool = True
    hidden: bool = False


def estimate(
    span: Span, binning: float, bounds: tuple[float, float], scale: float, level: float
) -> Estimate:
    """Return the span widened by its binning, clipped to the metric's range.

    Parameters
    ----------
    span
        interval from sampling and noise
    binning
        bound on the change that finer buckets could make
    bounds
        smallest and largest value of the metric; infinite where it has none
    scale
        difference of two values of the metric that is large
    level
        confidence level of the interval
    """
    if not math.isfinite(span.value):
        return Estimate(math.nan, *bounds, math.nan, math.nan, math.nan, True)
    low, high = (float(np.clip(end, *bounds)) for end in (span.low - binning, span.high + binning))
    value = float(np.clip(span.value, *bounds))
    drowned = not span.firm or normal_quantile(level) * span.noise > DROWNED * scale
    return Estimate(
        value, min(low, value), max(high, value), span.sampling, span.noise, binning, bool(drowned)
    )


def fieller(
    top: ArrayLike,
    bottom: ArrayLike,
    variance: Floats,
    z: float,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> tuple[Floats, Floats]:
    """Return the hull, within bounds, of t with (top - t bottom)**2 <= z**2 Var(top - t bottom).

    Parameters
    ----------
    top, bottom
        (...) estimates whose ratio is wanted
    variance
        (3, ...): v0, v1, v2 of Var(top - t bottom) = v0 - 2 t v1 + t**2 v2
    z
        standard normal quantile
    bounds
        smallest and largest ratio: the result where the bottom may be 0

    Returns
    -------
    tuple[Floats, Floats]
        low and high, (...)
    """
    x, y = np.asarray(top, np.float64), np.asarray(bottom, np.float64)
    a, b, c = y * y - z**2 * variance[2], x * y - z**2 * variance[1], x * x - z**2 * variance[0]
    sure = (a > 0) & (y > 0)
    divisor = np.where(sure, a, 1.0)
    half = np.sqrt(np.maximum(b * b - a * c, 0.0))
    low = np.where(sure, (b - half) / divisor, bounds[0])
    high = np.where(sure, (b + half) / divisor, bounds[1])
    return np.clip(low, *bounds), np.clip(high, *bounds)


def of_share(
    top: ArrayLike,
    bottom: ArrayLike,
    noise: Floats,
    z: float,
    trials: ArrayLike | None = None,
    unit: float = 1.0,
) -> tuple[Floats, Floats]:
    """Return `fieller` for fractions of rows: sampling has the variance trials t (1 - t).

    Where few rows are counted, or few are not, their number is whole: half a row (Yates 1934).

    Parameters
    ----------
    top, bottom, z
        as in `fieller`
    noise
        (3, ...) coefficients of the noise's variance
    trials
        None = the bottom
    unit
        addition of one row to the top
    """
    x, y = np.asarray(top, np.float64), np.asarray(bottom, np.float64)
    of = np.asarray(y if trials is None else trials, np.float64)
    variance = noise + np.stack([np.zeros_like(of), -of / 2, -of])
    half = np.where(np.minimum(x, y - x) < FEW, unit / 2, 0.0)
    (low, _), (_, high) = (fieller(x + side, y, variance, z) for side in (-half, half))
    return low, high


def warned(estimates: Mapping[str, Estimate], excluded: Sequence[str]) -> dict[str, Estimate]:
    """Return the estimates, each with the warning that follows from excluded errors.

    Parameters
    ----------
    estimates
        by name
    excluded
        sources of error that no interval contains, in words
    """
    clipped = CLIPPED if any("clipping" in source for source in excluded) else ""
    return {
        name: replace(e, warning="; ".join(filter(None, (clipped, e.warning))))
        for name, e in estimates.items()
    }


def normal_quantile(level: float) -> float:
    """Return z of a two-sided interval: 1.96 for a level of .95.

    Raises InputError if the level is not in (0, 1).
    """
    return NormalDist().inv_cdf(0.5 + fraction("level", level) / 2)


def difference(first: Span, second: Span) -> Span:
    """Return the second less the first of two independent metrics, from the intervals of both.

    Zou & Donner 2008 (method of variance estimates recovery): keeps how lopsided they are.
    """
    value = second.value - first.value
    low = value - math.hypot(second.value - second.low, first.high - first.value)
    high = value + math.hypot(second.high - second.value, first.value - first.low)
    sampling = math.hypot(first.sampling, second.sampling)
    noise = math.hypot(first.noise, second.noise)
    return Span(value, low, high, sampling, noise, first.firm and second.firm)


@dataclass(frozen=True)
class IntervalOptions:
    """Request for an interval.

    Attributes
    ----------
    level
        confidence level of the interval alone
    seed, what
        random seed and name of simulated noise; the same two give the same bits

    Raises
    ------
    InputError
        If the level is not in (0, 1).
    """

    level: float = 0.95
    seed: int = 0
    what: str = ""

    def __post_init__(self) -> None:
        normal_quantile(self.level)

    @property
    def z(self) -> float:
        """Standard normal quantile of the level."""
        return normal_quantile(self.level)


@dataclass(frozen=True)
class Metric(ABC):
    """A metric of one histogram of rows by score and outcome.

    Attributes
    ----------
    name
        in its registry, in results and in files
    bounds
        smallest and largest value
    scale
        a difference between two values that is large: noise of a quarter of it drowns the metric
    scores
        scores that have it, of `positive` and `confidence`
    in_groups
        whether it is reported for each group of rows as well
    cut
        name of the metric of scores cut at 1e-4 that stands for this one of their logarithms where
        tails were not counted in nodes, or noise hides them; "" = there is none
    threshold
        rows with a score from here on (at 1/2: above it) are predicted positive; for the metrics of
        predictions
    """

    name: ClassVar[str]
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    scale: ClassVar[float] = 1.0
    scores: ClassVar[tuple[str, ...]] = ("positive", "confidence")
    in_groups: ClassVar[bool] = False
    cut: ClassVar[str] = ""
    threshold: float = 0.5

    @abstractmethod
    def value(self, h: Histogram) -> float:
        """Return the metric's value; NaN where a denominator is not above 0."""

    @abstractmethod
    def span(self, h: Histogram, asked: IntervalOptions) -> Span:
        """Return the interval from sampling and noise, without binning."""

    def binning(self, h: Histogram) -> float:
        """Return the largest change that finer buckets of the same rows could show."""
        return 0.0

    def warning(self, h: Histogram) -> str:
        """Return the reason why the interval may be too short; "" = none."""
        return ""

    def no_span(self) -> Span:
        """Return the interval of a metric without a value."""
        return Span(math.nan, *self.bounds, math.nan, math.nan, False)

    def estimate(
        self,
        span: Span,
        level: float,
        *histograms: Histogram,
        bounds: tuple[float, float] | None = None,
    ) -> Estimate:
        """Return a span widened by its histograms' binning; bounds None = the metric's."""
        binning = math.nan
        if math.isfinite(span.value):
            binning = sum(self.binning((self.cut and h.parted) or h) for h in histograms)
        return estimate(span, binning, bounds or self.bounds, self.scale, level)
