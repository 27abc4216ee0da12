"""Calibrators from noisy histograms: right without noise, sensible under it, never charged."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcal import datasets
from fedcal.calibrators.score_map import calibrator_from, logistic, probability
from fedcal.evaluation import Histogram
from fedcal.metrics.score_table import bucket_of, equal_width, scored

B = 240
HOWS = ("platt", "beta")
SETS = ("imdb-binary", "game-forecasts", "resnet110-cifar10")


@cache
def halves(name: str) -> datasets.Dataset:
    return datasets.load(name).split(0)


@cache
def exact(name: str) -> Histogram:
    """The counts of a set's rows for fitting."""
    d = halves(name)
    scores, outcomes = scored(d.probs, d.labels, score_of(name))
    cells = (bucket_of(scores, equal_width(B)) + B * outcomes).ravel()
    counts = np.bincount(cells, minlength=2 * B).reshape(2, B)
    return Histogram.exact(equal_width(B), counts.astype(np.float64))


def score_of(name: str) -> str:
    return "positive" if halves(name).classes == 2 else "confidence"


def test_platt_and_beta_are_maximum_likelihood():
    linear_model = pytest.importorskip("sklearn.linear_model")
    h = exact("imdb-binary")
    x = np.stack([np.log(h.middles), -np.log1p(-h.middles)], axis=1)
    y, weight = np.repeat([0, 1], B), h.counts.ravel()

    def fitted(x: np.ndarray) -> np.ndarray:
        model = linear_model.LogisticRegression(C=1e6, tol=1e-10, max_iter=1000)
        model.fit(np.tile(x, (2, 1)), y, sample_weight=weight)
        return np.append(model.coef_[0], model.intercept_)

    slope, c = fitted(x.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(logistic(h, "platt"), [slope, slope, c], atol=1e-3)
    np.testing.assert_allclose(logistic(h, "beta"), fitted(x), atol=2e-3)
    for curve in ("platt", "beta"):  # a slope that would be negative is none
        a, b, c = logistic(Histogram.exact(h.edges, h.counts[::-1]), curve)
        assert a == b == 0
        assert probability(np.array([a, b, c]), h.middles)[0] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "how"), [(SETS[0], "platt"), (SETS[1], "beta"), (SETS[2], "platt")]
)
def test_fit_counts_pooled_rows_and_makes_the_same(name, how):
    d = halves(name)
    made = calibrator_from(exact(name), score_of(name), how, d.classes, d.input)
    fitted = type(made)(how=how).fit(d.scores, d.labels, input=d.input)
    for key, array in made.arrays().items():
        np.testing.assert_array_equal(fitted.arrays()[key], array)


@settings(max_examples=60, deadline=None)
@given(
    buckets=st.integers(1, 40),
    rows=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
    std=st.sampled_from([0.0, 1.0, 100.0]),
    how=st.sampled_from(HOWS),
    seed=st.integers(0, 10**6),
)
def test_any_counts_give_a_calibrator(buckets, rows, std, how, seed):
    rng = np.random.default_rng(seed)
    edges = np.sort(np.append(rng.uniform(0.01, 0.99, buckets - 1), [0.0, 1.0]))
    if (np.diff(edges) <= 0).any():
        return
    counts = np.floor(rng.uniform(0, 1, (2, buckets)) * rows)
    h = Histogram(edges, counts + std * rng.normal(size=(2, buckets)), std * np.eye(buckets))
    made = calibrator_from(h, "positive", how, 2, "logits")
    probs = made.predict_proba(np.stack([np.zeros(50), np.linspace(-40, 40, 50)], axis=1))
    assert ((probs >= 0) & (probs <= 1)).all()
    assert (np.diff(probs[:, 1]) >= 0).all()
