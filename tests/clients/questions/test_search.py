"""What a search over temperatures asks for, against loops in plain Python and other modules."""

import math

import numpy as np
import pytest
from strategy_checks import some_shards

from fedcal.clients.questions.search import AccuracyGap, CalibrationGaps, ClippedNLL

CLIENTS = 5
TEMPERATURES = np.array([0.5, 0.9, 1.0, 1.7, 3.0])


def slow_row(z: list[float], y: int, t: float) -> tuple[bool, float, float]:
    """Correct, confidence and negative log-likelihood of one row."""
    e = [math.exp((v - max(z)) / t) for v in z]
    total = math.fsum(e)
    return z.index(max(z)) == y, max(e) / total, math.log(total) - (z[y] - max(z)) / t


@pytest.mark.parametrize("c", [2, 10, 50])
def test_each_is_its_slow_twin(c):
    shards, many = some_shards(c, rows=80, clients=CLIENTS, scale=3.0), len(TEMPERATURES)
    shards.logits[::9] = np.round(shards.logits[::9] / 4)  # some tie
    gap, loss = np.zeros((CLIENTS, many)), np.zeros((CLIENTS, many))
    bins = np.zeros((CLIENTS, many, 15))
    for i, t in enumerate(TEMPERATURES.tolist()):
        for k, z, y in zip(shards.owner, shards.logits.tolist(), shards.labels, strict=True):
            correct, confidence, cost = slow_row(z, int(y), t)
            gap[k, i] += correct - confidence
            loss[k, i] += min(cost, 2.0)
            bins[k, i, min(int(confidence * 15), 14)] += correct - confidence
    bins = bins.reshape(CLIENTS, -1)
    assert AccuracyGap(TEMPERATURES).sums(shards) == pytest.approx(gap, abs=1e-10)
    assert ClippedNLL(TEMPERATURES, 2.0).sums(shards) == pytest.approx(loss, abs=1e-10)
    gaps = CalibrationGaps(TEMPERATURES, 15).sums(shards)
    assert gaps == pytest.approx(bins, abs=1e-10)
