"""Random divisions of a data set into sources and test rows, and sums over the sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats, Integers
from fedcal.experiments.research.luo.settings import SweepPoint
from fedcal.experiments.research.luo.tables import BINS, Tables


def divisions(tables: Tables, point: SweepPoint, trials: int, seed: int) -> Integers:
    """Fit rows of each trial, (trials, d m), drawn without replacement; m in a row are a source.

    All trials of a setting are drawn from one stream, in order.
    """
    rng = stream(seed, Purpose.SPLIT, what=f"luo {tables.name} {point.name}")
    drawn = np.empty((trials, point.fit_rows), np.int64)
    for k in range(trials):
        drawn[k] = rng.choice(tables.rows, point.fit_rows, replace=False)
    return drawn


@dataclass(frozen=True)
class Trials:
    """Some trials of a point of a sweep.

    Attributes
    ----------
    tables, point
        what is divided, and how
    fit
        (b, d m) rows of all sources
    """

    tables: Tables
    point: SweepPoint
    fit: Integers = field(repr=False)

    def __len__(self) -> int:
        return len(self.fit)

    @property
    def one_source(self) -> Integers:
        """(b, m) rows of the first source of each trial."""
        return self.fit[:, : self.point.samples]

    def gaps(self, at: Integers) -> Floats:
        """Sum over the sources of correct - confidence at each trial's temperature, (b,)."""
        return np.asarray(self._entries(self.tables.gaps, at).sum(axis=1))

    def losses(self, at: Integers, clip: float) -> Floats:
        """Sum over the sources of min(nll, clip) at each trial's temperature, (b,)."""
        losses = self._entries(self.tables.losses, at)
        return np.asarray(np.minimum(losses, clip).sum(axis=1))

    def bin_gaps(self, at: Integers) -> Floats:
        """`gaps` by bin of the confidence, (b, 15)."""
        return self.tables.bin_gaps(at, self.fit)

    def test_ece(self, at: Integers) -> Floats:
        """Test ECE of each trial at its temperature, (b,)."""
        return self.tables.test_ece(at, self.fit)

    def _entries(self, table: Floats, at: Integers) -> Floats:
        """(b, d m) of the fit rows."""
        return np.asarray(np.take(table, self.fit + (at * self.tables.rows)[:, None]))

    @cached_property
    def grid_gaps(self) -> Floats:
        """`gaps` at each temperature of the public grid, (b, 101).

        Table entries add up exactly (see `tables`), so a matrix product has no order to choose.
        """
        member = np.zeros((len(self), self.tables.rows))
        member[np.arange(len(self))[:, None], self.fit] = 1.0
        return np.asarray(member @ self.tables.gaps[self.tables.grid].T)

    @cached_property
    def outcomes(self) -> tuple[Integers, Integers]:
        """Wrong and right predictions in each bin at T = 1: of fit and of test rows, (b, 15, 2)."""
        (one,) = self.tables.at(np.ones(1))
        cell = 2 * self.tables.bins[one].astype(np.int64) + (self.tables.gaps[one] >= 0)
        of_trial = cell[self.fit] + 2 * BINS * np.arange(len(self))[:, None]
        counts = np.bincount(of_trial.ravel(), minlength=2 * BINS * len(self))
        fit = counts.reshape(len(self), BINS, 2)
        return fit, np.bincount(cell, minlength=2 * BINS).reshape(BINS, 2) - fit
