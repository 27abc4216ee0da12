"""Order-preserving scaling: definitions, gradients, the ranking, and steps of many clients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcal.calibrators import OrderPreservingMLP, OrderPreservingVector, order_preserving
from fedcal.calibrators.order_preserving import LOWEST, sorted_log_probs
from fedcal.core.fitting import label_entries, softplus
from fedcal.core.numerics import softmax
from fedcal.core.scores import LARGEST_LOGIT

FORMS = [OrderPreservingVector, OrderPreservingMLP]


def rows(classes: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([classes, n])
    return rng.normal(scale=4, size=(n, classes)), rng.integers(0, classes, n)


def parameters(form: type, classes: int, scale: float = 0.2) -> np.ndarray:
    w = form.identity(classes)
    return np.asarray(w + np.random.default_rng(classes).normal(scale=scale, size=w.shape))


def slopes(form: type, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Maddock et al., B.6, and the network of Peng et al. 2024, written out."""
    classes, x = y.shape[1], np.maximum(y, LOWEST)
    if form is OrderPreservingVector:
        return w[:classes] * x + w[classes:]
    sizes = [(classes, 64), (64,), (64, 64), (64,), (64, classes), (classes,)]
    cuts = np.cumsum([int(np.prod(s)) for s in sizes])[:-1]
    w1, b1, w2, b2, w3, b3 = (p.reshape(s) for p, s in zip(np.split(w, cuts), sizes, strict=True))
    hidden = np.maximum(x / abs(LOWEST) @ w1 + b1, 0)
    return np.maximum(hidden @ w2 + b2, 0) @ w3 + b3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("classes", [2, 5])
def test_it_is_what_the_papers_define_whatever_w_c_is(form, classes):
    """Maddock et al., eq. (1): S^-1 U w with U an upper triangle of ones."""
    z, w = rows(classes)[0], parameters(form, classes)
    got = form(w, classes).predict_proba(z)
    order = np.argsort(-z)
    y = np.log(np.take_along_axis(softmax(z), order, axis=1))
    steps = np.append(y[:, :-1] - y[:, 1:], np.zeros((len(z), 1)), axis=1)
    steps *= softplus(slopes(form, y, w))
    for w_c in (0.0, -3.0, 50.0):
        steps[:, -1] = w_c
        scores = steps @ np.tri(classes)
        expected = np.take_along_axis(softmax(scores), np.argsort(order), axis=1)
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-15)


def loss(form: type, y: np.ndarray, rank: np.ndarray, w: np.ndarray) -> np.ndarray:
    f = form.scores(y, w)
    return np.asarray(np.log(np.exp(f).sum(axis=1)) - label_entries(f, rank))


def residual(form: type, y: np.ndarray, rank: np.ndarray, w: np.ndarray) -> np.ndarray:
    r = softmax(form.scores(y, w))
    r[np.arange(len(r)), rank] -= 1
    return r


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_is_that_of_the_loss(form):
    z, labels = rows(5)
    z[0] = 1.0  # all tie
    w, h = parameters(form, 5), 1e-6
    y, rank = form.features(z, labels)
    got = form.pull_back(y, w, residual(form, y, rank, w))
    for k in np.random.default_rng(0).permutation(len(w))[:40]:
        step = np.eye(1, len(w), k)[0] * h
        expected = (loss(form, y, rank, w + step) - loss(form, y, rank, w - step)) / (2 * h)
        np.testing.assert_allclose(got[:, k], expected, rtol=1e-5, atol=1e-6)


NUMBERS = st.one_of(
    st.sampled_from([0.0, 1.0, 5e-324, 700.0, -745.0, LARGEST_LOGIT, -LARGEST_LOGIT]),
    st.floats(-60, 60),
    st.integers(0, 6).map(lambda k: 1.0 + k * 2.0**-52),  # neighbours in floats
)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(NUMBERS, min_size=4, max_size=4), min_size=1, max_size=5),
    st.sampled_from([0.0, 1e-3, 1.0, 30.0, 1e6, 1e100]),
    st.integers(0, 2**32 - 1),
)
def test_no_rows_and_no_parameters_turn_the_ranking(form, z, scale, seed):
    """Probabilities do not rise where logits fall, and tie where logits tie."""
    logits = np.array(z)
    w = np.random.default_rng(seed).uniform(-scale, scale, form.size(4))
    p = form(w, 4).calibrated(logits)
    np.testing.assert_array_equal(p.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=0, atol=1e-12)
    order = np.argsort(-logits, axis=1, kind="stable")
    ranked, falling = (np.take_along_axis(x, order, axis=1) for x in (logits, p))
    tied = ranked[:, 1:] == ranked[:, :-1]
    assert (falling[:, 1:] <= falling[:, :-1]).all()
    np.testing.assert_array_equal(falling[:, 1:][tied], falling[:, :-1][tied])
    scores = form.scores(sorted_log_probs(logits)[0], w)
    assert np.isfinite(scores).all()
    assert (np.diff(scores, axis=1) <= 0).all()


def test_the_gradient_of_a_batch_is_the_weighted_sum_over_its_rows():
    z, labels = rows(10, 24)
    y, rank = OrderPreservingMLP.features(z, labels)
    w = np.stack([parameters(OrderPreservingMLP, 10, scale) for scale in (0.2, 0.1)])
    weights = np.random.default_rng(0).uniform(size=(2, 12))
    got = order_preserving.batch_gradient(w, y.reshape(2, 12, -1), rank.reshape(2, 12), weights)
    for k in (0, 1):
        own = slice(12 * k, 12 * k + 12)
        off = residual(OrderPreservingMLP, y[own], rank[own], w[k])
        expected = weights[k] @ OrderPreservingMLP.pull_back(y[own], w[k], off)
        np.testing.assert_allclose(got[k], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("scale", "far"), [(1.0, 0.2), (1e3, 1e4), (1e99, 1e100)])
def test_a_step_is_bounded_whatever_the_logits_and_parameters(scale, far):
    z, labels = rows(10)
    y, rank = OrderPreservingMLP.features(z / 40 * scale, labels)
    w = parameters(OrderPreservingMLP, 10, far)[None]
    before, weights = w.copy(), np.full((1, 40), 1 / 40)
    g = order_preserving.batch_gradient(w, y[None], rank[None], weights)
    order_preserving.sgd_step(w, y[None], rank[None], weights, 0.01)
    norm = float(np.linalg.norm(g))
    assert np.isfinite(norm)
    expected = 0.01 * g * min(1.0, order_preserving.LARGEST_GRADIENT / norm)
    np.testing.assert_allclose(w, before - expected, rtol=1e-12)
    assert scale == 1 or norm > order_preserving.LARGEST_GRADIENT  # the cut was needed
