"""Binning calibrators: histogram binning, BBQ, and their weighted form.

Each of them ends as a table: for each class (for two classes: for class 1 only) and each of
2**M fine bins of the predicted probability, the calibrated one. Rows are then normalised over
classes; a row whose entries are all 0 keeps the model's own probabilities.

Sources: Zadrozny & Elkan 2002; Naeini et al. 2015; Maddock et al., Algorithm 1 and B.3 to B.5.

Noisy counts below 0 count as 0. `shrunk` knows their noise: it merges fine bins first, so that
noise of both signs cancels, and mixes in the model's own probabilities where little is known.
Elsewhere `norm_sub` takes what is cut from the other counts.

Histogram binning of the confidence in the predicted class (Luo et al., C.2.3).

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

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.calibrators.base import Calibrator
from fedcal.core.checks import InputError, integer, one_of
from fedcal.core.numerics import Floats, Integers, Kind, override, probs_of, row_max, row_sum
from fedcal.core.options import array
from fedcal.metrics.binning import Counts, bin_index, cells_of, one_vs_rest, outcome_cells, tables


def norm_sub(counts: Floats) -> Floats:
    """Return non-negative counts with each row's total (Norm-Sub; Wang et al. 2020, section 4).

    Repeat: cut negative counts to 0, subtract the excess of the total evenly from the positive
    ones; until none is negative. It ends at max(x - t, 0) with the one t that keeps the total, the
    Euclidean projection onto {x >= 0, sum x = total}; t is found by sorting.

    Parameters
    ----------
    counts
        (..., bins) noisy counts, finite

    Returns
    -------
    Floats
        (..., bins), all >= 0. A row without negative counts keeps every bit; one whose total is
        not positive becomes zero: there is nothing to share out. Equal counts stay equal and
        larger ones do not become smaller than others.
    """
    total = counts.sum(axis=-1, keepdims=True)
    falling = -np.sort(-counts, axis=-1)
    shares = (np.cumsum(falling, axis=-1) - total) / np.arange(1, counts.shape[-1] + 1)
    last = np.maximum((falling > shares).sum(axis=-1, keepdims=True) - 1, 0)
    moved = np.maximum(counts - np.take_along_axis(shares, last, axis=-1), 0.0)
    negative = (counts < 0).any(axis=-1, keepdims=True)
    return np.where(negative, np.where(total > 0, moved, 0.0), counts)


Rows = Literal["all", "changed"]
Estimate = Literal["shrunk", "posterior", "share"]


class _Binning(Calibrator):
    """A table over 2**M bins, made from two histograms per class."""

    parameters = ("table",)
    default_bins: ClassVar[int] = 2**7

    def __init__(self, table: ArrayLike | None = None, classes: int = 0) -> None:
        self.table: Floats = np.zeros((0, 0))
        if table is not None:
            self.classes = integer("classes", classes, 2)
            self.table = array("a binning table", table, (tables(classes), None), 0, 1)

    @classmethod
    def from_histograms(
        cls, positive: Floats, negative: Floats, classes: int, estimate: Estimate = "posterior"
    ) -> Self:
        """Return the calibrator for (tables, bins) counts, which may be noisy or negative.

        (1, bins) counts, pooled over classes, make one table that every class uses.
        Negative counts are cut before bins are merged, so that the sparse bins of noise look
        alike, and BBQ's evidence cannot mistake one for signal. `estimate` is BBQ's.
        """
        table = cls._table(np.maximum(positive, 0.0), np.maximum(negative, 0.0), estimate)
        if len(table) == 1:
            table = np.repeat(table, tables(classes), axis=0)
        return cls(table, classes)

    @staticmethod
    @abstractmethod
    def _table(positive: Floats, negative: Floats, estimate: Estimate) -> Floats:
        """Return the table of counts >= 0."""

    def _fit(self, z: Floats, y: Integers) -> None:
        """Count the pooled rows and make the table."""
        bins, size = self.default_bins, 2 * tables(z.shape[1]) * self.default_bins
        counts = np.bincount(cells_of(probs_of(self.input, z), y, bins).ravel(), minlength=size)
        positive, negative = counts.astype(np.float64).reshape(2, -1, bins)
        self.table = self.from_histograms(positive, negative, z.shape[1]).table

    def _predict(self, logits: Floats, input: Kind) -> Floats:
        """Return the table's entries, normalised."""
        probs = probs_of(input, logits)
        return normalised(self.scores(probs), probs, input)

    def scores(self, probs: Floats) -> Floats:
        """Return the table's entry for each predicted probability, not normalised, (n, c)."""
        entry = self.entries(self.table, probs)
        return np.concatenate([1.0 - entry, entry], axis=1) if self.classes == 2 else entry

    @staticmethod
    def entries(table: Floats, probs: Floats) -> Floats:
        """Return what a (tables, bins) array has for each predicted probability, (n, tables)."""
        count, bins = table.shape
        return np.asarray(
            table.ravel()[bin_index(one_vs_rest(probs), bins) + np.arange(count) * bins]
        )


