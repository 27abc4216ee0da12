"""What scaling calibrators with a vector of parameters share: forms, pooled fit, files."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedcal.calibrators.base import Calibrator
from fedcal.calibrators.local_fit import local_fits
from fedcal.checks import whole
from fedcal.errors import InputError
from fedcal.numerics import LARGEST_LOGIT, softmax
from fedcal.shards import Shards
from fedcal.types import Floats, Integers

_POOLED_LOGITS, _POOLED_STEPS = 200_000_000, (300, 2000)


class ParametricScaling(Calibrator):
    """softmax(scores), where the scores of a row depend on one flat vector of parameters.

    The class methods are the *form*: pure functions over rows that clients, server and pooled
    fit share. In all of them `w` is the one vector of everybody, (size,), or each row's own,
    (n, size), and no row looks at another one.

    Parameters
    ----------
    w
        (size,) parameters; None = the identity map
    classes
        number of classes; 0 = not fitted yet
    """

    parameters = ("w",)

    def __init__(self, w: ArrayLike | None = None, classes: int = 0) -> None:
        super().__init__(classes)
        if w is None:
            self.w = self.identity(classes) if classes else np.zeros(0)
            return
        self.w = np.array(w, np.float64)
        size = self.size(whole("classes", classes, 2))
        if self.w.shape != (size,):
            raise InputError(
                f"{self.kind} scaling of {classes} classes needs {size} parameters, got shape "
                f"{self.w.shape}"
            )
        fine = np.abs(self.w) <= LARGEST_LOGIT  # false for NaN; products with logits stay finite
        if not fine.all():
            i = int(fine.argmin())
            raise InputError(f"parameters must be finite and moderate; number {i} is {self.w[i]}")

    # -- the form -------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def size(cls, classes: int) -> int:
        """Number of parameters."""

    @classmethod
    @abstractmethod
    def identity(cls, classes: int) -> Floats:
        """The parameters, (size,), with which probabilities stay as they are."""

    @classmethod
    def features(cls, logits: Floats, labels: Integers) -> tuple[Floats, Integers]:
        """What `scores` needs of each row, (n, c), and the column of its label there, (n,)."""
        return logits, labels

    @classmethod
    @abstractmethod
    def scores(cls, features: Floats, w: Floats) -> Floats:
        """Calibrated logits in the columns of `features`, (n, c)."""

    @classmethod
    @abstractmethod
    def pull_back(cls, features: Floats, w: Floats, residual: Floats) -> Floats:
        """Gradient in w of each row's loss, (n, size), from that in its scores, (n, c)."""

    wide: ClassVar[bool] = False
    """More parameters than there is room for beside each row: `scores` gets one w at a time."""

    @classmethod
    def gradient(cls, features: Floats, w: Floats, residual: Floats) -> Floats:
        """`pull_back` added over rows that share one w, in their order, (size,)."""
        return np.asarray(cls.pull_back(features, w, residual).sum(axis=0))

    @classmethod
    def diagonal(cls, features: Floats, w: Floats, probs: Floats) -> Floats:
        """Diagonal of each row's Gauss-Newton curvature in w, (n, size), at its `probs`."""
        raise InputError(f"{cls.kind} scaling has no curvature: it is trained by gradient steps")

    @classmethod
    def triangle(cls, features: Floats, w: Floats, probs: Floats, rows: int) -> Floats:
        """All of that curvature, summed over each `rows` rows that follow one another.

        Upper triangle row by row, (n / rows, size (size + 1) / 2).
        """
        raise InputError(f"{cls.kind} scaling has no full curvature")

    # -- the calibrator -------------------------------------------------------------------

    def _fit(self, z: Floats, y: Integers) -> None:
        """The parameters with the least negative log-likelihood on pooled rows.

        Each within 20 of the identity. Where the loss is not convex (order-preserving kinds): a
        minimum downhill from the identity.

        At most as many evaluations of the loss as see 2e8 logits, from 300 to 2000. Up to 10
        classes most fits converge before. With 100 classes and 5000 rows these are 400: the
        order-preserving vector form ends 2e-5 nats a row above where 2000 lead, and matrix
        scaling, whose optimum without any error is at infinity, goes part of the way.
        """
        shards = Shards(z, y, np.array([0, len(y)]))
        start = self.identity(shards.classes)
        steps = int(np.clip(_POOLED_LOGITS // z.size, *_POOLED_STEPS))
        self.w = local_fits(type(self), shards, start, steps=steps)[0]

    def _predict(self, logits: Floats) -> Floats:
        return softmax(self.scores(logits, self.w))
