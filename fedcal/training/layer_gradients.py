"""Gradients of rows with respect to one layer, and their sums in whole numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from fedcal.core.types import Floats, Integers

INPUT_BITS = 18
"""What goes into a dense layer is told in steps of its norm's power of two / 2**INPUT_BITS."""


class Part(ABC):
    """Gradients of n rows with respect to some of the parameters."""

    @abstractmethod
    def squares(self) -> Floats:
        """Squared norm of each row's, (n,)."""

    @abstractmethod
    def whole(self, factors: Floats, grid: float) -> Part:
        """Each row times its factor, in whole steps of the grid, no norm larger than before.

        Parameters
        ----------
        factors
            (n,); a row with the factor 0 becomes zeros, even if its numbers are not finite
        """

    @abstractmethod
    def add(self, total: Integers, rows: slice) -> None:
        """Add up some rows of what `whole` made, exactly, to a client's `total` (size,)."""


@dataclass(frozen=True)
class Factors(Part):
    """A dense layer: row i's gradient is `outer(back[i], inputs[i])`, and `back[i]` of its biases.

    Attributes
    ----------
    weight, bias
        places in the vector of all parameters; the matrix is (outputs, inputs), row by row
    inputs, back
        (n, inputs) in whole steps, (n, outputs)
    step
        (n,) of each row's inputs, a power of two of at most 1
    """

    weight: slice
    bias: slice | None
    inputs: Floats
    back: Floats
    step: Floats

    @classmethod
    def of(cls, weight: slice, bias: slice | None, inputs: Floats, back: Floats) -> Factors:
        """Return factors from inputs in their own units, truncated toward zero."""
        norms = np.sqrt(np.einsum("ij,ij->i", inputs, inputs))
        exponents = np.frexp(np.where(np.isfinite(norms), norms, 1.0))[1] - INPUT_BITS
        step = np.ldexp(1.0, np.clip(exponents, -2 * INPUT_BITS, 0))
        return cls(weight, bias, np.trunc(inputs / step[:, None]), back, step)

    def squares(self) -> Floats:
        """One product of squared norms."""
        inputs = np.einsum("ij,ij->i", self.inputs, self.inputs) * self.step**2
        back = np.einsum("ij,ij->i", self.back, self.back)
        return np.asarray(back * (inputs + (self.bias is not None)))

    def whole(self, factors: Floats, grid: float) -> Factors:
        """Return factors with whole backward parts; truncation makes no norm larger."""
        inputs = _finite(self.inputs, factors)
        back = _truncated(self.back, factors, grid / self.step)
        return Factors(self.weight, self.bias, inputs, back, self.step)

    def add(self, total: Integers, rows: slice) -> None:
        """One product of matrices of whole numbers below 2^53."""
        back = self.back[rows]
        total[self.weight] += (back.T @ self.inputs[rows]).ravel().astype(np.int64)
        if self.bias is not None:
            biases = (back / self.step[rows, None]).sum(axis=0)
            total[self.bias] += biases.astype(np.int64)


@dataclass(frozen=True)
class Whole(Part):
    """Some of the parameters, their gradients as they are: `gradients` (n, numbers) at `place`."""

    place: slice
    gradients: Floats

    def squares(self) -> Floats:
        """Return the sum of squares of each row."""
        return np.asarray(np.einsum("ij,ij->i", self.gradients, self.gradients))

    def whole(self, factors: Floats, grid: float) -> Whole:
        """Return the gradients truncated toward zero."""
        steps = np.full(len(factors), grid)
        return Whole(self.place, _truncated(self.gradients, factors, steps))

    def add(self, total: Integers, rows: slice) -> None:
        """Add a sum of whole numbers below 2^53 to `total`."""
        total[self.place] += self.gradients[rows].sum(axis=0).astype(np.int64)


def _truncated(values: Floats, factors: Floats, step: Floats) -> Floats:
    scaled = _finite(values, factors) * (factors / step)[:, None]
    return np.asarray(np.trunc(scaled, out=scaled))


def _finite(values: Floats, factors: Floats) -> Floats:
    """`values`, with zeros in rows whose factor is 0."""
    lost = factors == 0
    return np.where(lost[:, None], 0.0, values) if lost.any() else values
