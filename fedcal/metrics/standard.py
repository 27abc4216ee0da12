"""Scores of predicted probabilities: accuracy, ECE, classwise ECE, NLL, Brier.

All are fractions (not %), all means run over rows, and bins are those of
`fedcal.metrics.binning`. Probabilities have shape (n, c) and any real dtype, or are (n,) those of
class 1 of two, and are computed with in double; labels have shape (n,) and are whole numbers in
[0, c). Each row sums to 1, up to 1e-2. Columns of a frame that are numbers are put in order; labels
may be names of its columns.
Among equal largest probabilities the first class is the predicted one (numpy's argmax): of two
classes with 1/2 each it is class 0, in evaluation, sets and `predict`, too.

Every function raises InputError if the shapes do not fit, there are no rows, a probability is
not finite or outside [0, 1] (up to 1 + 1e-3 is let through), a row does not sum to 1, or a label
is out of range.

The work is one pass over blocks of rows, so memory beyond the input stays small.

Reliability data: the sums from which calibration plots and fixed-bin scores are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core import scores
from fedcal.core.checks import InputError, damaged, integer
from fedcal.core.numerics import FLOOR, Floats, Integers
from fedcal.core.options import array
from fedcal.metrics.binning import HIGHEST, MOST_BINS, ROUNDING, bin_index

BINS = 15
"""Default number of bins (Guo et al. 2017)."""

_HIGHEST = np.float64(HIGHEST).view(np.uint64)
_BLOCK = 2**17  # entries of a block: 1 MiB
_FEW = 32  # up to so many columns, a transposed copy finds row maxima faster than argmax does
_PENDING = 2**20  # selected entries kept before they are counted


def accuracy(probs: ArrayLike, labels: ArrayLike) -> float:
    """Return the fraction of rows whose largest probability is the label's."""
    p, y = check_scored(probs, labels)
    return float(scan(p, y, top=True).hit.mean())


def ece(probs: ArrayLike, labels: ArrayLike, bins: int = BINS) -> float:
    """Return the top-label ECE, `sum_b |sum_{i in b} (correct_i - conf_i)| / n`.

    Naeini et al. 2015; Guo et al. 2017, eq. (3).
    """
    p, y = check_scored(probs, labels)
    return _ece(scan(p, y, top=True), bins)


def classwise_ece(probs: ArrayLike, labels: ArrayLike, bins: int = BINS) -> float:
    """Return the mean over classes j of the ECE of p_ij against 1{y_i = j}.

    `sum_j sum_b |sum_{i: p_ij in b} (1{y_i = j} - p_ij)| / (n c)`; Kull et al. 2019.
    """
    p, y = check_scored(probs, labels)
    cells = Cells(p.shape[1], bins)
    scan(p, y, cells=cells)
    return mean_gap(cells.gap(), p.size)


