"""FedCal's MLP: the definition, its gradient, the ranking, one step for many, the pooled fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcal.calibrators import OrderPreservingMLP
from fedcal.calibrators import order_preserving as order_preserving_mlp
from fedcal.calibrators.order_preserving import LOWEST, sorted_log_probs
from fedcal.core.numerics import softmax, softplus


def rows(classes: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([classes, n])
    return rng.normal(scale=4, size=(n, classes)), rng.integers(0, classes, n)


def parameters(classes: int, scale: float = 0.2) -> np.ndarray:
    w = OrderPreservingMLP.identity(classes)
    return np.asarray(w + np.random.default_rng(classes).normal(scale=scale, size=w.shape))


@pytest.mark.parametrize("classes", [2, 10])
def test_scores_are_those_of_the_network_written_out(classes):
    z, _ = rows(classes)
    w, y = parameters(classes), sorted_log_probs(z)[0]
    sizes = [(classes, 64), (64,), (64, 64), (64,), (64, classes), (classes,)]
    cuts = np.cumsum([int(np.prod(s)) for s in sizes])
    w1, b1, w2, b2, w3, b3 = (
        part.reshape(s) for part, s in zip(np.split(w, cuts[:-1]), sizes, strict=True)
    )
    x = np.maximum(y, LOWEST) / abs(LOWEST)
    m = np.maximum(np.maximum(x @ w1 + b1, 0) @ w2 + b2, 0) @ w3 + b3
    steps = (y[:, :-1] - y[:, 1:]) * softplus(m[:, :-1])
    want = np.concatenate([np.cumsum(steps[:, ::-1], axis=1)[:, ::-1], np.zeros((40, 1))], axis=1)
    got = OrderPreservingMLP.scores(y, w)
    np.testing.assert_allclose(got - got[:, -1:], want, rtol=1e-10, atol=1e-10)


numbers = st.one_of(
    st.sampled_from([0.0, 1.0, 5e-324, 700.0, -745.0, 1e100, -1e100]),
    st.floats(-30, 30),
    st.floats(-1e100, 1e100),
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=1, max_size=5),
    st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e6, 1e100]),
    st.integers(0, 2**32 - 1),
)
def test_the_ranking_never_turns_and_the_prediction_stays(z, scale, seed):
    w = np.random.default_rng(seed).uniform(-scale, scale, OrderPreservingMLP.size(4))
    logits = np.array(z)
    p = OrderPreservingMLP(w, 4).calibrated(logits)
    order = np.argsort(-logits, axis=1, kind="stable")
    falling, ranked = (np.take_along_axis(a, order, axis=1) for a in (p, logits))
    tied = ranked[:, 1:] == ranked[:, :-1]
    # a tie at the top may be an ulp or two above what follows it, never below
    assert (falling[:, 1:] <= falling[:, :-1]).all()
    np.testing.assert_array_equal(falling[:, 1:][tied], falling[:, :-1][tied])
    np.testing.assert_array_equal(p.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("classes", [2, 100])
def test_the_gradient_of_a_batch_is_the_weighted_sum_over_its_rows(classes):
    z, labels = rows(classes, 24)
    y, rank = OrderPreservingMLP.features(z, labels)
    w = np.stack([parameters(classes), parameters(classes, 0.1)])
    weights = np.random.default_rng(0).uniform(size=(2, 12))
    got = order_preserving_mlp.batch_gradient(w, y.reshape(2, 12, -1), rank.reshape(2, 12), weights)
    for k in (0, 1):
        own = slice(12 * k, 12 * k + 12)
        residual = softmax(OrderPreservingMLP.scores(y[own], w[k]))
        residual[np.arange(12), rank[own]] -= 1
        want = weights[k] @ OrderPreservingMLP.pull_back(y[own], w[k], residual)
        np.testing.assert_allclose(got[k], want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("scale", "far"), [(1.0, 0.2), (1.0, 1e100), (1e3, 1e4), (1e99, 0.2), (1e99, 1e100)]
)
def test_a_step_is_bounded_whatever_the_logits_and_parameters(scale, far):
    z, labels = rows(10)
    y, rank = OrderPreservingMLP.features(z / 40 * scale, labels)
    w = parameters(10, far)[None]
    before = w.copy()
    g = order_preserving_mlp.batch_gradient(w, y[None], rank[None], np.full((1, 40), 1 / 40))
    order_preserving_mlp.sgd_step(w, y[None], rank[None], np.full((1, 40), 1 / 40), 0.01)
    norm = float(np.linalg.norm(g))
    assert np.isfinite(norm)
    assert np.isfinite(w).all()
    expected = 0.01 * g * min(1.0, order_preserving_mlp.LARGEST_GRADIENT / norm)
    np.testing.assert_allclose(w, before - expected, rtol=1e-12)
    assert scale == 1 or norm > order_preserving_mlp.LARGEST_GRADIENT  # the cut was needed
