"""Tests of drift between two releases: right size with noise, and power."""

import json

import numpy as np
import pytest

from fedcal.evaluation import Histogram
from fedcal.evaluation.drift import drift_between
from fedcal.metrics.binning import equal_width
from fedcal.metrics.score_table import decoder_of

B = 60
EDGES = equal_width(B)
MIDDLES = (np.arange(B) + 0.5) / B
SCORES = np.array([4.0, 1, 1, 1, 1, 3]).repeat(B // 6) / 110
ROOTS = {
    "none": np.zeros((B, 0)),
    "flat": 3.7 * np.eye(B),
    "prefix": 3.7 * 128 * 1.7 * decoder_of("prefix", B, 1),
}


def release(
    scores: np.ndarray, share: np.ndarray, rows: float, root: np.ndarray, seed: int
) -> Histogram:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rows * scores * np.stack([1 - share, share])).astype(float)
    h = Histogram(EDGES, counts, root)
    return Histogram(EDGES, counts + h.draws(rng, 1)[0], root)


def p_values(later_scores: np.ndarray, later_share: np.ndarray, noise: str, n: int) -> np.ndarray:
    """(n, 3) of score, calibration, prevalence."""
    found = []
    for seed in range(n):
        a = release(SCORES, MIDDLES, 4000, ROOTS[noise], 2 * seed)
        b = release(later_scores, later_share, 3000, ROOTS[noise], 2 * seed + 1)
        tests = drift_between(a, b, draws=199, seed=seed)
        found.append([tests[name].p_value for name in ("score", "calibration", "prevalence")])
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ROOTS)
def test_without_drift_five_in_a_hundred_are_found(noise):
    p = p_values(SCORES, MIDDLES, noise, 1000)
    assert (np.abs((p <= 0.05).mean(axis=0) - 0.05) <= 0.015).all(), (p <= 0.05).mean(axis=0)
    assert (np.abs((p <= 0.5).mean(axis=0) - 0.5) <= 0.05).all()


MOVED = np.roll(SCORES, 4)
SURER = MIDDLES**1.5 / (MIDDLES**1.5 + (1 - MIDDLES) ** 1.5)
FEWER = MIDDLES * 0.93


@pytest.mark.parametrize("noise", ROOTS)
def test_what_has_changed_is_found(noise):
    """Other scores, a steeper share of outcomes, a lower one, and fewer outcomes in all."""
    for scores, share, found in (
        (MOVED, MIDDLES, (0,)),
        (SCORES, SURER, (1,)),
        (SCORES, FEWER, (1, 2)),
    ):
        p = p_values(scores, share, noise, 20)
        assert ((p[:, found] <= 0.05).mean(axis=0) >= 0.65).all()
        if found == (0,):  # other scores alone are no change of calibration
            assert (p[:, 1] <= 0.05).mean() <= 0.15


def test_what_a_change_is_worth_is_a_difference_of_shares():
    a = Histogram.exact(EDGES, 1e5 * SCORES * np.stack([1 - MIDDLES, MIDDLES]))
    less = MIDDLES - 0.1 * (MIDDLES > 0.2)
    b = Histogram.exact(EDGES, 2e4 * SCORES * np.stack([1 - less, less]))
    found = drift_between(a, b, draws=99)
    above = SCORES[MIDDLES > 0.2].sum() / SCORES.sum()
    assert found["prevalence"].change == pytest.approx(-0.1 * above)
    assert found["calibration"].change == pytest.approx(0.1 * above, rel=0.02)
    assert found["score"].change == pytest.approx(0, abs=1e-12)
    assert found["calibration"].p_value == 0.01
    assert json.loads(json.dumps(found["score"].to_json()))["p_value"] > 0.5
    assert drift_between(a, b, draws=99) == found
