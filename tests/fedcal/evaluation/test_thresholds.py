"""Thresholds chosen from noisy counts: exact without noise, kept promises with it."""

import json
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused

from fedcal.evaluation import Histogram
from fedcal.evaluation.thresholds import _critical, choose_threshold
from fedcal.metrics.buckets import equal_width

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
    cheap = choose_threshold(h, "cost", wanted)
    at = int((fn + wanted * fp).argmin())
    assert cheap.value == h.edges[at]
    assert cheap.estimates["cost"].value == pytest.approx((fn + wanted * fp)[at] / h.counts.sum())
    assert cheap.estimates["recall"].value == pytest.approx(tp[at] / (tp[at] + fn[at]))


@pytest.mark.parametrize(
    ("goal", "wanted", "std"), [("precision", 0.8, 3.7), ("recall", 0.9, 0.0), ("recall", 0.9, 3.7)]
)
def test_confidence_is_kept_and_an_estimate_is_a_coin(goal, wanted, std):
    truth, kept, plain, covered = truths(goal), [], [], []
    for seed in range(60):
        h = histogram(5000, std, seed)
        sure = choose_threshold(h, goal, wanted, confident=True, seed=seed)
        kept.append(truth[round(sure.value * B)] >= wanted)
        found = choose_threshold(h, goal, wanted, seed=seed)
        plain.append(truth[round(found.value * B)] >= wanted)
        e = found.estimates[goal]
        covered.append(e.low <= truth[round(found.value * B)] <= e.high)
    assert np.mean(kept) >= 0.95
    assert 0.2 < np.mean(plain) < 0.9
    assert np.mean(covered) >= 0.95


@pytest.mark.parametrize("std", [0.0, 3.7])
def test_intervals_of_a_choice_hold_for_all_thresholds_at_once(std):
    """Both quantiles are those of the largest studentised error; intervals take the two-sided."""
    h = histogram(5000, std, 0)
    one_sided, two_sided = _critical(h, "cost", 0.5, 0.95, 3)
    rng, draws = np.random.default_rng(1), 4000
    errors = rng.standard_normal((draws, 2, B)) * np.sqrt(5000 * POPULATION)
    errors += std * rng.standard_normal(errors.shape)
    negative, positive = (np.cumsum(errors[:, k, ::-1], axis=1)[:, ::-1] for k in (0, 1))
    cost = positive[:, :1] - positive + 0.5 * negative  # fn + fp / 2 from each threshold on
    off = cost / cost.std(axis=0)
    assert one_sided == pytest.approx(np.quantile(off.max(axis=1), 0.95), abs=0.1)
    assert two_sided == pytest.approx(np.quantile(abs(off).max(axis=1), 0.95), abs=0.1)
    assert two_sided > one_sided + 0.15
    made, again = (choose_threshold(h, "cost", 0.5, seed=3) for _ in range(2))
    assert json.dumps(made.to_json(), allow_nan=False) == json.dumps(again.to_json())
    found = made.estimates["cost"]
    half = two_sided * np.hypot(found.sampling, found.noise)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.01)


def test_what_no_threshold_reaches_is_said_and_bad_wishes_refused():
    h, few, drowned = histogram(), histogram(100, 1.0, 0), histogram(10, 50.0, 0)
    sure = {"confident": True}
    table: list[tuple[tuple[Any, ...], str]] = [
        ((h, "precision", 0.99999, {}), r"precision of 0\.99999: the highest estimate is 0\.9999"),
        ((few, "recall", 0.999, sure), "of 0.999 with 95 % confidence, though estimates do"),
        ((drowned, "recall", 0.5, {}), "noise drowns the counts"),
        ((h, "auc", 0.5, {}), "unknown goal 'auc'"),
        ((h, "precision", 1.0, {}), r"must be in \(0, 1\)"),
        ((h, "recall", 0.0, {}), "> 0"),
        ((h, "cost", -1.0, {}), "> 0"),
        ((h, "cost", 1.0, sure), "not for a cost"),
        ((h, "recall", 0.5, {"level": 1.0}), "level"),
    ]
    each_is_refused(table, lambda given: choose_threshold(*given[:3], **given[3]))
