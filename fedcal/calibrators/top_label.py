"""Histogram binning of the confidence in the predicted class (Luo et al., C.2.3).

Only the confidence of the prediction is calibrated: the share of correct predictions among the
rows whose confidence fell into the same bin. What the other classes get the paper leaves open;
here the prediction never changes, and

* the predicted class (the first largest logit) gets its bin's value v;
* the others share 1 - v in proportion to p. Where the largest of these shares would exceed v,
  the shares are mixed with even ones, with the smallest weight that keeps each of them below v;
* v itself is raised to 1/c where it is lower: the largest of c probabilities cannot be smaller.
  Such a value means that another class should be predicted, but not which.

"Below" is by one part in 10^6, which single precision still resolves.
"""

from __future__ import annotations

from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from fedcal.calibrators.base import Calibrator
from fedcal.core.checks import one_of, whole
from fedcal.core.errors import InputError
from fedcal.core.numerics import row_max, row_sum
from fedcal.core.scores import Kind, probs_of
from fedcal.core.types import Floats, Integers
from fedcal.metrics.binning import bin_index

Counts = Literal["correct_wrong", "correct_total"]

MARGIN = 1e-6
"""Relative margin of the predicted class over every other class."""

TINY = 1e-300
"""Instead of 0 in a divisor."""


def top_confidence(shifted_logits: Floats) -> Floats:
    """Return each row's largest probability, 1 / sum_j exp(z_j - max z), (n, c) -> (n,)."""
    return np.asarray(1.0 / row_sum(np.exp(shifted_logits)))


def outcome_cells(probs: Floats, labels: Integers, bins: int) -> Integers:
    """Return each row's cell in a (2, bins) array, correct predictions first, (n,)."""
    return np.asarray(bin_index(row_max(probs), bins) + (probs.argmax(axis=1) != labels) * bins)


def least_value(classes: int) -> float:
    """Return the smallest confidence that keeps a prediction: 1/c and the margin."""
    return 1.0 / (1.0 + (classes - 1) * (1.0 - MARGIN))


def values_of(correct: Floats, wrong_or_all: Floats, counts: Counts = "correct_wrong") -> Floats:
    """Return the confidence of each bin from counts, which may be noisy or negative.

    v = correct / (correct + wrong), or, of the paper's counts, correct / total cut at 1; both of
    counts cut at 0. A bin without rows (the divisor is 0) keeps its midpoint.

    Parameters
    ----------
    correct
        (..., bins)
    wrong_or_all
        (..., bins) wrong predictions, or all, by `counts`
    """
    one_of("counts", counts, get_args(Counts))
    above, below = np.maximum(correct, 0.0), np.maximum(wrong_or_all, 0.0)
    if counts == "correct_wrong":
        below = above + below
    bins = above.shape[-1]
    values = np.broadcast_to((np.arange(bins) + 0.5) / bins, above.shape).copy()
    np.divide(above, below, out=values, where=below > 0)
    return np.asarray(np.minimum(values, 1.0))


def with_confidence(z: Floats, probs: Floats, confidence: Floats) -> Floats:
    """Return rows whose predicted class has a given probability; other classes share the rest.

    Parameters
    ----------
    z
        (n, c) logits, the first largest is the predicted class
    probs
        (n, c) softmax of them
    confidence
        (n,); raised to `least_value(c)`

    Returns
    -------
    Floats
        (n, c) by the rule at the top of this module; no prediction changes
    """
    classes = z.shape[1]
    v, even = np.maximum(confidence, least_value(classes))[:, None], 1.0 / (classes - 1)
    predicted = np.arange(classes) == z.argmax(axis=1)[:, None]
    others = np.where(predicted, 0.0, probs)
    rest = row_sum(others)[:, None]
    some = rest > 0.0
    # nothing is left of the others: they share evenly
    share = np.where(some, others / np.where(some, rest, 1.0), even)
    largest = row_max(np.where(predicted, 0.0, share))[:, None]
    excess = (1.0 - v) * largest - (1.0 - MARGIN) * v
    room = np.maximum((1.0 - v) * (largest - even), TINY)
    weight = np.clip(excess / room, 0.0, 1.0)
    return np.where(predicted, v, (1.0 - v) * (share + weight * (even - share)))


class TopLabelBinning(Calibrator):
    """A confidence for each bin of the model's own confidence; never changes a prediction.

    Parameters
    ----------
    values
        (bins,) in [0, 1], the calibrated confidence of each bin of equal width
    classes
        number of classes; 0 = not fitted yet
    """

    parameters = ("values",)
    kind = "top-label-binning"
    default_bins = 15

    def __init__(self, values: ArrayLike | None = None, classes: int = 0) -> None:
        self.values: Floats = np.zeros(0)
        if values is not None:
            self.values = np.ascontiguousarray(values, np.float64)
            self.classes = whole("classes", classes, 2)
            v = self.values
            if v.ndim != 1 or not len(v) or not ((v >= 0) & (v <= 1)).all():
                raise InputError("values of bins must be a vector of numbers within [0, 1]")

    @classmethod
    def from_counts(
        cls, correct: Floats, wrong_or_all: Floats, classes: int, counts: Counts = "correct_wrong"
    ) -> Self:
        """Return the calibrator for counts of each bin, (bins,), see `values_of`."""
        return cls(values_of(correct, wrong_or_all, counts), classes)

    def _fit(self, z: Floats, y: Integers) -> None:
        """Count the pooled rows by bin."""
        bins = self.default_bins
        cells = outcome_cells(probs_of(self.input, z), y, bins)
        counts = np.bincount(cells, minlength=2 * bins).astype(np.float64)
        self.values = self.from_counts(counts[:bins], counts[bins:], z.shape[1]).values

    def _predict(self, logits: Floats, input: Kind) -> Floats:
        """Return the bin's value for the predicted class; other classes share the rest."""
        probs = probs_of(input, logits)
        values = self.values[bin_index(row_max(probs), len(self.values))]
        return with_confidence(logits, probs, values)