class HistogramBinning(_Binning):
    """P / (P + N) in each bin; an empty bin returns its midpoint (FedBin's calibrator)."""

    kind = "histogram-binning"

    @staticmethod
    def _table(positive: Floats, negative: Floats, estimate: Estimate) -> Floats:
        """Return the table; no prior."""
        return _ratio(positive, positive + negative)


def _ratio(part: Floats, total: Floats) -> Floats:
    """Return part / total in each bin, or the midpoint of an empty one, (..., bins)."""
    bins = part.shape[-1]
    midpoints = np.broadcast_to((np.arange(bins) + 0.5) / bins, part.shape)
    return np.asarray(np.divide(part, total, out=midpoints.copy(), where=total > 0))


class BBQ(_Binning):
    """Bayesian binning: histograms of 2, 4, ..., 2**M bins, averaged by their evidence.

    Model e merges the fine bins to B = 2**e, has prior counts alpha_b = (2/B) p_b and
    beta_b = (2/B)(1 - p_b) with p_b the bin's midpoint, and weighs with its marginal likelihood
    (Naeini et al. 2015; Maddock et al., B.4, with N' = 2 and a uniform prior over models). What is
    averaged is each model's posterior mean (P_b + alpha_b) / (P_b + N_b + 2/B), which is ours for
    the federated protocol: Maddock et al. average the shares P_b / (P_b + N_b) (B.3, B.4), the
    `estimate` "share"; of an empty bin it takes the midpoint.
    """

    kind = "bbq"

    @staticmethod
    def _table(positive: Floats, negative: Floats, estimate: Estimate) -> Floats:
        """Return the mixture of all models, in the fine bins."""
        from scipy.special import gammaln

        fine = positive.shape[1]
        scores, means = [], []
        for bins in _binnings(fine):
            p, n = (x.reshape(len(x), bins, -1).sum(axis=2) for x in (positive, negative))
            prior, midpoint = 2.0 / bins, (np.arange(bins) + 0.5) / bins
            alpha, beta = prior * midpoint, prior * (1.0 - midpoint)
            evidence = (
                (gammaln(prior) - gammaln(p + n + prior))
                + (gammaln(p + alpha) - gammaln(alpha))
                + (gammaln(n + beta) - gammaln(beta))
            )
            scores.append(evidence.sum(axis=1))
            mean = _ratio(p, p + n) if estimate == "share" else (p + alpha) / (p + n + prior)
            means.append(np.repeat(mean, fine // bins, axis=1))
        mixture = (_averaging(scores)[:, :, None] * np.stack(means)).sum(axis=0)
        return np.asarray(np.minimum(mixture, 1.0))  # weights may sum to 1 + an ulp


class WeightedBinning(Calibrator):
    """A binning calibrator mixed with the model's own probabilities, class by class.

    g~_j = a_j g_j + (1 - a_j) p_j, then normalised (Maddock et al., section 4.1 and B.5).

    Parameters
    ----------
    base
        a fitted HistogramBinning or BBQ
    weights
        (tables,) a_j in [0, 1], or (tables, bins), one for each bin
    rows
        mix in "all" rows, or only where the base calibrator has "changed" the prediction
    """

    kind = "weighted-binning"

    def __init__(
        self,
        base: HistogramBinning | BBQ | None = None,
        weights: ArrayLike | None = None,
        rows: Rows = "all",
    ) -> None:
        self.base: HistogramBinning | BBQ = BBQ() if base is None else base
        one_of("rows", rows, get_args(Rows))
        self.rows = rows
        self.classes, self.input = self.base.classes, self.base.input
        self.weights: Floats = np.ones(len(self.base.table))
        if weights is not None:
            shape = self.base.table.shape[: max(1, np.ndim(weights))]
            self.weights = array("weights of tables", weights, shape, 0, 1)

    def _fit(self, z: Floats, y: Integers) -> None:
        """Fit on pooled rows: all are in the histograms, so each weight is 1."""
        self.base.input = self.input
        self.base._fit(z, y)
        self.base.classes = z.shape[1]
        self.weights = np.ones(len(self.base.table))

    def _predict(self, logits: Floats, input: Kind) -> Floats:
        """Return the table's entries mixed with the model's probabilities, normalised."""
        probs = probs_of(input, logits)
        g, a = self.base.scores(probs), self.weights
        a = self.base.entries(a, probs) if a.ndim == 2 else a
        mixed = normalised(a * g + (1.0 - a) * probs, probs, input)
        if self.rows == "all":
            return mixed
        plain = normalised(g, probs, input)
        same = plain.argmax(axis=1) == probs.argmax(axis=1)
        return np.where(same[:, None], plain, mixed)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the base's arrays, `weights`, and `rows` () and `base` () as text."""
        texts = {"rows": np.array(self.rows), "base": np.array(self.base.kind)}
        return self.base.arrays() | {"weights": self.weights} | texts

    @classmethod
    @override
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        bases = {k.kind: k for k in (HistogramBinning, BBQ)}
        base = bases[one_of("base", str(arrays["base"]), bases)]
        rows = one_of("rows", str(arrays["rows"]), get_args(Rows))
        return cls(base.from_arrays(arrays), arrays["weights"], rows)


def normalised(g: Floats, probs: Floats, input: Kind) -> Floats:
    """Divide rows of g by their sum; in place of a row that sums to 0 that of `probs`."""
    total = row_sum(g)[:, None]
    empty = total <= 0.0
    own = probs / row_sum(probs)[:, None] if input == "probs" else probs
    return np.where(empty, own, g / np.where(empty, 1.0, total))


def noise_weight(positive_total: Floats, std: Floats, bins: int) -> Floats:
    """Return a_j under DP: signal over the noise expected in a histogram (B.5).

    Parameters
    ----------
    positive_total
        (tables,) sum over bins of the *uncut* noisy positives; cut ones would make
        the weight of pure noise about 1/2
    std
        (tables,) of the accumulated noise in one bin; 0 before anything is released: weight 0
    """
    noise = math.sqrt(2 / math.pi) * std * bins
    share = np.divide(positive_total, noise, out=np.zeros_like(noise), where=noise > 0)
    return np.asarray(np.clip(share, 0.0, 1.0))


PRIOR_ROWS = 50.0
"""In `shrunk`, shares may be as far from the model's probabilities as those of so many rows."""

TINY = 1e-300
"""Instead of 0 in a divisor."""


def shrunk(p: Floats, n: Floats, var_p: Floats, var_n: Floats) -> tuple[Floats, Floats]:
    """Return a table, and the weight of each entry, from counts with known noise (ours).

    Each binning of BBQ has for a merged bin with counts P and N, cut at 0, the share
    v = P / (P + N) and the weight

        a = S^2 s / (S^2 s + 50 noise)              signal^2 / (signal^2 + noise^2)
        S^2 = (P + N)^2 - var P - var N             debiased, at least 0
        noise = (1 - v)^2 var P + v^2 var N         of (1 - v) P - v N, which is 0 on average
        s = (P + 1) (N + 1) / (P + N + 2)^2         v (1 - v) by the rule of succession

    as if v were off the model's probability by about sqrt(s / 50), as far as 50 rows may be. With
    ever less noise it is 1, and BBQ is left. The binnings, and the model itself with half of the
    prior, are averaged by their likelihood of the fine counts, each bin at its most likely number
    of rows, times (1 + k / 50)^(-1/2) for each merged bin, k = S^2 s / ((P + N) s + noise).

    Parameters
    ----------
    p, n
        (tables, bins) noisy counts, uncut
    var_p, var_n
        (tables, bins) variances of their noise

    Returns
    -------
    tuple[Floats, Floats]
        (tables, bins) each: probabilities, and weights against the model's own
    """
    fine = p.shape[1]
    binnings, low = _binnings(fine), np.arange(fine) / fine
    rows = np.maximum(p, 0.0) + np.maximum(n, 0.0)
    own = np.clip(_ratio(np.maximum(p, 0.0), rows), low, low + 1.0 / fine)  # the model's, in a bin
    scores = [_log_likelihood(own, p, n, var_p, var_n) + math.log(len(binnings))]
    shares, weights = [own], [np.zeros_like(own)]
    for bins in binnings:
        merged = np.stack([p, n, var_p, var_n]).reshape(4, len(p), bins, -1).sum(axis=3)
        positive, negative, noise_p, noise_n = np.maximum(merged, 0.0)
        rows = positive + negative
        v = _ratio(positive, rows)
        noise = (1.0 - v) ** 2 * noise_p + v**2 * noise_n
        spread = (positive + 1.0) * (negative + 1.0) / (rows + 2.0) ** 2
        signal = np.maximum(rows**2 - noise_p - noise_n, 0.0) * spread
        known = signal / np.maximum(rows * spread + noise, TINY)
        occam = 0.5 * np.log1p(known / PRIOR_ROWS).sum(axis=1)
        weight = signal / np.maximum(signal + PRIOR_ROWS * noise, TINY)
        share, weight = (np.repeat(x, fine // bins, axis=1) for x in (v, weight))
        scores.append(_log_likelihood(share, p, n, var_p, var_n) - occam)
        shares.append(share)
        weights.append(weight)
    parts = _averaging(scores)[:, :, None] * np.stack(weights)
    weight, table = parts.sum(axis=0), (parts * np.stack(shares)).sum(axis=0)
    table = np.divide(table, weight, out=own, where=weight > TINY)
    return np.minimum(table, 1.0), np.minimum(weight, 1.0)


def _log_likelihood(v: Floats, p: Floats, n: Floats, var_p: Floats, var_n: Floats) -> Floats:
    """Return that of noisy counts (tables, bins) if shares are v, at the best numbers of rows."""
    noise = (1.0 - v) ** 2 * var_p + v**2 * var_n
    both = np.maximum(noise + np.maximum(p + n, 0.0) * v * (1.0 - v), TINY)
    misfit = ((1.0 - v) * p - v * n) ** 2 / both + np.log(both / np.maximum(noise, TINY))
    return np.asarray(-0.5 * misfit.sum(axis=1))


def _binnings(fine: int) -> list[int]:
    """Return BBQ's numbers of bins, 2, 4, ..., up to a power of two."""
    if 2 ** (fine.bit_length() - 1) != fine or fine < 2:
        raise InputError(f"BBQ needs a power of two of bins, got {fine}")
    return [2**e for e in range(1, fine.bit_length())]


def _averaging(scores: list[Floats]) -> Floats:
    """Return weights, (models, tables), from log-evidences, (tables,) of each model."""
    weight = np.exp(np.stack(scores) - np.max(scores, axis=0))
    return np.asarray(weight / weight.sum(axis=0))


MARGIN = 1e-6
"""Relative margin of the predicted class over every other class."""


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
    above, below = np.maximum(correct, 0.0), np.maximum(wrong_or_all, 0.0)
    if counts == "correct_wrong":
        below = above + below
    return np.asarray(np.minimum(_ratio(above, below), 1.0))


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
        (n, c) by the rule of top-label binning at the top of this module; no prediction changes
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
            self.classes = integer("classes", classes, 2)
            self.values = array("values of bins", values, (None,), 0, 1)

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
