"""Metrics of a release at a threshold of its score."""

from fedcal.evaluation.estimates import evaluate
from fedcal.evaluation.estimators.metrics import Predictions
from fedcal.evaluation.intervals import Estimate, IntervalOptions
from fedcal.metrics.histogram import Histogram


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
