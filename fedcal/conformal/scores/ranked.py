"""Base class of scores by the order of the classes."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from fedcal.conformal.scores.base import Score, rounded
from fedcal.core.numerics import label_entries
from fedcal.core.types import Floats, Integers, override


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
