"""Operators for calibrators' arithmetic, written once for NumPy, PyTorch and ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from fedcal.core.numerics import row_max, row_sum, shifted, sigmoid, softmax, softplus
from fedcal.metrics.binning import bin_index
from fedcal.metrics.buckets import bucket_of

Array: TypeAlias = Any
"""An array of a runtime, (..., c)."""

Constants: TypeAlias = Mapping[str, Array]
"""Name -> array of fixed numbers."""


class Operators:
    """Operations on NumPy arrays beside `+ - * / @ >= <= >`; other runtimes override them.

    An array is (n, c), of PyTorch (..., c): the last axis is that of the classes, and operations
    along it keep it. Numbers of Python may stand for arrays. A row with a NaN must come out as
    NaN.

    Attributes
    ----------
    given
        logits are logarithms of probabilities that a model gave, which `probs` returns
    """

    given = False

    def __init__(self, given: bool = False) -> None:
        self.given = given

    def double(self, x: Array) -> Array:
        """Convert to double precision."""
        return np.asarray(x, np.float64)

    def like(self, x: Array, reference: Array) -> Array:
        """Convert to the type of `reference`."""
        return np.asarray(x, reference.dtype)

    def eps(self, x: Array) -> float:
        """Return the machine epsilon of the type of x."""
        return float(np.finfo(x.dtype).eps)

    def rounded(self, x: Array, digits: int) -> Array:
        """Round to so many decimals."""
        return np.round(x, digits)

    def places(self, count: int, like: Array) -> Array:
        """Return 0, 1, ..., count - 1, as whole numbers."""
        return np.arange(count)

    def exp(self, x: Array) -> Array:
        """Return e^x of each entry."""
        return np.exp(x)

    def log(self, x: Array) -> Array:
        """Return the natural logarithm."""
        return np.log(x)

    def log1p(self, x: Array) -> Array:
        """Return log(1 + x), exact near 0."""
        return np.log1p(x)

    def relu(self, x: Array) -> Array:
        """Return max(x, 0) of each entry."""
        return np.maximum(x, 0.0)

    def sigmoid(self, x: Array) -> Array:
        """Return 1 / (1 + exp(-x))."""
        return sigmoid(x)

    def softplus(self, x: Array) -> Array:
        """Return log(1 + exp(x)), without overflow."""
        return softplus(x)

    def softmax(self, x: Array) -> Array:
        """Return the probabilities of logits."""
        return softmax(x)

    def probs(self, x: Array) -> Array:
        """Return the model's probabilities in double precision, which bins are of."""
        return self.exp(self.double(x)) if self.given else self.softmax(self.double(x))

    def log_softmax(self, x: Array) -> Array:
        """Return the logarithms of probabilities, finite where the logits are."""
        z = shifted(x)
        return z - np.log(row_sum(np.exp(z))[:, None])

    def shifted(self, x: Array) -> Array:
        """Return x minus the largest entry of its row."""
        return shifted(x)

    def clip(self, x: Array, low: float | None = None, high: float | None = None) -> Array:
        """Clip entries to [low, high]."""
        return np.clip(x, low, high)

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        """Return `yes` where the condition holds, else `no`."""
        return np.where(condition, yes, no)

    def equal(self, x: Array, right: Array) -> Array:
        """Return whether each entry of x equals that of `right`."""
        return np.equal(x, right)

    def total(self, x: Array) -> Array:
        """Return the sum of each row, (..., 1)."""
        return row_sum(x)[:, None]

    def largest(self, x: Array) -> Array:
        """Return the largest entry of each row, (..., 1)."""
        return row_max(x)[:, None]

    def argmax(self, x: Array) -> Array:
        """Return the column of the first largest entry of each row, (..., 1)."""
        return x.argmax(axis=1)[:, None]

    def norm(self, x: Array) -> Array:
        """Return the Euclidean norm of each row, (..., 1)."""
        return np.sqrt(row_sum(x * x))[:, None]

    def column(self, x: Array, index: int) -> Array:
        """Return one column, (..., 1)."""
        return x[:, index : index + 1]

    def join(self, *columns: Array) -> Array:
        """Join columns side by side."""
        return np.concatenate(columns, axis=1)

    def gaps(self, x: Array) -> Array:
        """Return x_{k + 1} - x_k, and 0 at the end."""
        return np.diff(x, axis=1, append=x[:, -1:])

    def sums(self, x: Array, *, exclusive: bool = False) -> Array:
        """Return x_1 + ... + x_k, or with `exclusive` without x_k."""
        added = np.cumsum(x, axis=1)
        return np.pad(added[:, :-1], ((0, 0), (1, 0))) if exclusive else added

    def sort(self, x: Array) -> tuple[Array, Array]:
        """Sort each row, falling, and return the original columns; ties stay in order."""
        order = np.argsort(-x, axis=1, kind="stable")
        return np.take_along_axis(x, order, axis=1), order

    def unsort(self, x: Array, order: Array) -> Array:
        """Return entries of sorted rows to their original columns."""
        out = np.empty_like(x)
        np.put_along_axis(out, order, x, axis=1)
        return out

    def entry(self, constant: Array, index: int) -> Array:
        """Return one number of a constant vector."""
        return constant[index]

    def transposed(self, constant: Array) -> Array:
        """Return the transpose of a constant matrix."""
        return constant.T

    def take(self, constant: Array, index: Array) -> Array:
        """Return entries of a constant array, read row by row, in the shape of `index`."""
        return np.take(constant, index)

    def bins(self, x: Array, count: int) -> Array:
        """Return the bin of equal width of each number in [0, 1], an integer; any bin for a NaN."""
        return bin_index(x, count)

    def or_nan(self, x: Array, of: Array) -> Array:
        """Return x, with NaN where `of` is; NumPy's rows are checked before."""
        return x

    def bucket(self, x: Array, edges: Array) -> Array:
        """Return the number of constant edges that are not above x, (..., 1), as an integer."""
        return bucket_of(x, np.concatenate([[0.0], edges[:-1], [1.0]]))
