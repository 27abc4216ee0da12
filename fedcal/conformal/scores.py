"""Conformity scores: how poorly each label conforms to the model's prediction; their registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.numerics import label_entries
from fedcal.core.registry import registry
from fedcal.core.types import Floats, Integers, override
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


class LAC(Score):
    """1 - p_y: least ambiguous sets, of the least mean size (Sadinle, Lei & Wasserman 2019)."""

    name = "lac"

    @classmethod
    @override
    def of_all(cls, probs: Floats, u: Floats | None, penalty: float, free: int) -> Floats:
        return 1.0 - probs

    @classmethod
    @override
    def of_labels(
        cls, probs: Floats, labels: Integers, u: Floats | None, penalty: float, free: int
    ) -> Floats:
        return 1.0 - probs[np.arange(len(labels)), labels]


class Ranked(Score):
    """Score that grows from the most to the least probable class of a row.

    Of classes with equal probability the smaller index comes first. Subclasses define `by_rank`.
    """

    ranked = True

    @classmethod
    @abstractmethod
    def by_rank(cls, falling: Floats, u: Floats | None, penalty: float, free: int) -> Floats:
        """Return scores of the classes from the most to the least probable, which never fall.

        Parameters
        ----------
        falling
            (n, c) probabilities, each row in falling order
        u, penalty, free
            as of `of_all`

        Returns
        -------
        Floats
            (n, c)
        """

    @classmethod
    @override
    def of_all(cls, probs: Floats, u: Floats | None, penalty: float, free: int) -> Floats:
        order = np.argsort(-probs, axis=1, kind="stable")
        by_rank = cls.by_rank(np.take_along_axis(probs, order, axis=1), u, penalty, free)
        out = np.empty_like(by_rank)
        np.put_along_axis(out, order, by_rank, axis=1)
        return out

    @classmethod
    @override
    def of_labels(
        cls, probs: Floats, labels: Integers, u: Floats | None, penalty: float, free: int
    ) -> Floats:
        own = label_entries(probs, labels)[:, None]
        before = np.arange(probs.shape[1]) < labels[:, None]
        place = ((probs > own) | ((probs == own) & before)).sum(axis=1)
        return label_entries(cls.by_rank(_falling(probs), u, penalty, free), place)

    @classmethod
    def within(
        cls, probs: Floats, limits: Floats, u: Floats | None, penalty: float, free: int
    ) -> NDArray[np.bool_]:
        """Return whether each label's rounded score is at most its limit, (n, c).

        Scores grow with the rank, so a set is the first k classes: all classes at least as
        probable as the last of them, except for ties.
        """
        if limits.shape[-1] != 1:  # each class has its own limit
            return super().within(probs, limits, u, penalty, free)
        falling = _falling(probs)
        count = (rounded(cls.by_rank(falling, u, penalty, free)) <= limits).sum(axis=1)
        least = np.where(count > 0, label_entries(falling, np.maximum(count - 1, 0)), np.inf)
        inside = probs >= least[:, None]
        tied = np.flatnonzero(inside.sum(axis=1) != count)
        if len(tied):
            own = limits[tied] if limits.ndim == 2 and len(limits) > 1 else limits
            parts = None if u is None else u[tied]
            inside[tied] = super().within(probs[tied], own, parts, penalty, free)
        return np.asarray(inside)


def _falling(probs: Floats) -> Floats:
    """Return each row sorted from its largest entry to its smallest."""
    return np.asarray(-np.sort(-probs, axis=1))


def mass(falling: Floats, u: Floats | None) -> Floats:
    """Return the probability of all classes up to each, minus the part u of its own, (n, c).

    It is summed as (mass of the classes before) + (1 - u) p, which never falls, not even in the
    last bit. The mass of all classes is set to 1, whatever the rounding error.
    """
    total = np.cumsum(falling, axis=1)
    if u is None:
        total[:, -1] = 1.0
        return total
    before = np.zeros_like(total)
    before[:, 1:] = total[:, :-1]
    return np.asarray(before + (1.0 - u)[:, None] * falling)


class APS(Ranked):
    """Probability of the label and of all classes ranked above it, minus the part u of its own.

    Sets adapt to how hard a row is (Romano, Sesia & Candes 2020, equations 5 to 8).
    """

    name = "aps"

    @classmethod
    @override
    def by_rank(cls, falling: Floats, u: Floats | None, penalty: float, free: int) -> Floats:
        return np.minimum(mass(falling, u), 1.0)


class RAPS(Ranked):
    """(APS + penalty * max(0, rank - free)) / (1 + penalty * max(0, c - free)), ranks from 1.

    Sets are smaller than those of APS where probabilities have long tails (Angelopoulos, Bates,
    Malik & Jordan 2021, equation 4: their lambda is `penalty`, their k_reg is `free`). The divisor
    is the largest value of the sum; it depends on the number of classes and on the two settings
    alone, and so changes the scale of scores and no set.
    """

    name = "raps"

    @classmethod
    @override
    def by_rank(cls, falling: Floats, u: Floats | None, penalty: float, free: int) -> Floats:
        excess = penalty * np.maximum(0.0, np.arange(1, falling.shape[1] + 1) - free)
        return np.asarray(np.minimum((mass(falling, u) + excess) / (1.0 + excess[-1]), 1.0))


SCORES: dict[str, type[Score]] = registry(LAC, APS, RAPS)
"""Name on the command line and in files -> score."""
