"""The threshold of a score for a wanted precision or recall, from a release.

Thresholds are edges of buckets; a row is predicted positive from the threshold on, at 1/2 above it,
as by argmax. Precision is tp / (tp + fp), recall tp / (tp + fn); sums of counts, so each condition
is one on a sum with known noise: tp - wanted (tp + fp) >= 0, and tp - wanted (tp + fn) >= 0.

Who takes the best of many thresholds takes the luckiest, too. So the intervals of the chosen one
hold for all thresholds at once: instead of 1.96, the quantile of the largest studentised error over
all thresholds, simulated with the release's own noise.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, fraction, one_of
from fedcal.core.numerics import Floats, Purpose, stream
from fedcal.evaluation.estimates import METRICS, evaluate
from fedcal.evaluation.estimators.metrics import Predictions
from fedcal.evaluation.histogram import Histogram, from_each_edge, monotone_counts
from fedcal.evaluation.intervals import FIRM, Estimate, IntervalOptions

Goal = Literal["precision", "recall"]

DRAWS = 1000
SHOWN = tuple(name for name, metric in METRICS.items() if metric.of_choice)
"""Metrics that a chosen threshold comes with."""


@dataclass(frozen=True)
class Threshold:
    """A chosen threshold and its expected metrics.

    Attributes
    ----------
    value
        rows with a score from here on are predicted positive; an edge of a bucket
    goal, wanted
        goal and wanted value, which the estimate reaches; the truth is below it every other time
    estimates
        metrics `SHOWN`; the intervals hold for all thresholds at once
    """

    value: float
    goal: Goal
    wanted: float
    estimates: Mapping[str, Estimate]

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as plain numbers."""
        shown = {name: estimate.to_json() for name, estimate in self.estimates.items()}
        return {**vars(self), "estimates": shown}


def goal_of(text: str) -> tuple[Goal, float]:
    """Return goal and wanted value of a text such as "recall>=0.95"."""
    goal, sign, value = (part.strip() for part in text.partition(">="))
    try:
        wanted = float(value)
    except ValueError:
        sign = ""
    if not sign or goal not in get_args(Goal):
        raise InputError(f"at must be recall>=SHARE or precision>=SHARE, got {text!r:.80}")
    return one_of("goal", goal, get_args(Goal)), wanted


class Flagged(Predictions):
    """Share of rows predicted positive."""

    name = "flagged"
    top, bottom = (0, 1, 0, 1), (1, 1, 1, 1)


def at_threshold(h: Histogram, threshold: float, *, level: float = 0.95) -> dict[str, Estimate]:
    """Return sensitivity, specificity, precision and fraction flagged of a `positive` score.

    Raises InputError if the threshold is not an edge of a bucket.
    """
    flagged = Flagged(threshold)
    only = ("recall", "specificity", "precision")
    estimates = evaluate(h, "positive", threshold=threshold, level=level, only=only)
    share = flagged.estimate(flagged.span(h, IntervalOptions(level)), level, h)
    return {**{name: estimates[name] for name in only}, flagged.name: share}


def choose_threshold(
    h: Histogram, goal: Goal, wanted: float, *, level: float = 0.95, seed: int = 0
) -> Threshold:
    """Choose the threshold that reaches a goal at the least cost to other metrics.

    Parameters
    ----------
    h
        rows by `positive` score and outcome
    goal
        `precision` = the lowest threshold, so the highest recall, with at least that precision;
        `recall` = the highest threshold with at least that recall
    wanted
        the precision or recall, in (0, 1), that the estimate reaches
    level
        confidence level of the intervals
    seed
        random seed of simulated errors

    Raises
    ------
    InputError
        A value that is not allowed, or a goal out of reach: the message states the value of the
        best threshold.
    """
    one_of("goal", goal, get_args(Goal))
    fraction(f"the wanted {goal}", wanted)
    fraction("level", level)
    bottom, firm = _bottom(h, goal)
    reached = np.flatnonzero(firm & (_sums(h.counts, _weights(goal, wanted)) >= 0.0))
    if not len(reached):
        positives = from_each_edge(h.counts)[1, :-1]
        share = np.where(firm, positives / np.where(firm, bottom, 1.0), -np.inf)
        best = int(share.argmax())
        why = f"the highest estimate is {share[best]:.6g}, at {h.edges[best]:g}"
        why = why if firm.any() else "noise drowns the counts"
        raise InputError(f"no threshold reaches a {goal} of {wanted:g}: {why}")
    value = float(h.edges[int(reached[0] if goal == "precision" else reached[-1])])
    at_once = max(level, math.erf(_critical(h, goal, level, seed) / math.sqrt(2)))
    estimates = evaluate(h, "positive", threshold=value, level=at_once, only=SHOWN)
    return Threshold(value, goal, float(wanted), estimates)


# --- sums over the rows from each threshold on --------------------------------------------------


Weights = tuple[Floats | float, Floats | float, Floats | float]
"""(u, v, k) of a sum u tp + v fp + k P, with P rows of outcome 1."""

_BOTTOM: Mapping[Goal, tuple[float, float, float]] = {
    "precision": (1.0, 1.0, 0.0),
    "recall": (0.0, 0.0, 1.0),
}
"""Weights of the denominator."""


def _weights(goal: Goal, wanted: Floats | float) -> Weights:
    """Return the weights of the goal's sum, tp less what is wanted of the denominator."""
    u, v, k = _BOTTOM[goal]
    return 1.0 - wanted * u, -wanted * v, -wanted * k


def _sums(counts: Floats, weights: Weights) -> Floats:
    """Return a weighted sum at each threshold, (..., 2, buckets) -> (..., buckets)."""
    (u, v, k), s = weights, from_each_edge(counts)[..., :-1]
    return np.asarray(u * s[..., 1, :] + v * s[..., 0, :] + k * s[..., 1, :1])


def _bottom(h: Histogram, goal: Goal) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the denominator at each threshold, and whether it exceeds its noise, (buckets,)."""
    (u, v, k), s = _BOTTOM[goal], from_each_edge(h.root.T)[:, :-1].T
    noise = np.sqrt(np.square(u * s + k * s[:1]).sum(1) + np.square(v * s).sum(1))
    bottom = _sums(h.counts, _BOTTOM[goal])
    return bottom, (bottom > 0) & (bottom > FIRM * noise)


def _critical(h: Histogram, goal: Goal, level: float, seed: int) -> float:
    """Return the quantile of the largest absolute studentised error over thresholds."""
    rng = stream(seed, Purpose.BOOTSTRAP, 0, "thresholds")
    counts = np.maximum(monotone_counts(h), 0.0)
    errors = rng.standard_normal((DRAWS, 2, h.buckets)) * np.sqrt(counts)
    errors += h.draws(rng, DRAWS)
    bottom, firm = _bottom(h, goal)
    share = from_each_edge(h.counts)[1, :-1] / np.where(bottom > 0, bottom, 1.0)
    sums = _sums(errors, _weights(goal, np.clip(share, 0.0, 1.0)))
    std = sums.std(axis=0)
    seen = (std > 0) & firm
    if not seen.any():
        return 0.0
    return float(np.quantile(np.abs(sums[:, seen] / std[seen]).max(axis=1), level))
