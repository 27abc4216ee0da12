"""What a data set gives at every temperature that a search can reach, computed once.

A search of six evaluations can reach few temperatures. With the gap (correct - confidence), its
bin and the loss of every row at each of them, a trial is nothing but sums of table entries.

Entries are rounded to multiples of 2**-30, so that sums of up to millions of them are exact in
doubles: whatever the order of the terms, and so on any number of threads and in any engine, the
bits are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedcal.datasets import Dataset
from fedcal.metrics.binning import bin_index
from fedcal.numerics import label_entries, row_sum, shifted
from fedcal.types import Floats, Integers

BINS = 15
NLL_CLIP = 10.0
_EXACT = 2.0**30
_NUMBERS = 1 << 16  # of a block of rows that stays in the processor's cache


@dataclass(frozen=True)
class Tables:
    """Rows at t temperatures.

    Attributes
    ----------
    temperatures : (t,)
    gaps : (t, n) 1 or 0 for a right or wrong prediction, minus the confidence
    bins : (t, n) of the confidence
    totals : (t, 15) gaps of all rows, summed by bin
    """

    temperatures: Floats
    gaps: Floats = field(repr=False)
    bins: NDArray[np.int8] = field(repr=False)
    totals: Floats = field(repr=False)

    @property
    def rows(self) -> int:
        """n."""
        return int(self.gaps.shape[1])

    def bin_gaps(self, at: Integers, rows: Integers) -> Floats:
        """Sums of gaps by bin.

        Parameters
        ----------
        at : (b,) index of each trial's temperature
        rows : (b, k) rows of each trial

        Returns
        -------
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


def tabulate(logits: Floats, labels: Integers, temperatures: Floats) -> Tables:
    """Gaps and bins of all rows at some temperatures.

    Parameters
    ----------
    logits : (n, c)
    labels : (n,)
    temperatures : (t,)
    """
    n, t = len(labels), len(temperatures)
    correct = (logits.argmax(axis=1) == labels).astype(np.float64)
    gaps, bins = np.empty((t, n)), np.empty((t, n), np.int8)
    for some, z in _blocks(logits):
        for k, temperature in enumerate(temperatures.tolist()):
            confidence = 1.0 / row_sum(np.exp(z / temperature))
            gaps[k, some] = correct[some] - confidence
            bins[k, some] = bin_index(confidence, BINS)
    gaps = _exact(gaps)
    flat = bins.astype(np.int64) + BINS * np.arange(t)[:, None]
    totals = np.bincount(flat.ravel(), gaps.ravel(), BINS * t)
    return Tables(temperatures, gaps, bins, np.asarray(totals, np.float64).reshape(t, BINS))


def losses(logits: Floats, labels: Integers, temperatures: Floats) -> Floats:
    """Negative log-likelihood of the labels, (t, n), not clipped."""
    found = np.empty((len(temperatures), len(labels)))
    for some, z in _blocks(logits):
        of_label = label_entries(z, labels[some])
        for k, temperature in enumerate(temperatures.tolist()):
            total = row_sum(np.exp(z / temperature))
            found[k, some] = np.log(total) - of_label / temperature
    return _exact(found)


def _blocks(logits: Floats) -> Iterator[tuple[slice, Floats]]:
    """Rows and their shifted logits, a few at a time, so that they stay in the cache."""
    step = max(1, _NUMBERS // logits.shape[1])
    for i in range(0, len(logits), step):
        yield slice(i, i + step), shifted(logits[i : i + step])


def _exact(values: Floats) -> Floats:
    return np.asarray(np.rint(values * _EXACT) / _EXACT)
