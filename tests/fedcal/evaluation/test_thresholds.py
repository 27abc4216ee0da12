"""Thresholds chosen from noisy counts: exact without noise, kept promises with it."""

import json
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused

from fedcal.evaluation import Histogram, evaluate
from fedcal.evaluation.thresholds import _critical, choose_threshold
from fedcal.metrics.binning import equal_width

B = 60
MIDDLES = (np.arange(B) + 0.5) / B
SHARE = MIDDLES**2 / (MIDDLES**2 + (1 - MIDDLES) ** 2)
POPULATION = np.stack([1 - SHARE, SHARE]) * np.array([4.0, 1, 1, 1, 1, 3]).repeat(B // 6) / 110


def histogram(rows: float = 5000, std: float = 0.0, seed: int | None = None) -> Histogram:
    """Expected counts, or drawn ones with noise."""
    counts, root = rows * POPULATION, std * np.eye(B)
    if seed is None:
        return Histogram.exact(equal_width(B), counts)
    rng = np.random.default_rng(seed)
    h = Histogram(equal_width(B), rng.poisson(counts).astype(float), root)
    return Histogram(h.edges, h.counts + h.draws(rng, 1)[0], root)


def table(h: Histogram, at: int) -> np.ndarray:
    """(tn, fp, fn, tp)."""
    low, high = h.counts[:, :at].sum(axis=1), h.counts[:, at:].sum(axis=1)
    return np.array([low[0], high[0], low[1], high[1]])


def truths(goal: str) -> np.ndarray:
    """Of new rows, at each threshold."""
    cells = np.array([table(histogram(), at) for at in range(B)]).T
    return cells[3] / (cells[3] + cells[1 if goal == "precision" else 2])


@pytest.mark.parametrize("wanted", [0.3, 0.6, 0.8, 0.95])
def test_without_noise_it_is_what_a_search_finds(wanted):
    h = histogram(seed=1)
    cells = np.array([table(h, at) for at in range(B)]).T
    _, fp, fn, tp = cells
    low = choose_threshold(h, "precision", wanted)
    assert low.value == h.edges[np.flatnonzero(tp / (tp + fp) >= wanted)[0]]
    high = choose_threshold(h, "recall", wanted)
    assert high.value == h.edges[np.flatnonzero(tp / (tp + fn) >= wanted)[-1]]


@pytest.mark.parametrize(
    ("goal", "wanted", "std"), [("precision", 0.8, 3.7), ("recall", 0.9, 0.0), ("recall", 0.9, 3.7)]
)
def test_an_estimate_is_a_coin_and_its_interval_is_not(goal, wanted, std):
    truth, plain, covered = truths(goal), [], []
    for seed in range(60):
        h = histogram(5000, std, seed)
        found = choose_threshold(h, goal, wanted, seed=seed)
        plain.append(truth[round(found.value * B)] >= wanted)
        e = found.estimates[goal]
        covered.append(e.low <= truth[round(found.value * B)] <= e.high)
    assert 0.2 < np.mean(plain) < 0.9
    assert np.mean(covered) >= 0.95


@pytest.mark.parametrize("std", [0.0, 3.7])
def test_intervals_of_a_choice_hold_for_all_thresholds_at_once(std):
    """Their quantile is that of the largest studentised error."""
    h = histogram(5000, std, 0)
    critical = _critical(h, "recall", 0.95, 3)
    rng, draws = np.random.default_rng(1), 4000
    errors = rng.standard_normal((draws, 2, B)) * np.sqrt(5000 * POPULATION)
    errors += std * rng.standard_normal(errors.shape)
    positive = np.cumsum(errors[:, 1, ::-1], axis=1)[:, ::-1]
    recall = np.cumsum(h.counts[1, ::-1])[::-1] / h.counts[1].sum()
    sums = (positive - recall * positive[:, :1])[:, 1:]  # at the first edge it is 1
    off = np.abs(sums / sums.std(axis=0)).max(axis=1)
    assert critical == pytest.approx(np.quantile(off, 0.95), abs=0.15)
    made, again = (choose_threshold(h, "recall", 0.9, seed=3) for _ in range(2))
    assert json.dumps(made.to_json(), allow_nan=False) == json.dumps(again.to_json())
    plain = evaluate(h, "positive", threshold=made.value, only=("recall",))["recall"]
    assert made.estimates["recall"].high - made.estimates["recall"].low > plain.high - plain.low


def test_what_no_threshold_reaches_is_said_and_bad_wishes_refused():
    h, drowned = histogram(), histogram(10, 50.0, 0)
    table: list[tuple[tuple[Any, ...], str]] = [
        ((h, "precision", 0.99999, {}), r"precision of 0\.99999: the highest estimate is 0\.9999"),
        ((drowned, "recall", 0.5, {}), "noise drowns the counts"),
        ((h, "auc", 0.5, {}), "unknown goal 'auc'"),
        ((h, "precision", 1.0, {}), r"must be in \(0, 1\)"),
        ((h, "recall", 0.0, {}), r"in \(0, 1\)"),
        ((h, "cost", 0.5, {}), "unknown goal"),
        ((h, "recall", 0.5, {"level": 1.0}), "level"),
    ]
    each_is_refused(table, lambda given: choose_threshold(*given[:3], **given[3]))
