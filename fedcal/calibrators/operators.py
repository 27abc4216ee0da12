"""The operators of which a calibrator's arithmetic is written once, for PyTorch and for ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

Array: TypeAlias = Any
"""An array of another runtime, (..., c)."""

Constants: TypeAlias = Mapping[str, Array]
"""Name -> array of fixed numbers."""


class Operators(Protocol):
    """What the arrays of another runtime can do beside `+ - * / @ >= <= >`.

    An array is (..., c): the last axis is that of the classes, and what runs along it keeps it.
    Numbers of Python may stand for arrays. A row with a NaN must come out as NaN.
    """

    def double(self, x: Array) -> Array:
        """In double precision."""

    def like(self, x: Array, other: Array) -> Array:
        """In the type of `other`."""

    def eps(self, x: Array) -> float:
        """The machine epsilon of the type of x."""

    def whole(self, x: Array) -> Array:
        """Numbers >= 0 cut to whole ones, as indices are."""

    def rounded(self, x: Array, digits: int) -> Array:
        """Rounded to so many decimals."""

    def places(self, count: int, like: Array) -> Array:
        """0, 1, ..., count - 1, as whole numbers."""

    def exp(self, x: Array) -> Array:
        """e^x."""

    def log(self, x: Array) -> Array:
        """Natural logarithm."""

    def relu(self, x: Array) -> Array:
        """max(x, 0)."""

    def sigmoid(self, x: Array) -> Array:
        """1 / (1 + exp(-x))."""

    def softplus(self, x: Array) -> Array:
        """log(1 + exp(x)), without overflow."""

    def softmax(self, x: Array) -> Array:
        """Probabilities of logits."""

    def log_softmax(self, x: Array) -> Array:
        """Logarithms of these, finite where the logits are."""

    def shifted(self, x: Array) -> Array:
        """x minus the largest of its row."""

    def clip(self, x: Array, low: float | None = None, high: float | None = None) -> Array:
        """Cut to [low, high]."""

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        """`yes` where the condition holds, else `no`."""

    def isnan(self, x: Array) -> Array:
        """Where x is NaN."""

    def equal(self, x: Array, other: Array) -> Array:
        """Where x and the other are equal."""

    def total(self, x: Array) -> Array:
        """Sum of each row, (..., 1)."""

    def largest(self, x: Array) -> Array:
        """Largest of each row, (..., 1)."""

    def argmax(self, x: Array) -> Array:
        """Column of the first largest of each row, (..., 1)."""

    def norm(self, x: Array) -> Array:
        """Euclidean norm of each row, (..., 1)."""

    def column(self, x: Array, index: int) -> Array:
        """One column, (..., 1)."""

    def join(self, *columns: Array) -> Array:
        """Columns side by side."""

    def gaps(self, x: Array) -> Array:
        """x_{k + 1} - x_k, and 0 at the end."""

    def sums(self, x: Array, *, exclusive: bool = False) -> Array:
        """x_1 + ... + x_k, or with `exclusive` without x_k."""

    def sort(self, x: Array) -> tuple[Array, Array]:
        """Each row falling, and the columns where its entries were; ties stay in order."""

    def unsort(self, x: Array, order: Array) -> Array:
        """Entries of sorted rows where they were."""

    def entry(self, constant: Array, index: int) -> Array:
        """One number of a constant vector."""

    def transposed(self, constant: Array) -> Array:
        """A constant matrix with rows for columns."""

    def take(self, constant: Array, index: Array) -> Array:
        """Entries of a constant array that is read row by row, in the shape of `index`."""

    def bucket(self, x: Array, edges: Array) -> Array:
        """How many of the constant edges are not above x, (..., 1), as whole numbers."""


def bin_of(o: Operators, x: Array, bins: int) -> Array:
    """The bin of equal width of each number in [0, 1]; that of a NaN is 0."""
    found = o.where(o.isnan(x), 0.0, x)
    return o.clip(o.whole(found * bins), high=bins - 1)
