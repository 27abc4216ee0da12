"""Base classes of metrics: name, presentation, source and interval."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.intervals import (
    Estimate,
    Span,
    check_rows,
    estimate,
    normal_quantile,
)


@dataclass(frozen=True)
class Asked:
    """Request for an interval.

    Attributes
    ----------
    level
        confidence level of the interval alone
    rows
        `new` rows like these, each drawn independently, or `these` alone, where only noise and
        buckets make a value uncertain
    seed, what
        random seed and name of simulated noise; the same two give the same bits

    Raises
    ------
    InputError
        If the level is not in (0, 1), or `rows` is another word.
    """

    level: float = 0.95
    rows: str = "new"
    seed: int = 0
    what: str = ""

    def __post_init__(self) -> None:
        normal_quantile(self.level)
        check_rows(self.rows)

    @property
    def z(self) -> float:
        """Standard normal quantile of the level."""
        return normal_quantile(self.level)


class Described(ABC):
    """Base of metrics: name, heading and range, whatever the metric is computed from.

    Attributes
    ----------
    name
        in its registry, in results and in files
    heading
        heading in tables and figures, with its unit; "" = its name
    of_score
        score -> heading, where the metric's meaning depends on the score
    bounds
        smallest and largest value
    scale
        a difference between two values that is large: noise of a quarter of it drowns the metric
    """

    name: ClassVar[str]
    heading: ClassVar[str] = ""
    of_score: ClassVar[Mapping[str, str]] = {}
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    scale: ClassVar[float] = 1.0


@dataclass(frozen=True)
class Metric(Described):
    """A metric of one histogram of rows by score and outcome.

    Attributes
    ----------
    scores
        scores that have it, of `positive` and `confidence`
    in_groups
        whether it is reported for each group of rows as well
    of_choice
        whether a chosen threshold comes with it
    at_threshold
        whether it depends on the threshold
    cut
        name of the metric of scores cut at 1e-4 that stands for this one of their logarithms where
        tails were not counted in nodes, or noise hides them; "" = there is none
    threshold
        rows with a score from here on (at 1/2: above it) are predicted positive; for the metrics of
        predictions
    """

    scores: ClassVar[tuple[str, ...]] = ("positive", "confidence")
    in_groups: ClassVar[bool] = False
    of_choice: ClassVar[bool] = False
    at_threshold: ClassVar[bool] = False
    cut: ClassVar[str] = ""
    threshold: float = 0.5

    @abstractmethod
    def value(self, h: Histogram) -> float:
        """Return the metric's value; NaN where a denominator is not above 0."""

    @abstractmethod
    def span(self, h: Histogram, asked: Asked) -> Span:
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
        known = math.isfinite(span.value)
        binning = (
            sum(self.binning((self.cut and h.parted) or h) for h in histograms)
            if known
            else math.nan
        )
        return estimate(span, binning, bounds or self.bounds, self.scale, level)
