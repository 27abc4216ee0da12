"""Reliability data: the sums from which calibration plots and fixed-bin scores are read."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcal.core.errors import InputError
from fedcal.core.scores import as_array
from fedcal.core.types import Floats, Integers
from fedcal.metrics import standard
from fedcal.metrics.binning import HIGHEST

_MOST_ROWS = 2**53


@dataclass(frozen=True, eq=False)
class Reliability:
    """Rows, summed confidence and correct rows of each bin.

    The first three are about the predicted (top) class, binned by its probability; the others
    about each class j, binned by p_ij, where "correct" means that j is the label. The arrays are
    read-only copies.

    Parameters
    ----------
    count, sum_confidence, sum_correct
        (bins,) int64, float64, int64
    class_count, class_sum_confidence, class_sum_correct
        (classes, bins), likewise

    Raises
    ------
    InputError
        no rows could have given these numbers
    """

    count: Integers
    sum_confidence: Floats
    sum_correct: Integers
    class_count: Integers
    class_sum_confidence: Floats
    class_sum_correct: Integers

    def __post_init__(self) -> None:
        for f in fields(self):
            values = _numbers(f.name, getattr(self, f.name), "confidence" not in f.name)
            object.__setattr__(self, f.name, values)
        _check("top label", 1, self.count, self.sum_confidence, self.sum_correct)
        each = (self.class_count, self.class_sum_confidence, self.class_sum_correct)
        _check("classes", 2, *each)
        same = len(self.class_count) >= 2 and self.class_count.shape[1:] == self.count.shape
        if not same or {*self.class_count.sum(axis=1).tolist(), int(each[2].sum())} != {self.rows}:
            raise InputError(
                f"reliability: each of >= 2 classes must count all {self.rows} rows once, in the "
                "bins of the top label"
            )

    @classmethod
    def of(cls, probs: ArrayLike, labels: ArrayLike, bins: int = standard.BINS) -> Self:
        """Read rows, shapes (n, c) and (n,); errors are those of `fedcal.metrics.standard`."""
        p, y = standard.check_scored(probs, labels)
        cells = standard.Cells(p.shape[1], bins)
        top = standard.top_tables(standard.scan(p, y, top=True, cells=cells), bins)
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
        """Fraction of rows whose predicted class is the label; InputError without rows."""
        return int(self.sum_correct.sum()) / self._some_rows()

    @property
    def ece(self) -> float:
        """ECE of all rows as in `scores.ece`; raises InputError without rows."""
        return standard.mean_gap(self.sum_confidence - self.sum_correct, self._some_rows())

    @property
    def classwise_ece(self) -> float:
        """Classwise ECE of all rows as in `scores.classwise_ece`; InputError without rows."""
        gap = self.class_sum_confidence - self.class_sum_correct
        return standard.mean_gap(gap, self._some_rows() * self.classes)

    @property
    def uncertainty(self) -> float:
        """Brier score of who always says how often each class occurs; InputError without rows."""
        self._some_rows()
        return standard.brier_of_rates(self.class_sum_correct.sum(axis=1))

    @property
    def resolution(self) -> float:
        """How far the outcome of bins differs from that of all rows (Murphy 1973), as `brier`.

        It is 0 where all rows have the same probabilities. InputError without rows.
        """
        rows = self._some_rows()
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
        names = [f.name for f in fields(cls)]
        if not isinstance(record, Mapping) or set(record) != set(names):
            raise InputError(f"a reliability record has exactly the keys {', '.join(names)}")
        return cls(**record)

    def _some_rows(self) -> int:
        if not self.rows:
            raise InputError("a reliability record without rows has no scores")
        return self.rows


def _numbers(name: str, values: ArrayLike, counts: bool) -> NDArray[Any]:
    """Return a read-only copy, int64 or float64; refuse text, booleans and ragged lists."""
    array = np.array(as_array(name, values))
    if array.dtype.kind not in ("iu" if counts else "iuf"):
        kind = "whole numbers" if counts else "numbers"
        raise InputError(f"reliability: {name} must be {kind}, got {array.dtype}")
    array = array.astype(np.int64 if counts else np.float64, copy=False)
    array.setflags(write=False)
    return array


def _check(what: str, ndim: int, count: Integers, summed: Floats, correct: Integers) -> None:
    """Refuse sums that no rows give; all rules hold for a sum of records if for each of them."""
    fits = count.ndim == ndim and count.size > 0
    fits = fits and count.shape == summed.shape == correct.shape
    if fits:
        top, rows = count * (HIGHEST * (1.0 + 1e-9)), count.sum(axis=-1, dtype=np.float64).max()
        inside = (correct >= 0) & (correct <= count) & (summed >= 0.0) & (summed <= top)
        fits = bool(rows <= _MOST_ROWS and inside.all())
    if not fits:
        shapes = f"{count.shape}, {summed.shape} and {correct.shape}"
        raise InputError(
            f"reliability, {what}: must be counts in [0, 2**53], and summed confidence and correct "
            f"rows in [0, count], {ndim}-d and of one shape, got {shapes}"
        )
