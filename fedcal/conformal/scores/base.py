"""Base class of conformity scores: how poorly each label conforms to the model's prediction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.types import Floats, Integers
from fedcal.metrics.buckets import DIGITS


class Score(ABC):
    """Conformity score in [0, 1] of each label of each row; small = the label conforms.

    Attributes
    ----------
    name
        on the command line and in files
    ranked
        whether it uses the order of the classes, and so may be randomised and penalised
    """

    name: ClassVar[str]
    ranked: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def of_all(cls, probs: Floats, u: Floats | None, penalty: float, free: int) -> Floats:
        """Return the score of every label.

        Parameters
        ----------
        probs
            (n, c), each row sums to 1
        u
            (n,) uniform in [0, 1): fraction of the label's own probability to leave out; None =
            leave out nothing
        penalty, free
            of `raps`

        Returns
        -------
        Floats
            (n, c)
        """

    @classmethod
    def of_labels(
        cls, probs: Floats, labels: Integers, u: Floats | None, penalty: float, free: int
    ) -> Floats:
        """Return the score of each row's label, (n,), bit for bit as in `of_all`."""
        return cls.of_all(probs, u, penalty, free)[np.arange(len(labels)), labels]

    @classmethod
    def within(
        cls, probs: Floats, limits: Floats, u: Floats | None, penalty: float, free: int
    ) -> NDArray[np.bool_]:
        """Return whether each label's rounded score is at most its limit.

        Parameters
        ----------
        probs, u, penalty, free
            as of `of_all`
        limits
            (1,), (c,) of each class or (n, 1) of each row

        Returns
        -------
        NDArray[np.bool_]
            (n, c)
        """
        return np.asarray(rounded(cls.of_all(probs, u, penalty, free)) <= limits)


def rounded(scores: Floats) -> Floats:
    """Round scores to `DIGITS` decimals, so that both sides of a file agree; the shape is kept."""
    return np.round(scores, DIGITS)


SPLIT = 2.0**13 + 1.0
"""Factor that splits the last 13 of 53 bits off a number (Veltkamp 1968; Dekker 1971)."""


def settled(probs: Floats) -> Floats:
    """Return probabilities without their last 13 bits, in which runtimes differ; the shape is kept.

    Scores of settled probabilities have the same bits, and the same ties, in each runtime.
    """
    scaled = probs * SPLIT
    return np.asarray(scaled - (scaled - probs))
