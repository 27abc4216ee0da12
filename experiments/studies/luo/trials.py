"""Random divisions of a data set into sources and test rows, and sums over the sources.

What a data set gives at every temperature that a search can reach is computed once: a search of six
evaluations can reach few. With the gap (correct - confidence), its bin and the loss of every row at
each of them, a trial is nothing but sums of table entries.

Entries are rounded to multiples of 2**-30, so that sums of up to millions of them are exact in
doubles: whatever the order of the terms, and so on any number of threads and in any engine, the
bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError
from fedcal.core.numerics import (
    Floats,
    Integers,
    Purpose,
    label_entries,
    log_grid,
    row_sum,
    shifted,
    stream,
)
from fedcal.datasets import Dataset
from fedcal.metrics.binning import bin_index
from fedcal.strategies.methods.search import GoldenSection, Search

BINS = 15
LOW, HIGH = 0.5, 3.0
ITERATIONS = 5
EVALUATIONS = ITERATIONS + 1
"""Golden section shrinks five times and asks six times."""

GRID = 101
"""Temperatures, evenly spaced in log T, of what is no walk through few points. Neighbours differ by
1.8 %; the last interval of golden section is 0.22 wide."""

golden = partial(GoldenSection, LOW, HIGH, ITERATIONS)

_EXACT = 2.0**30
_NUMBERS = 1 << 16  # of a block of rows that stays in the processor's cache

SWEEPS = ("sources", "samples", "epsilon")
"""Parameters that vary; a setting belongs to one of them."""


@dataclass(frozen=True)
class SweepPoint:
    """One setting of Appendix E.1: one of three factors varies, the others stay.

    Attributes
    ----------
    sweep
        of `SWEEPS`
    sources, samples
        d private data sources, and m rows of each
    epsilon
        of all that a source releases; unit example, add/remove
    """

    sweep: str
    sources: int
    samples: int
    epsilon: float

    @property
    def fit_rows(self) -> int:
        """Number of rows of all sources."""
        return self.sources * self.samples

    @property
    def name(self) -> str:
        """Equal for equal settings, whatever the sweep."""
        return f"{self.sources} x {self.samples}, epsilon {self.epsilon:g}"


SETTINGS = (
    *(SweepPoint("sources", d, 10, 1.0) for d in range(10, 251, 10)),
    *(SweepPoint("samples", 50, m, 1.0) for m in range(5, 51, 5)),
    *(SweepPoint("epsilon", 50, 30, k / 5) for k in range(1, 11)),
)
"""The 45 settings of the paper for CIFAR."""


def settings_for(rows: int, name: str, every: int = 1) -> list[SweepPoint]:
    """Return the settings that leave at least half of the rows for the test.

    Parameters
    ----------
    every
        take every k-th setting of each sweep, from the last one on

    Raises
    ------
    InputError
        There is none.
    """
    found: list[SweepPoint] = []
    for sweep in SWEEPS:
        found += [s for s in SETTINGS if s.sweep == sweep][::-every][::-1]
    found = [s for s in found if 2 * s.fit_rows <= rows]
    if not found:
        raise InputError(f"{name}: {rows} rows are too few; half must be left for the test")
    return found


@dataclass(frozen=True)
class Tables:
    """All rows of a data set at t temperatures.

    Attributes
    ----------
    name, classes
        of the data
    temperatures
        (t,) that golden section can reach, a public grid, and 1
    grid
        (101,) where the public grid stands among them
    gaps
        (t, n) 1 or 0 for a right or wrong prediction, minus the confidence
    bins
        (t, n) of the confidence
    losses
        (t, n) negative log-likelihood of the labels, not clipped
    totals
        (t, 15) gaps of all rows, summed by bin
    """

    name: str
    classes: int
    temperatures: Floats
    grid: Integers = field(repr=False)
    gaps: Floats = field(repr=False)
    bins: NDArray[np.int8] = field(repr=False)
    losses: Floats = field(repr=False)
    totals: Floats = field(repr=False)

    @classmethod
    def of(cls, data: Dataset) -> Tables:
        """Tabulate all rows of a data set."""
        logits, labels = rows_of(data)
        grid = np.exp(log_grid(LOW, HIGH, GRID))
        temperatures = np.unique(np.concatenate([np.ones(1), grid, reachable(golden)]))
        gaps, bins, losses = tabulate(logits, labels, temperatures)
        flat = bins.astype(np.int64) + BINS * np.arange(len(bins))[:, None]
        sums = np.bincount(flat.ravel(), gaps.ravel(), BINS * len(bins)).reshape(-1, BINS)
        totals = np.asarray(sums, np.float64)
        at = np.searchsorted(temperatures, grid)
        return cls(data.name, logits.shape[1], temperatures, at, gaps, bins, losses, totals)

    @property
    def rows(self) -> int:
        """Number of rows N."""
        return int(self.gaps.shape[1])

    def at(self, temperatures: Floats) -> Integers:
        """Return the index of temperatures in the tables."""
        return np.searchsorted(self.temperatures, temperatures)

    def bin_gaps(self, at: Integers, rows: Integers) -> Floats:
        """Return sums of gaps by bin.

        Parameters
        ----------
        at
            (b,) index of each trial's temperature
        rows
            (b, k) rows of each trial

        Returns
        -------
        Floats
            (b, 15)
        """
        trials = len(at)
        index = rows + (at * self.rows)[:, None]
        bins = np.take(self.bins, index).astype(np.int64)
        bins += BINS * np.arange(trials)[:, None]
        sums = np.bincount(bins.ravel(), np.take(self.gaps, index).ravel(), BINS * trials)
        return np.asarray(sums.reshape(trials, BINS))

    def test_ece(self, at: Integers, fit: Integers) -> Floats:
        """Top-label ECE with 15 bins on all rows but the fit rows, (b,)."""
        rest = self.totals[at] - self.bin_gaps(at, fit)
        return np.asarray(np.abs(rest).sum(axis=1) / (self.rows - fit.shape[1]))


def reachable(make: Callable[..., Search]) -> Floats:
    """All temperatures that a search of six evaluations can ask for or end at.

    The search decides by comparing a value with 0 or with an earlier one. So of 2**6 searches side
    by side that hear values of growing size and each sequence of signs, one goes each possible way.
    """
    ways = np.arange(2**EVALUATIONS)
    search = make(searches=len(ways))
    asked: list[Floats] = []
    while (t := search.next()) is not None:
        sign = np.where(ways >> len(asked) & 1, 1.0, -1.0)
        search.tell(t, sign * 2.0 ** len(asked))
        asked.append(t)
    return np.unique([*asked, search.answer()])


def rows_of(data: Dataset) -> tuple[Floats, Integers]:
    """All labelled rows: those of the fit part, and of the test part where there is one.

    A trial divides them anew.
    """
    if data.test_logits is None or data.test_labels is None:
        return data.logits, data.labels
    return (
        np.concatenate([data.logits, data.test_logits]),
        np.concatenate([data.labels, data.test_labels]),
    )


def tabulate(
    logits: Floats, labels: Integers, temperatures: Floats
) -> tuple[Floats, NDArray[np.int8], Floats]:
    """Gaps, bins and losses of all rows at some temperatures, (t, n) each.

    Parameters
    ----------
    logits
        (n, c)
    labels
        (n,)
    temperatures
        (t,)
    """
    shape = len(temperatures), len(labels)
    gaps, bins, losses = np.empty(shape), np.empty(shape, np.int8), np.empty(shape)
    correct = (logits.argmax(axis=1) == labels).astype(np.float64)
    step = max(1, _NUMBERS // logits.shape[1])
    for i in range(0, len(labels), step):
        some = slice(i, i + step)
        z = shifted(logits[some])
        of_label = label_entries(z, labels[some])
        for k, temperature in enumerate(temperatures.tolist()):
            total = row_sum(np.exp(z / temperature))
            confidence = 1.0 / total
            gaps[k, some] = correct[some] - confidence
            bins[k, some] = bin_index(confidence, BINS)
            losses[k, some] = np.log(total) - of_label / temperature
    return _exact(gaps), bins, _exact(losses)


def _exact(values: Floats) -> Floats:
    return np.asarray(np.rint(values * _EXACT) / _EXACT)


# -- trials --------------------------------------------------------------------------------------


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
    def outcomes(self) -> tuple[Integers, Integers]:
        """Wrong and right predictions in each bin at T = 1: of fit and of test rows, (b, 15, 2)."""
        (one,) = self.tables.at(np.ones(1))
        cell = 2 * self.tables.bins[one].astype(np.int64) + (self.tables.gaps[one] >= 0)
        of_trial = cell[self.fit] + 2 * BINS * np.arange(len(self))[:, None]
        counts = np.bincount(of_trial.ravel(), minlength=2 * BINS * len(self))
        fit = counts.reshape(len(self), BINS, 2)
        return fit, np.bincount(cell, minlength=2 * BINS).reshape(BINS, 2) - fit
