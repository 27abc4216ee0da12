"""Counts against a plain loop over rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedcal.clients.histograms import class_counts, class_histograms, pooled_histograms
from fedcal.queries import ClassCounts, ClassHistograms, PooledHistograms
from fedcal.shards import Shards

CLIENTS = 6


def some_shards(c: int, rows: int = 90) -> Shards:
    """Rows of clients 1 to 4 of 6."""
    rng = np.random.default_rng(c)
    owner = rng.integers(1, CLIENTS - 1, rows)
    return Shards.from_owner(rng.normal(0, 3, (rows, c)), rng.integers(0, c, rows), owner, CLIENTS)


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


@pytest.mark.parametrize("c", [2, 3, 10, 40])
@pytest.mark.parametrize("bins", [2, 8, 128])
def test_histograms_are_those_of_a_plain_loop(c: int, bins: int) -> None:
    shards = some_shards(c)
    got = class_histograms(shards, ClassHistograms(bins, shards.classes))
    assert np.array_equal(got, slow_histograms(shards, bins).reshape(CLIENTS, -1))
    assert got.sum() == len(shards.labels) * (1 if c == 2 else c)


def test_bins_are_closed_on_the_left_and_the_last_one_on_both_sides() -> None:
    # p_1 = 1/2 (an edge of 4 bins), 1 and 0, each once as positive and once as negative
    logits = np.repeat([[0.0, 0.0], [-1e4, 0.0], [0.0, -1e4]], 2, axis=0)
    labels = np.tile([1, 0], 3)
    shards = Shards.from_owner(logits, labels, np.zeros(6, np.int64), 1)
    got = class_histograms(shards, ClassHistograms(4, shards.classes))
    assert got.tolist() == [[1, 0, 1, 1, 1, 0, 1, 1]]


@pytest.mark.parametrize("c", [2, 3, 10])
def test_class_counts_are_those_of_a_plain_loop(c: int) -> None:
    shards = some_shards(c)
    want = np.zeros((CLIENTS, c))
    for k in range(CLIENTS):
        for i in range(int(shards.offsets[k]), int(shards.offsets[k + 1])):
            want[k, shards.labels[i]] += 1
    assert np.array_equal(class_counts(shards, ClassCounts(shards.classes)), want)


@pytest.mark.parametrize("c", [3, 10, 40])
@pytest.mark.parametrize("bins", [2, 128])
def test_pooled_histograms_are_the_sum_over_classes(c: int, bins: int) -> None:
    shards = some_shards(c)
    got = pooled_histograms(shards, PooledHistograms(bins, shards.classes))
    want = slow_histograms(shards, bins).sum(axis=2)
    assert np.array_equal(got, want.reshape(CLIENTS, -1))
    rows = np.diff(shards.offsets)
    assert np.array_equal(got[:, :bins].sum(axis=1), rows)
    assert np.array_equal(got[:, bins:].sum(axis=1), (c - 1) * rows)


@pytest.mark.parametrize("bins", [2, 8, 128])
def test_pooled_histograms_of_two_classes_count_each_row_once(bins: int) -> None:
    shards = some_shards(2)
    got = pooled_histograms(shards, PooledHistograms(bins, shards.classes))
    each = slow_histograms(shards, bins)[:, :, 0]
    assert np.array_equal(got, each[:, 0] + each[:, 1, ::-1])
    assert got.shape == (CLIENTS, bins)
    assert np.array_equal(got.sum(axis=1), np.diff(shards.offsets))
