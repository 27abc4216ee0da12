"""Sums that a search for a temperature (Luo et al., C.2), or for the accuracy, asks for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedcal.calibrators.top_label import top_confidence
from fedcal.clients.statistics.temperature import correct, label_logits, shifted_logits
from fedcal.core.numerics import row_sum
from fedcal.core.shards import Shards
from fedcal.core.types import Floats
from fedcal.metrics.binning import bin_index
from fedcal.queries import AccuracyGap, CalibrationGaps, ClippedNLL, MeanGaps
from fedcal.queries.search import TemperatureQuery


def accuracy_gap(shards: Shards, query: AccuracyGap) -> Floats:
    """sum_i (correct_i - conf_i(T)): its root makes mean confidence equal accuracy (Acc-T).

    It rises with T. A row adds less than 1 in absolute value.

    Returns (clients, temperatures) in rows.
    """
    return _each(shards, query, lambda t: shards.sum_rows(_gap(shards, t))[:, None])


def clipped_nll(shards: Shards, query: ClippedNLL) -> Floats:
    """sum_i min(-log p_i(y_i; T), clip), in nats (NLL-T).

    Returns (clients, temperatures) in nats.
    """
    clip = query.nll_clip

    def total(t: float) -> Floats:
        z, of_label = shifted_logits(shards) / t, label_logits(shards) / t
        return shards.sum_rows(np.minimum(np.log(row_sum(np.exp(z))) - of_label, clip))[:, None]

    return _each(shards, query, total)


def calibration_gaps(shards: Shards, query: CalibrationGaps) -> Floats:
    """sum_{i in b} (correct_i - conf_i(T)) of each bin b of the confidence at T (ECE-T).

    A row is in one bin, so it adds less than 1 in L1 norm.

    Returns (clients, temperatures * bins) in rows, the bins of one temperature together.
    """
    bins = query.bins

    def gaps(t: float) -> Floats:
        confidence = top_confidence(shifted_logits(shards) / t)
        cells = bin_index(confidence, bins)
        return shards.sum_rows(correct(shards) - confidence, cells, bins)

    return _each(shards, query, gaps)


def mean_gaps(shards: Shards, query: MeanGaps) -> Floats:
    """sum_i (correct_i - a) of each candidate a, times the gain.

    Returns (clients, points) in rows.
    """
    each = shards.weights(query.subject_rows)
    total, rows = shards.sum_rows(correct(shards) * each), shards.sum_rows(each)
    return np.asarray((total[:, None] - rows[:, None] * query.candidates) * query.gain)


def _each(shards: Shards, query: TemperatureQuery, one: Callable[[float], Floats]) -> Floats:
    """Return the answers to each temperature, (clients, numbers) each, side by side."""
    if not len(shards.labels):
        return np.zeros((shards.clients, sum(query.lengths())))
    return np.concatenate([one(t) for t in query.each], axis=1)


def _gap(shards: Shards, temperature: float) -> Floats:
    return np.asarray(correct(shards) - top_confidence(shifted_logits(shards) / temperature))
