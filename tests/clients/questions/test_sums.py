"""Sums of clients against plain loops over rows: histograms, searches, Newton's derivatives."""

import math

import numpy as np
import pytest
from strategy_checks import some_shards

from fedcal.clients.questions import temperature
from fedcal.clients.questions.histograms import (
    BinOutcomes,
    ClassCounts,
    ClassHistograms,
    PooledHistograms,
)
from fedcal.clients.questions.score_cell import ScoreCell
from fedcal.clients.questions.search import AccuracyGap, CalibrationGaps, ClippedNLL
from fedcal.clients.questions.temperature import TemperatureNewton, TemperatureScores
from fedcal.core.fitting import log_grid
from fedcal.core.numerics import Floats
from fedcal.core.shards import Shards

CLIENTS = 5
TEMPERATURES = np.array([0.5, 0.9, 1.0, 1.7, 3.0])


def slow_softmax(z: list[float], a: float = 1.0) -> list[float]:
    e = [math.exp(a * (v - max(z))) for v in z]
    total = math.fsum(e)
    return [v / total for v in e]


def slow_histograms(shards: Shards, bins: int) -> Floats:
    """(clients, 2, tables, bins) by Algorithm 1, row by row and class by class."""
    c = shards.classes
    columns = [1] if c == 2 else list(range(c))
    counts = np.zeros((shards.clients, 2, len(columns), bins))
    for k, z, y in zip(shards.owner, shards.logits.tolist(), shards.labels, strict=True):
        p = slow_softmax(z)
        for t, j in enumerate(columns):
            counts[k, int(y != j), t, min(math.floor(p[j] * bins), bins - 1)] += 1
    return counts


@pytest.mark.parametrize(("c", "bins"), [(2, 128), (3, 8), (40, 2)])
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
    each = [np.bincount(shards.labels[shards.owner == k], minlength=c) for k in range(CLIENTS)]
    assert np.array_equal(ClassCounts(c).sums(shards), each)


def test_one_row_changes_the_counts_of_outcomes_by_its_sensitivity():
    shards = some_shards(3, rows=200, clients=CLIENTS)
    rows = shards.each_row()
    correct = shards.logits.argmax(axis=1) == shards.labels
    for counts, want in (("correct_wrong", np.ones(200)), ("correct_total", 1.0 + correct)):
        query = BinOutcomes(15, counts)
        assert np.array_equal(query.sums(rows).sum(axis=1), want)


def test_each_row_of_a_client_is_drawn_equally_often():
    shards = some_shards(3, rows=40, clients=CLIENTS)  # the first and the last have none
    counts = np.roll(BinOutcomes(5, "correct_wrong").sums(shards), 5, axis=1)  # wrong first
    draws = 1000
    cells = np.array(
        [ScoreCell(3, np.array([5.0]), 1, 0, seed).sums(shards) for seed in range(draws)]
    )
    assert (cells.sum(axis=2) == [0.0, 1.0, 1.0, 1.0, 0.0]).all()
    assert not cells[:, counts == 0].any()
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # five standard errors of a share
    assert np.abs(cells.mean(axis=0) - share).max() < 5 * np.sqrt(0.25 / draws)


@pytest.mark.parametrize("c", [2, 10, 50])
def test_sums_at_a_temperature_are_their_slow_twins(c):
    """These are the sums of a search, and Newton's G and H as they are defined."""
    shards, many = some_shards(c, rows=80, clients=CLIENTS, scale=3.0), len(TEMPERATURES)
    shards.logits[::9] = np.round(shards.logits[::9] / 4)  # some tie
    gap, loss, g, h = np.zeros((4, CLIENTS, many))
    bins = np.zeros((CLIENTS, many, 15))
    for i, t in enumerate(TEMPERATURES.tolist()):
        for k, z, y in zip(shards.owner, shards.logits.tolist(), shards.labels, strict=True):
            p = slow_softmax(z, 1 / t)
            confidence = max(p)
            correct = z.index(max(z)) == y
            gap[k, i] += correct - confidence
            loss[k, i] += min(-math.log(p[y]), 2.0) if p[y] else 2.0
            bins[k, i, min(int(confidence * 15), 14)] += correct - confidence
            mean = math.fsum(q * v for q, v in zip(p, z, strict=True))
            g[k, i] += (mean - z[y]) / t
            h[k, i] += math.fsum(q * (v - mean) ** 2 for q, v in zip(p, z, strict=True)) / t**2
    near, single = {"rel": 1e-10, "abs": 1e-10}, {"rel": 1e-6, "abs": 1e-5}
    for i, t in enumerate(TEMPERATURES.tolist()):
        both = np.stack([g[:, i], h[:, i]], axis=1)
        for query, expected, within in (
            (AccuracyGap(t), gap[:, i], near),
            (ClippedNLL(t, 2.0), loss[:, i], near),
            (CalibrationGaps(t, 15), bins[:, i], near),
            (TemperatureNewton(-math.log(t), c), both, near),
            (TemperatureScores(t, 9.0, 1), g[:, i], single),
        ):
            assert query.sums(shards) == pytest.approx(expected.reshape(CLIENTS, -1), **within)
    assert ClippedNLL(TEMPERATURES, 2.0).sums(shards) == pytest.approx(loss, **near)
    gaps = CalibrationGaps(TEMPERATURES, 15).sums(shards)
    assert gaps == pytest.approx(bins.reshape(CLIENTS, -1), **near)


@pytest.mark.parametrize("classes", [2, 10, 200])
def test_scores_between_the_nodes_are_those_of_each_temperature(classes):
    rng = np.random.default_rng(0)
    rows = []
    for scale in (0.01, 1.0, 10.0, 300.0):
        rows.append(rng.normal(0, scale, (30, classes)))
        rows.append(np.zeros((30, classes)))
        rows[-1][:, 0] = np.linspace(0, 3 * scale, 30)  # all others equally far: the hardest
    z = np.concatenate(rows)
    shards = Shards(z, rng.integers(0, classes, len(z)), np.arange(len(z) + 1))
    query = TemperatureScores(0.25, 8.0, 257)
    assert len(temperature.score_nodes(query, classes)) < 100
    every = [TemperatureScores(t, 9.0, 1) for t in np.exp(log_grid(0.25, 8.0, 257))]
    exact = np.concatenate([one.sums(shards) for one in every], axis=1)
    np.testing.assert_allclose(query.sums(shards), exact, rtol=0, atol=1e-5)