def nll(probs: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean of -ln max(p_iy, 1e-12): the floor keeps a confident error finite.

    `below_floor` counts the rows in which the floor acts.
    """
    p, y = check_scored(probs, labels)
    return _nll(scan(p, y, own=True))


def below_floor(probs: ArrayLike, labels: ArrayLike) -> int:
    """Return the number of rows whose label has a probability below 1e-12, the floor of `nll`."""
    p, y = check_scored(probs, labels)
    return int((scan(p, y, own=True).own < FLOOR).sum())


def brier(probs: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean over rows of (p_i - y_i)**2 of two classes, of more the sum over them.

    Of two, p is the probability of class 1, and the score in [0, 1]; of more it is
    sum_j (p_ij - 1{y_i = j})**2, in [0, 2] (Brier 1950). So is scikit-learn's.
    """
    p, y = check_scored(probs, labels)
    return _brier(p, y, scan(p, y, own=True, squares=True))


def summary(probs: ArrayLike, labels: ArrayLike, bins: int = BINS) -> dict[str, float]:
    """Return all of the scores above, from one pass over the rows.

    Returns
    -------
    dict[str, float]
        keys accuracy, ece, classwise_ece, nll, brier
    """
    p, y = check_scored(probs, labels)
    cells = Cells(p.shape[1], bins)
    seen = scan(p, y, own=True, top=True, squares=True, cells=cells)
    return {
        "accuracy": float(seen.hit.mean()),
        "ece": _ece(seen, bins),
        "classwise_ece": mean_gap(cells.gap(), p.size),
        "nll": _nll(seen),
        "brier": _brier(p, y, seen),
    }


def brier_of_rates(counts: ArrayLike) -> float:
    """Return the `brier` of who always says how often each class occurs, from rows by class."""
    rows = np.asarray(counts, dtype=np.float64)
    share = rows / rows.sum()
    return float((share * (1 - share)).sum() / (2 if len(share) == 2 else 1))


def mean_gap(gap: NDArray[Any], entries: int) -> float:
    """Return the sum of |gap| per entry; gap = summed confidence - correct, by bin (and class)."""
    return float(np.abs(gap).sum() / entries)


def _ece(seen: Seen, bins: int) -> float:
    _, confidence, correct = top_tables(seen, bins)
    return mean_gap(confidence - correct, len(seen.hit))


def _nll(seen: Seen) -> float:
    return float(-np.log(np.maximum(seen.own, FLOOR)).mean())


def _brier(probs: NDArray[Any], labels: Integers, seen: Seen) -> float:
    if probs.shape[1] == 2:
        return float(np.square(probs[:, 1].astype(np.float64) - labels).mean())
    others = max(seen.squares - float(np.square(seen.own).sum()), 0.0)  # rounding: not below 0
    return (others + float(np.square(1.0 - seen.own).sum())) / len(seen.own)


# -- the pass over the rows ---------------------------------------------------------------------


def check_scored(probs: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], Integers]:
    """Return probabilities and labels as matching arrays; `scan` checks the probabilities.

    Returns
    -------
    tuple[NDArray[Any], Integers]
        (n, c) of a real dtype, (n,) int64 in [0, c); n >= 1, c >= 2
    """
    p = scores.as_array("probabilities", scores.in_class_order("probabilities", probs))
    if (names := scores.own_names(probs)) is not None:
        labels = scores.places_of("labels", labels, names, p.shape, "probabilities")
    y = scores.as_array("labels", labels)
    if p.ndim == 1 and p.dtype.kind in "fiub":
        p = scores.of_both("probabilities", p[:, None])  # the labels say that each number is a row
    if p.dtype.kind not in "fiub" or p.ndim != 2 or not len(p) or p.shape[1] < 2:
        allowed = "numbers of shape (rows >= 1, classes >= 2)"
        raise InputError(f"probabilities must be {allowed}, got {p.dtype} {p.shape}")
    y = scores.per_row("labels", y, "probabilities", len(p))
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= p.shape[1]:
        raise InputError(f"labels must be whole numbers in [0, {p.shape[1]})")
    return p, y.astype(np.int64, copy=False)


@dataclass
class Seen:
    """Results of `scan`; values that were not requested mean nothing.

    own : (n,) probability of the row's label
    confidence, hit : (n,) largest probability, and whether it is the label's
    squares : sum over all entries of p_ij**2
    """

    own: Floats
    confidence: Floats
    hit: NDArray[np.bool_]
    squares: float = 0.0


