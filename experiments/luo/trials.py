"""Random divisions of a data set into sources and test rows, and sums over the sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedcal.experiments.luo.bench import Bench
from fedcal.experiments.luo.settings import Setting
from fedcal.experiments.luo.tables import Tables
from fedcal.streams import Purpose, stream
from fedcal.types import Floats, Integers


def divisions(bench: Bench, setting: Setting, trials: int, seed: int) -> Integers:
    """Fit rows of each trial, (trials, d m), drawn without replacement; m in a row are a source.

    All trials of a setting are drawn from one stream, in order.
    """
    rng = stream(seed, Purpose.SPLIT, what=f"luo {bench.name} {setting.name}")
    drawn = np.empty((trials, setting.fit_rows), np.int64)
    for k in range(trials):
        drawn[k] = rng.choice(bench.rows, setting.fit_rows, replace=False)
    return drawn


@dataclass(frozen=True)
class Trials:
    """Some trials of a setting.

    Attributes
    ----------
    bench, setting : what is divided, and how
    fit : (b, d m) rows of all sources
    """

    bench: Bench
    setting: Setting
    fit: Integers = field(repr=False)

    def __len__(self) -> int:
        return len(self.fit)

    @property
    def all(self) -> Integers:
        """Numbers of the trials."""
        return np.arange(len(self.fit))

    @property
    def one_source(self) -> Integers:
        """(b, m) rows of the first source of each trial."""
        return self.fit[:, : self.setting.samples]

    @cached_property
    def _member(self) -> Floats:
        """(b, n) 1 where a row is a fit row."""
        found = np.zeros((len(self), self.bench.rows))
        found[self.all[:, None], self.fit] = 1.0
        return found

    def gaps(self, tables: Tables) -> Floats:
        """Sum over the sources of correct - confidence at each temperature, (b, t).

        Table entries add up exactly (see `tables`), so a matrix product has no order to choose.
        """
        return np.asarray(self._member @ tables.gaps.T)

    @cached_property
    def golden_gaps(self) -> Floats:
        """`gaps` where golden section may ask."""
        return self.gaps(self.bench.golden)

    @cached_property
    def golden_losses(self) -> Floats:
        """Sum of min(nll, 10) where golden section may ask, (b, 32)."""
        return np.asarray(self._member @ self.bench.clipped_losses.T)

    @cached_property
    def bisection_gaps(self) -> Floats:
        """`gaps` where bisection may ask."""
        return self.gaps(self.bench.bisection)

    @cached_property
    def grid_gaps(self) -> Floats:
        """`gaps` on the public grid."""
        return self.gaps(self.bench.grid)
