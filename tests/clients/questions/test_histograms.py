"""Counts against a plain loop over rows."""

import math

import numpy as np
import pytest
from strategy_checks import some_shards

from fedcal.clients.questions.histograms import (
    ClassCounts,
    ClassHistograms,
    PooledHistograms,
)
from fedcal.core.shards import Shards

CLIENTS = 6


def slow_histograms(shards: Shards, bins: int) -> np.ndarray:
    """(clients, 2, tables, bins) by Algorithm 1, row by row and class by class."""
    c = shards.classes
    columns = [1] if c == 2 else list(range(c))
    counts = np.zeros((shards.clients, 2, len(columns), bins))
    for k in range(shards.clients):
        for i in range(int(shards.offsets[k]), int(shards.offsets[k + 1])):
            z = shards.logits[i].tolist()
            e = [math.exp(v - max(z)) for v in z]
            for t, j in enumerate(columns):
                b = min(math.floor(e[j] / math.fsum(e) * bins), bins - 1)
                counts[k, 0 if shards.labels[i] == j else 1, t, b] += 1
    return counts


def test_bins_are_closed_on_the_left_and_the_last_one_on_both_sides():
    # p_1 = 1/2 (an edge of 4 bins), 1 and 0, each once as positive and once as negative
    logits = np.repeat([[0.0, 0.0], [-1e4, 0.0], [0.0, -1e4]], 2, axis=0)
    labels = np.tile([1, 0], 3)
    shards = Shards.from_owner(logits, labels, np.zeros(6, np.int64), 1)
    got = ClassHistograms(4, shards.classes).sums(shards)
    assert got.tolist() == [[1, 0, 1, 1, 1, 0, 1, 1]]


@pytest.mark.parametrize(("c", "bins"), [(2, 2), (2, 128), (3, 8), (10, 128), (40, 2)])
def test_histograms_are_those_of_a_plain_loop(c, bins):
    shards = some_shards(c, rows=90, clients=CLIENTS)
    want = slow_histograms(shards, bins)
    got = ClassHistograms(bins, c).sums(shards)
    assert np.array_equal(got, want.reshape(CLIENTS, -1))
    pooled = PooledHistograms(bins, c).sums(shards)
    if c == 2:  # each row once, from both sides
        assert np.array_equal(pooled, want[:, 0, 0] + want[:, 1, 0, ::-1])
    else:
        assert np.array_equal(pooled, want.sum(axis=2).reshape(CLIENTS, -1))
    counts = ClassCounts(c).sums(shards)
    each = [np.bincount(shards.labels[shards.owner == k], minlength=c) for k in range(CLIENTS)]
    assert np.array_equal(counts, each)