def scan(
    probs: NDArray[Any],
    labels: Integers,
    *,
    own: bool = False,
    top: bool = False,
    squares: bool = False,
    cells: Cells | None = None,
) -> Seen:
    """Scan checked rows once; the flags choose what is collected, `cells` is filled.

    Raises InputError if a probability is not finite or outside [0, 1], or a row's sum is not 1.
    """
    n, c = probs.shape
    seen = Seen(np.empty(n), np.empty(n), np.empty(n, np.bool_))
    step = max(1, _BLOCK // c)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        block, y = np.ascontiguousarray(probs[rows], np.float64), labels[rows]
        if not _taken(block, y, cells):
            bad = ~((block >= -ROUNDING) & (block <= HIGHEST))
            if bad.any():
                i, j = np.argwhere(bad)[0]
                raise InputError(
                    "probabilities must be finite and in [0, 1]; "
                    f"row {start + i}, class {j} is {block[i, j]}"
                )
            block = np.maximum(block, 0.0)
            _taken(block, y, cells)
        scores.check_sums("probabilities", block, start)
        if own or top:
            mine = block.ravel().take(np.arange(0, block.size, c) + y)
            if own:
                seen.own[rows] = mine
            if top:
                seen.confidence[rows], seen.hit[rows] = _top_label(block, y, mine)
        if squares:
            seen.squares += float(np.einsum("ij,ij->", block, block))
    return seen


def _taken(block: Floats, labels: Integers, cells: Cells | None) -> bool:
    """Take rows into `cells`; False if a probability is not allowed."""
    if cells is not None:
        return cells.add(block, labels)
    return bool(block.view(np.uint64).max() <= _HIGHEST)  # see Cells.add


def top_tables(seen: Seen, bins: int) -> tuple[Integers, Floats, Integers]:
    """Count, summed confidence and correct rows by the bin of the confidence, (bins,) each."""
    index = bin_index(seen.confidence, bins)
    return (
        np.bincount(index, minlength=bins).astype(np.int64, copy=False),
        np.bincount(index, seen.confidence, bins).astype(np.float64, copy=False),
        np.bincount(index[seen.hit], minlength=bins).astype(np.int64, copy=False),
    )


def _top_label(block: Floats, labels: Integers, own: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return each row's largest probability, and whether its first class is the label."""
    m, c = block.shape
    if c <= _FEW:
        columns = np.ascontiguousarray(block.T)
        largest: Floats = columns.max(axis=0)
        if np.count_nonzero(columns == largest) == m:  # no ties: the label has it or has not
            return largest, own == largest
    predicted = block.argmax(axis=1)
    return block.ravel().take(np.arange(0, m * c, c) + predicted), predicted == labels


class Cells:
    """Sums over the entries p_ij of each class j and bin.

    Nearly all entries of a probability matrix lie in bin 0. Only those that may lie above it
    are looked at one by one; bin 0 gets the totals less the other bins (so its summed
    probability is exact to about 1e-16 of the class's total, not of itself).
    """

    def __init__(self, classes: int, bins: int) -> None:
        self.classes, self.bins = classes, integer("bins", bins, 1, MOST_BINS)
        # Below the smallest v whose float32 is not in bin 0; bin_index then decides.
        self.edge = np.float64((1.0 - 1e-6) / bins).view(np.uint64)
        self.filled = np.zeros((3, classes * bins))
        self.rows = 0
        self.probability = np.zeros(classes)
        self.correct = np.zeros(classes, np.int64)
        self.pending: list[tuple[Integers, Floats, NDArray[np.bool_]]] = []
        self.waiting = 0

    def add(self, block: Floats, labels: Integers) -> bool:
        """Take in rows, (m, classes) contiguous, (m,); False if a probability is not allowed.

        Read as unsigned integers, doubles from 0 up keep their order, and those with a minus
        sign and NaNs come after all others: one comparison finds what is above bin 0 and what is
        not allowed.
        """
        flat = block.ravel()
        at = np.flatnonzero(flat.view(np.uint64) >= self.edge)
        values = flat.take(at)
        if values.size and not (values.min() >= 0.0 and values.max() <= HIGHEST):
            return False
        self.rows += len(block)
        self.probability += _column_sums(block)
        self.correct += np.bincount(labels, minlength=self.classes)
        row = at // self.classes
        column = at - row * self.classes  # faster than %
        cell = column * self.bins + bin_index(values, self.bins)
        self.pending.append((cell, values, labels.take(row) == column))
        self.waiting += len(at)
        if self.waiting >= _PENDING:
            self._count()
        return True

    def _count(self) -> None:
        """Count what is pending: bincount is slow on few entries and many cells."""
        cell, values, correct = (
            np.concatenate(part) if len(part) > 1 else part[0]
            for part in zip(*self.pending, strict=True)
        )
        for table, weight in zip(self.filled, (None, values, correct), strict=True):
            table += np.bincount(cell, weight, table.size)
        self.pending, self.waiting = [], 0

    def tables(self) -> Floats:
        """Return count, probability and correct entries, (3, classes, bins), of all rows added."""
        if self.pending:
            self._count()
        tables = self.filled.reshape(-1, self.classes, self.bins)
        for table, total in zip(tables, (self.rows, self.probability, self.correct), strict=True):
            table[:, 0] = total - table[:, 1:].sum(axis=1)
        count, probability, _ = tables[:, :, 0]  # with a rounding error, maybe, where nothing is
        probability[:] = np.where(count > 0, np.maximum(probability, 0.0), 0.0)
        return tables

    def gap(self) -> Floats:
        """Return summed probability - correct entries, (classes, bins)."""
        _, probability, correct = self.tables()
        return np.asarray(probability - correct)


def _column_sums(block: Floats) -> Floats:
    """Sum over rows; several short rows are added as one long one, which is faster."""
    m, c = block.shape
    together = max(1, 1024 // c)
    cut = m // together * together
    long = block[:cut].reshape(-1, together * c).sum(axis=0)
    total: Floats = long.reshape(together, c).sum(axis=0) + block[cut:].sum(axis=0)
    return total


@dataclass(frozen=True, eq=False)
class Reliability:
    """Rows, summed confidence and correct rows of each bin.

    The first three are about the predicted (top) class, binned by its probability; the others
    about each class j, binned by p_ij, where "correct" means that j is the label.

    Parameters
    ----------
    count, sum_confidence, sum_correct
        (bins,) int64, float64, int64
    class_count, class_sum_confidence, class_sum_correct
        (classes, bins), likewise

    Raises
    ------
    InputError
        these are no such numbers, or not of the same rows
    """

    count: Integers
    sum_confidence: Floats
    sum_correct: Integers
    class_count: Integers
    class_sum_confidence: Floats
    class_sum_correct: Integers

    def __post_init__(self) -> None:
        for f in fields(self):
            shape = (None, None) if f.name.startswith("class_") else (None,)
            values = array(f"reliability: {f.name}", getattr(self, f.name), shape, 0)
            kind = np.float64 if "confidence" in f.name else np.int64
            object.__setattr__(self, f.name, values.astype(kind))
        shapes, bins = [getattr(self, f.name).shape for f in fields(self)], self.count.shape
        shaped = shapes == [bins] * 3 + [(max(self.classes, 2), *bins)] * 3
        counted = {*self.class_count.sum(axis=1).tolist(), int(self.class_sum_correct.sum())}
        if not shaped or self.rows < 1 or counted != {self.rows}:
            raise InputError(
                f"reliability: each of >= 2 classes must count all {self.rows} rows once, in the "
                "bins of the top label"
            )

    @classmethod
    def of(cls, probs: ArrayLike, labels: ArrayLike, bins: int = BINS) -> Self:
        """Read rows, shapes (n, c) and (n,); errors are those of `fedcal.metrics.standard`."""
        p, y = check_scored(probs, labels)
        cells = Cells(p.shape[1], bins)
        top = top_tables(scan(p, y, top=True, cells=cells), bins)
        count, confidence, correct = cells.tables()
        return cls(*top, count.astype(np.int64), confidence, correct.astype(np.int64))

    @property
    def bins(self) -> int:
        """Number of bins of equal width."""
        return len(self.count)

    @property
    def classes(self) -> int:
        """Number of classes of the model."""
        return len(self.class_count)

    @property
    def rows(self) -> int:
        """Number of rows in all bins."""
        return int(self.count.sum())

    @property
    def accuracy(self) -> float:
        """Fraction of rows whose predicted class is the label."""
        return int(self.sum_correct.sum()) / self.rows

    @property
    def ece(self) -> float:
        """ECE of all rows as in `ece`; raises InputError without rows."""
        return mean_gap(self.sum_confidence - self.sum_correct, self.rows)

    @property
    def classwise_ece(self) -> float:
        """Classwise ECE of all rows as in `classwise_ece`."""
        gap = self.class_sum_confidence - self.class_sum_correct
        return mean_gap(gap, self.rows * self.classes)

    @property
    def uncertainty(self) -> float:
        """Brier score of who always says how often each class occurs."""
        return brier_of_rates(self.class_sum_correct.sum(axis=1))

    @property
    def resolution(self) -> float:
        """Variance of the rate of an outcome between bins (Murphy 1973), summed as `brier`.

        It is 0 where all rows have the same probabilities.
        """
        rows = self.rows
        share = self.class_sum_correct.sum(axis=1, keepdims=True) / rows
        there = np.maximum(self.class_count, 1)
        apart = self.class_count * (self.class_sum_correct / there - share) ** 2
        return float(apart.sum() / rows / (2 if self.classes == 2 else 1))

    def to_json(self) -> dict[str, Any]:
        """Return the fields as (nested) lists of finite numbers, valid in strict JSON."""
        return {f.name: getattr(self, f.name).tolist() for f in fields(self)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Return the record from a dict of `to_json`; InputError for anything else."""
        with damaged("what should be a reliability record is none"):
            return cls(**record)
