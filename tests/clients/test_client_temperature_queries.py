"""What a search over temperatures asks for, against loops in plain Python and other modules."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcal.calibrators import TemperatureScaling
from fedcal.clients.temperature_queries import accuracy_gap, calibration_gaps, clipped_nll
from fedcal.metrics import accuracy, ece, nll
from fedcal.queries import AccuracyGap, CalibrationGaps, ClippedNLL
from fedcal.shards import Shards
from fedcal.types import Floats

CLIENTS = 5
TEMPERATURES = np.array([0.5, 0.9, 1.0, 1.7, 3.0])


def some_shards(c: int, rows: int = 80, seed: int = 0) -> Shards:
    """Rows of clients 0 to 3 of 5; some logits tie."""
    rng = np.random.default_rng([c, seed])
    labels, owner = rng.integers(0, c, rows), rng.integers(0, CLIENTS - 1, rows)
    logits = rng.normal(0, 3, (rows, c))
    logits[np.arange(rows), labels] += 4
    logits[::9] = np.round(logits[::9] / 4)
    return Shards.from_owner(logits, labels, owner, CLIENTS)


def pooled(shards: Shards) -> Shards:
    return Shards.from_owner(shards.logits, shards.labels, np.zeros(len(shards.labels), int), 1)


def slow_row(z: list[float], y: int, t: float) -> tuple[bool, float, float]:
    """Correct, confidence and negative log-likelihood of one row."""
    e = [math.exp((v - max(z)) / t) for v in z]
    total = math.fsum(e)
    return z.index(max(z)) == y, max(e) / total, math.log(total) - (z[y] - max(z)) / t


def rows_of(shards: Shards, k: int) -> list[tuple[list[float], int]]:
    a, b = int(shards.offsets[k]), int(shards.offsets[k + 1])
    return [(shards.logits[i].tolist(), int(shards.labels[i])) for i in range(a, b)]


@pytest.mark.parametrize("c", [2, 10, 50])
@pytest.mark.parametrize("t", TEMPERATURES.tolist())
def test_each_is_its_slow_twin(c: int, t: float) -> None:
    shards = some_shards(c)
    gap, loss = np.zeros((CLIENTS, 1)), np.zeros((CLIENTS, 1))
    bins = np.zeros((CLIENTS, 15))
    for k in range(CLIENTS):
        for z, y in rows_of(shards, k):
            correct, confidence, cost = slow_row(z, y, t)
            gap[k] += correct - confidence
            loss[k] += min(cost, 2.0)
            bins[k, min(int(confidence * 15), 14)] += correct - confidence
    assert accuracy_gap(shards, AccuracyGap(t)) == pytest.approx(gap, abs=1e-10)
    assert clipped_nll(shards, ClippedNLL(t, 2.0)) == pytest.approx(loss, abs=1e-10)
    assert calibration_gaps(shards, CalibrationGaps(t, 15)) == pytest.approx(bins, abs=1e-10)


@pytest.mark.parametrize("c", [2, 10])
def test_pooled_they_are_the_metrics_of_the_scaled_model(c: int) -> None:
    shards = pooled(some_shards(c, rows=500))
    n = len(shards.labels)
    for t in TEMPERATURES.tolist():
        probs = TemperatureScaling(t, c).predict_proba(shards.logits)
        gap = accuracy(probs, shards.labels) - probs.max(axis=1).mean()
        assert accuracy_gap(shards, AccuracyGap(t))[0, 0] / n == pytest.approx(gap, abs=1e-12)
        loss = clipped_nll(shards, ClippedNLL(t, 100.0))[0, 0] / n
        assert loss == pytest.approx(nll(probs, shards.labels))
        gaps = np.abs(calibration_gaps(shards, CalibrationGaps(t, 15))).sum() / n
        assert gaps == pytest.approx(ece(probs, shards.labels), abs=1e-12)


EACH = [
    (accuracy_gap, AccuracyGap, 1.0),
    (clipped_nll, partial(ClippedNLL, nll_clip=10.0), 10.0),
    (calibration_gaps, partial(CalibrationGaps, bins=15), 1.0),
]
"""Statistic, its question, and what a row adds to it at most."""


def test_a_vector_of_temperatures_is_one_after_the_other() -> None:
    shards = some_shards(10)
    for statistic, query, _ in EACH:
        each = [statistic(shards, query(t)) for t in TEMPERATURES.tolist()]
        together = statistic(shards, query(TEMPERATURES))
        assert together.tobytes() == np.concatenate(each, axis=1).tobytes()


def test_the_gap_rises_with_the_temperature() -> None:
    gaps = accuracy_gap(some_shards(10), AccuracyGap(np.linspace(0.2, 9, 40)))
    assert (np.diff(gaps[:4]) > 0).all()


def norms(x: Floats) -> Floats:
    return np.asarray(np.abs(x).sum(axis=1))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    c=st.integers(2, 12),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e6]),
    t=st.floats(0.5, 3.0),
)
def test_one_row_more_changes_a_client_by_at_most_the_stated_bound(
    seed: int, c: int, scale: float, t: float
) -> None:
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(0, 1, (9, c)) * scale, rng.integers(0, c, 9)
    owner = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])
    whole = Shards.from_owner(logits, labels, owner, 3)
    keep = np.arange(9) != 4
    less = Shards.from_owner(logits[keep], labels[keep], owner[keep], 3)
    for statistic, query, bound in EACH:
        change = statistic(whole, query(t)) - statistic(less, query(t))
        assert not change[[0, 2]].any()
        assert norms(change)[1] <= bound + 1e-9
