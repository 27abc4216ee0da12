"""What a conformity score is: how little each label conforms to what the model says of a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.types import Floats, Integers
from fedcal.metrics.buckets import DIGITS


class Score(ABC):
    """A conformity score in [0, 1] of each label of each row; small = the label conforms.

    Attributes
    ----------
    name
        on the command line and in files
    ranked
        whether it goes by the order of the classes, and so may be randomised and penalised
    """

    name: ClassVar[str]
    ranked: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def of_all(cls, probs: Floats, u: Floats | None, penalty: float, free: int) -> Floats:
        """The score of every label.

        Parameters
        ----------
        probs
            (n, c), each row sums to 1
        u
            (n,) uniform in [0, 1): how much of the label's own probability is left out; None =
            nothing is
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
        """The score of one label of each row, (n,): the same bits as `of_all` has there."""
        return cls.of_all(probs, u, penalty, free)[np.arange(len(labels)), labels]

    @classmethod
    def within(
        cls, probs: Floats, limits: Floats, u: Floats | None, penalty: float, free: int
    ) -> NDArray[np.bool_]:
        """Whether each label's rounded score is at most its limit.

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
    """To as many decimals as are looked at: the same on both sides of a file, shape kept."""
    return np.round(scores, DIGITS)


SPLIT = 2.0**13 + 1.0
"""Factor that splits the last 13 of 53 bits off a number (Veltkamp 1968; Dekker 1971)."""


def settled(probs: Floats) -> Floats:
    """Probabilities without their last 13 bits, in which runtimes differ; shape kept.

    Scores of these have the same bits in each runtime, and classes that tie do so in each.
    """
    scaled = probs * SPLIT
    return np.asarray(scaled - (scaled - probs))
