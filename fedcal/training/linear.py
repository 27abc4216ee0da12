"""A linear head on fixed features (softmax regression), with gradient sums that are exact.

The gradient of a row is an outer product, (p - y) (x, 1)^T: its norm is that of p - y times that
of (x, 1), so that clipping a row is a factor on p - y, and the sum over rows one matrix product.

Floats do not add up to the same bits in every order, so all that is multiplied is whole numbers:
features in steps of 2^-18, weights in steps of 2^-20, and each row's bounded p - y truncated toward
zero onto the grid that the wanted sum's leaves. Products and their sums stay below 2^53, where a
product of float64 matrices is exact, however it is split. So p itself does not depend on which rows
share a product, and the clients' sums are those of the pooled rows bit for bit.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from fedcal.core.errors import InputError
from fedcal.core.numerics import softmax
from fedcal.core.parallel import by_rows
from fedcal.core.types import Floats, Integers
from fedcal.training.network import Clipping, Dense, LocalSGD, Network, Reads

FEATURE_STEP = 2.0**-18
WEIGHT_STEP = 2.0**-20

LONGEST = 16.0
"""Norm of features beyond which a row is shortened: whole products have to stay below 2^53."""

HEAVIEST = 2000.0
"""Norm of a class's weights beyond which its scores are those of weights that are so long."""

_TOGETHER = 2**12  # rows of one product; each adds less than 2^41 to a number
_LEAST_BITS = 6  # of a bounded p - y; with fewer, what is truncated would be too large a part


class Linear(Network):
    """Softmax regression: logits = W x + b. The weights begin at 0, row by row of (W, b)."""

    name: ClassVar[str] = "linear"
    reads: ClassVar[Reads] = "features"
    lr: ClassVar[float] = 8.0
    is_dense: ClassVar[bool] = True
    longest: ClassVar[float] = LONGEST

    def dense(self, w: Floats, shape: tuple[int, ...], classes: int) -> list[Dense]:
        """One layer, of weights as `logits` has them."""
        by_class = _shortened(w, classes)
        return [(by_class[:, :-1], by_class[:, -1])]

    def size(self, shape: tuple[int, ...], classes: int) -> int:
        """(features + 1) classes."""
        if len(shape) != 1:
            raise InputError(f"the network linear reads rows of features, not shape {shape}")
        return classes * (shape[0] + 1)

    def initial(self, shape: tuple[int, ...], classes: int, seed: int) -> Floats:
        """Zeros: every class has the same probability."""
        return np.zeros(self.size(shape, classes))

    def logits(self, w: Floats, inputs: NDArray[Any], classes: int) -> Floats:
        """Return logits of the rounded features and weights that training uses."""
        return self._scores(w, self.prepared(inputs), classes)

    def prepared(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """(n, d + 1) features in whole steps, and a constant 1; exact in float32.

        What is not finite counts as 0.
        """
        out = np.empty((len(inputs), inputs.shape[1] + 1), np.float32)

        def work(rows: slice) -> None:
            x = inputs[rows].astype(np.float64)
            x[~np.isfinite(x)] = 0.0  # readers refuse them; here they would break a row's bound
            norms = np.sqrt(np.einsum("ij,ij->i", x, x))
            x *= np.minimum(1.0, LONGEST / np.maximum(norms, LONGEST))[:, None]
            out[rows, :-1] = np.trunc(x / FEATURE_STEP)
            out[rows, -1] = 1 / FEATURE_STEP

        by_rows(work, *inputs.shape)
        return out

    def steps(
        self,
        w: Floats,
        prepared: NDArray[Any],
        labels: Integers,
        offsets: Integers,
        classes: int,
        clipping: Clipping,
        grid: float,
    ) -> Integers:
        """One matrix product for each client."""
        step = grid / FEATURE_STEP
        longest = 1.0 if clipping.rule == "none" else min(1.0, clipping.norm)
        if step > longest * 2.0**-_LEAST_BITS:
            raise InputError(
                f"a grid of {grid:.3g} is too coarse for gradients of the network linear: use a "
                f"{'smaller' if longest == 1.0 else 'larger'} clip"
            )
        sums = np.zeros((len(offsets) - 1, w.size), np.int64)
        for a in range(0, len(labels), _TOGETHER):
            b = min(a + _TOGETHER, len(labels))
            x = prepared[a:b].astype(np.float64)
            residual = softmax(self._scores(w, x, classes))
            residual[np.arange(b - a), labels[a:b]] -= 1.0
            squares = np.einsum("ij,ij->i", x, x)  # whole numbers below 2^53: exact in any order
            norms = np.sqrt(squares) * FEATURE_STEP
            norms *= np.sqrt(sum(residual[:, j] ** 2 for j in range(classes)))
            residual *= clipping.factors(norms)[:, None]
            np.trunc(residual / step, out=residual)
            cuts = np.clip(offsets, a, b) - a
            for k in np.flatnonzero(np.diff(cuts)).tolist():
                rows = slice(cuts[k], cuts[k + 1])
                sums[k] += (residual[rows].T @ x[rows]).ravel().astype(np.int64)
        return sums

    def local_update(
        self,
        w: Floats,
        prepared: NDArray[Any],
        labels: Integers,
        classes: int,
        sgd: LocalSGD,
        rng: np.random.Generator,
    ) -> tuple[Floats, float]:
        """By the exact sums of `steps`, in float64."""
        start, grid, total = w, 2.0**-36, 0.0
        for _ in range(sgd.epochs):
            order = rng.permutation(len(labels))
            for rows in np.split(order, range(sgd.batch, len(order), sgd.batch)):
                x, y = prepared[rows], labels[rows]
                scores = self._scores(w, x, classes)
                total += float((logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]).sum())
                cuts, free = np.array([0, len(rows)]), Clipping(0.0, "none")
                sums = self.steps(w, x, y, cuts, classes, free, grid)
                w = w - sgd.lr / len(rows) * grid * sums[0]
        return w - start, total / (sgd.epochs * len(labels))

    def _scores(self, w: Floats, x: NDArray[Any], classes: int) -> Floats:
        """Exact: whole numbers times whole numbers."""
        whole = np.rint(_shortened(w, classes) / WEIGHT_STEP)
        product = x.astype(np.float64, copy=False) @ whole.T
        return np.asarray(product * (FEATURE_STEP * WEIGHT_STEP))


def _shortened(w: Floats, classes: int) -> Floats:
    """Weights of each class, (classes, d + 1), of norm `HEAVIEST` at most."""
    by_class = w.reshape(classes, -1)
    norms = np.sqrt(np.einsum("ij,ij->i", by_class, by_class))
    return np.asarray(by_class * np.minimum(1.0, HEAVIEST / np.maximum(norms, HEAVIEST))[:, None])
