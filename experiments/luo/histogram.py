"""Histogram binning of the top-label confidence, for many trials at once (Luo et al., C.2.3)."""

from __future__ import annotations

import numpy as np

from fedcal.calibrators.top_label import Counts, least_value, values_of
from fedcal.experiments.luo.tables import BINS, Tables
from fedcal.metrics.binning import bin_index
from fedcal.types import Floats, Integers


def counts(tables: Tables, rows: Integers | None = None) -> Integers:
    """Wrong and right predictions in each bin.

    Parameters
    ----------
    tables : at T = 1 alone
    rows : (b, k) of each trial; None = all rows, as one trial

    Returns
    -------
    (b, 15, 2)
    """
    code = 2 * tables.bins[0].astype(np.int64) + (tables.gaps[0] >= 0)
    some = code[None, :] if rows is None else code[rows]
    trials = len(some)
    some = some + 2 * BINS * np.arange(trials)[:, None]
    return np.bincount(some.ravel(), minlength=2 * BINS * trials).reshape(trials, BINS, 2)


def bin_values(correct: Floats, other: Floats, counts: Counts, classes: int) -> Floats:
    """The new confidence of each bin, from noisy counts, (b, 15).

    As `TopLabelBinning` does it, for many of them: no confidence is below 1/c, where the
    prediction would be another one.

    Parameters
    ----------
    correct, other : (b, 15) right predictions, and wrong ones or all, as `counts` says
    """
    return np.maximum(values_of(correct, other, counts), least_value(classes))


def test_ece(values: Floats, rest: Integers) -> Floats:
    """ECE of rows that have their bin's value for a confidence, (b,).

    Parameters
    ----------
    values : (b, 15) new confidences
    rest : (b, 15, 2) `counts` of the test rows
    """
    trials, total = len(values), rest.sum(axis=2)
    gaps = rest[:, :, 1] - total * values
    place = bin_index(values, BINS) + BINS * np.arange(trials)[:, None]
    sums = np.bincount(place.ravel(), gaps.ravel(), BINS * trials).reshape(trials, BINS)
    return np.asarray(np.abs(sums).sum(axis=1) / total.sum(axis=1))
