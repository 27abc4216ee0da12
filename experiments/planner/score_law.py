"""Where conformity scores of labels lie: evenly, or as those of somebody's public rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from fedcal.conformal.conformity import Conformity
from fedcal.core.types import Floats, override
from fedcal.datasets import Dataset


class ScoreLaw(ABC):
    """The law of the conformity score of a new row's label, in each part of the rows.

    Attributes
    ----------
    shares
        (parts,) of the rows, which add up to 1
    """

    name: str
    about: str
    shares: Floats

    @abstractmethod
    def below(self, thresholds: Floats) -> Floats:
        """P(score <= t) in each part, (m,) thresholds -> (parts, m)."""

    @abstractmethod
    def quantiles(self, part: int, shares: Floats) -> Floats:
        """Return the least scores with these shares at or below them, (k,) -> (k,)."""

    def size(self, thresholds: Floats) -> float | None:
        """Mean number of labels in a set, by (parts,) thresholds; None = scores alone are known."""
        return None

    def covered(self, thresholds: Floats) -> float:
        """Return the coverage of a new row's label by (parts,) thresholds."""
        each = [self.below(np.array([t]))[part, 0] for part, t in enumerate(thresholds)]
        return float(self.shares @ np.array(each))


@dataclass(frozen=True, eq=False)
class Even(ScoreLaw):
    """Uniform scores in [0, 1], in parts of equal size: smooth, and independent of any data."""

    parts: int
    name = "even scores"
    about = "conformity scores of labels evenly spread in [0, 1]"

    @property
    def shares(self) -> Floats:  # type: ignore[override]  # of all parts the same
        """Equal shares of all parts."""
        return np.full(self.parts, 1.0 / self.parts)

    @override
    def below(self, thresholds: Floats) -> Floats:
        return np.tile(np.clip(thresholds, 0.0, 1.0), (self.parts, 1))

    @override
    def quantiles(self, part: int, shares: Floats) -> Floats:
        return shares


class OfRows(ScoreLaw):
    """The scores of all rows of a data set, taken for the truth: rows are drawn from these.

    Parameters
    ----------
    data
        labelled; its test part counts, too
    by
        "class" has a part for each label; else all `parts` are alike
    """

    def __init__(self, data: Dataset, conformity: Conformity, by: str, parts: int) -> None:
        self.name, self.about = data.name, "rows of a data set, taken for the truth"
        logits, labels = data.logits, data.labels
        if data.test_logits is not None and data.test_labels is not None:
            logits = np.concatenate([logits, data.test_logits])
            labels = np.concatenate([labels, data.test_labels])
        every = conformity.of_all(logits, data.input)
        own = every[np.arange(len(labels)), labels]
        self._by_class = by == "class"
        if self._by_class:
            self._own = [np.sort(own[labels == k]) for k in range(parts)]
            self._every = [np.sort(column) for column in every.T]
            self.shares = np.bincount(labels, minlength=parts) / len(labels)
        else:
            self._own, self._every = [np.sort(own)] * parts, [np.sort(every.ravel())]
            self.shares = np.full(parts, 1.0 / parts)
        self._rows = len(labels)

    def below(self, thresholds: Floats) -> Floats:
        """Shares of the rows; of a part without any all are."""
        shares = [np.searchsorted(own, thresholds, side="right") for own in self._own]
        return np.stack(
            [
                n / len(own) if len(own) else n + 1.0
                for n, own in zip(shares, self._own, strict=True)
            ]
        )

    @override
    def quantiles(self, part: int, shares: Floats) -> Floats:
        own = self._own[part]
        if not len(own):
            return np.ones(len(shares))
        place = np.ceil(shares * len(own)).astype(int) - 1
        return np.asarray(own[np.clip(place, 0, len(own) - 1)])

    def size(self, thresholds: Floats) -> float:
        """Return the mean set size over the same rows."""
        held = [
            sum(np.searchsorted(each, t, side="right") for each in self._every)
            if not self._by_class
            else np.searchsorted(self._every[part], t, side="right")
            for part, t in enumerate(thresholds)
        ]
        weights = np.ones(len(held)) if self._by_class else self.shares
        return float(weights @ np.array(held, np.float64) / self._rows)
