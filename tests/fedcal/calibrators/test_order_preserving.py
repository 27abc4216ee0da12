"""Order-preserving scaling: the definition, its gradient, and the ranking, which never turns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcal.calibrators import OrderPreservingVector, order_preserving
from fedcal.core.numerics import LARGEST_LOGIT, label_entries, softmax


def rows(classes: int, n: int = 60, scale: float = 4.0) -> np.ndarray:
    return np.random.default_rng([classes, n]).normal(scale=scale, size=(n, classes))


def parameters(classes: int, scale: float = 0.3) -> np.ndarray:
    rng = np.random.default_rng([classes, 7])
    w = OrderPreservingVector.identity(classes)
    return np.asarray(w + rng.normal(scale=scale, size=w.shape))


def never_inverted(logits: np.ndarray, out: np.ndarray) -> bool:
    """Where logits fall, `out` does not rise; where they tie, it ties."""
    order = np.argsort(-logits, axis=1, kind="stable")
    z, p = (np.take_along_axis(x, order, axis=1) for x in (logits, out))
    tied = z[:, 1:] == z[:, :-1]
    return bool((np.where(tied, p[:, 1:] == p[:, :-1], p[:, 1:] <= p[:, :-1])).all())


@pytest.mark.parametrize("classes", [2, 5])
def test_it_is_what_the_paper_defines_whatever_w_c_is(classes):
    """Maddock et al., eq. (1): S^-1 U w with U an upper triangle of ones."""
    z, w = rows(classes), parameters(classes)
    a, b = np.split(w, 2)
    got = OrderPreservingVector(w, classes).predict_proba(z)
    for i in range(len(z)):
        order = np.argsort(-z[i])
        y = np.log(softmax(z[i : i + 1])[0])[order]
        m = a * np.maximum(y, order_preserving.LOWEST) + b
        steps = np.append(y[:-1] - y[1:], 0.0) * np.log1p(np.exp(m))
        for w_c in (0.0, -3.0, 50.0):
            steps[-1] = w_c
            f = np.triu(np.ones((classes, classes))) @ steps
            want = np.empty(classes)
            want[order] = softmax(f[None])[0]
            np.testing.assert_allclose(got[i], want, rtol=1e-10, atol=1e-15)


def loss(y: np.ndarray, rank: np.ndarray, w: np.ndarray) -> np.ndarray:
    f = OrderPreservingVector.scores(y, w)
    return np.asarray(np.log(np.exp(f).sum(axis=1)) - label_entries(f, rank))


def residual(y: np.ndarray, rank: np.ndarray, w: np.ndarray) -> np.ndarray:
    r = softmax(OrderPreservingVector.scores(y, w))
    r[np.arange(len(r)), rank] -= 1
    return r


@pytest.mark.parametrize("classes", [2, 10])
def test_the_gradient_is_that_of_the_loss(classes):
    z, w, h = rows(classes), parameters(classes), 1e-6
    z[0] = 1.0  # all tie
    labels = np.random.default_rng(3).integers(0, classes, len(z))
    y, rank = OrderPreservingVector.features(z, labels)
    got = OrderPreservingVector.pull_back(y, w, residual(y, rank, w))
    assert got.shape == (len(z), 2 * classes)
    for k, step in enumerate(np.eye(2 * classes) * h):
        want = (loss(y, rank, w + step) - loss(y, rank, w - step)) / (2 * h)
        np.testing.assert_allclose(got[:, k], want, rtol=1e-6, atol=1e-6)
    assert (got[:, [classes - 1, 2 * classes - 1]] == 0).all()
    assert (np.abs(got).max(axis=0) > 1e-3).sum() == 2 * classes - 2


NUMBERS = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(-60, 60),
    st.floats(-LARGEST_LOGIT, LARGEST_LOGIT),
    st.integers(0, 6).map(lambda k: 1.0 + k * 2.0**-52),  # neighbours in floats
)
WEIGHTS = st.one_of(
    st.floats(-3, 3), st.floats(-1e3, 1e3), st.floats(-LARGEST_LOGIT, LARGEST_LOGIT)
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    c, n = draw(st.integers(2, 8)), draw(st.integers(1, 4))
    z = draw(st.lists(NUMBERS, min_size=n * c, max_size=n * c))
    w = draw(st.lists(WEIGHTS, min_size=2 * c, max_size=2 * c))
    return np.array(z).reshape(n, c), np.array(w)


@given(cases())
@settings(max_examples=100, deadline=None)
def test_no_rows_and_no_parameters_turn_the_ranking(case):
    z, w = case
    proba = OrderPreservingVector(w, z.shape[1]).calibrated(z)
    np.testing.assert_array_equal(proba.argmax(axis=1), z.argmax(axis=1))
    assert never_inverted(z, proba)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=0, atol=1e-12)
    y, order = order_preserving.sorted_log_probs(z)
    f = np.empty_like(y)
    np.put_along_axis(f, order, OrderPreservingVector.scores(y, w), axis=1)
    assert np.isfinite(f).all()
    assert never_inverted(z, f)


def test_a_tie_at_the_top_goes_to_the_models_prediction():
    z = np.array([[1.0, 1.0 + 2.0**-52], [0.0, 0.0], [5.0, 0.0], [1.0, 1.0 + 2.0**-52]])
    p = np.array([[0.5, 0.5], [0.5, 0.5], [0.9, 0.1], [0.4, 0.6]])
    want = p.copy()
    want[0, 1] = np.nextafter(0.5, 1)
    np.testing.assert_array_equal(order_preserving.keep_top(p, z), want)
    three = order_preserving.keep_top(np.full((1, 3), 1 / 3), np.array([[0.0, 1.0, 1.0]]))[0]
    assert three.argmax() == 1
    assert three[1] == three[2] > three[0] == 1 / 3
