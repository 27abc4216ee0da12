"""Updates and Newton sums of scaling with a vector of parameters."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategy_checks import some_shards

from fedcal.calibrators import (
    EntropyTemperature,
    MatrixScaling,
    OrderPreservingMLP,
    OrderPreservingVector,
    VectorScaling,
)
from fedcal.calibrators.order_preserving import LARGEST_GRADIENT, batches
from fedcal.calibrators.parametric import ParametricScaling, local_fits
from fedcal.clients.questions import scaling
from fedcal.clients.questions.scaling import (
    MLPUpdate,
    ScalingNewton,
    ScalingUpdate,
)
from fedcal.core.numerics import Floats, softmax
from fedcal.core.shards import Shards

FORMS = [VectorScaling, MatrixScaling, OrderPreservingVector]
forms = pytest.mark.parametrize("form", FORMS)
Form = type[ParametricScaling]


def few_shards(c: int) -> Shards:
    """The last client of five is empty."""
    return some_shards(c, rows=60, clients=6).block(1, 6)


def some_w(form: Form, c: int) -> Floats:
    return form.identity(c) + np.random.default_rng(9).normal(0, 0.3, form.size(c))


def newton(form: Form, w: Floats) -> ScalingNewton:
    c = next(c for c in range(2, 20) if form.size(c) == len(w))
    return ScalingNewton(form.kind, w, c)


def loss(form: Form, own: Shards, w: Floats) -> float:
    x, columns = form.features(own.logits, own.labels)
    return float(-np.log(softmax(form.scores(x, w))[np.arange(len(columns)), columns]).sum())


def unpacked(triangle: Floats, size: int) -> Floats:
    h = np.zeros((size, size))
    h[np.triu_indices(size)] = triangle
    return h + np.triu(h, 1).T


@forms
def test_the_update_is_the_way_from_the_optimum_to_w(form):
    shards, w = few_shards(4).ordered, some_w(form, 4)
    asked = {"form": form.kind, "w": w, "proximal": 0.5, "steps": 40, "count": True}
    got = ScalingUpdate(**asked).sums(shards)
    fits = local_fits(form, shards, w, proximal=0.5, steps=40)
    assert got[:, :-1] == pytest.approx(w - fits, abs=0)
    assert got[:, -1].tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert not got[-1].any()
    uncounted = ScalingUpdate(**{**asked, "count": False}).sums(shards)
    assert uncounted.tobytes() == np.ascontiguousarray(got[:, :-1]).tobytes()


@pytest.mark.parametrize("form", [VectorScaling, EntropyTemperature])
def test_the_gradient_is_that_of_the_loss(form):
    shards, w, step = few_shards(4), some_w(form, 4), 1e-6
    got = newton(form, w).sums(shards)[:, : len(w)]
    for k in range(4):
        own = shards.block(k, k + 1)
        want = [
            (loss(form, own, w + step * e) - loss(form, own, w - step * e)) / (2 * step)
            for e in np.eye(len(w))
        ]
        assert got[k] == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("form", [VectorScaling, EntropyTemperature])
@pytest.mark.parametrize("c", [2, 5])
def test_curvature_is_that_of_an_explicit_jacobian(form, c):
    """J by finite differences of the scores: J' (diag p - p p') J."""
    shards, w, step = few_shards(c), some_w(form, c), 1e-6
    size = len(w)
    x, _ = form.features(shards.logits, shards.labels)
    p = softmax(form.scores(x, w))
    slopes = [form.scores(x, w + step * e) - form.scores(x, w - step * e) for e in np.eye(size)]
    j = np.stack(slopes, axis=2) / (2 * step)
    inner = np.einsum("nk,kl->nkl", p, np.eye(c)) - p[:, :, None] * p[:, None, :]
    rows = np.einsum("nka,nkl,nlb->nab", j, inner, j)
    full = newton(form, w).sums(shards)[:, size:]
    for k in range(5):
        want = rows[shards.owner == k].sum(axis=0)
        assert unpacked(full[k], size) == pytest.approx(want, rel=1e-5, abs=1e-6)


def test_curvature_of_rows_so_confident_that_1_p_has_no_digits_is_positive():
    shards = few_shards(6)
    shards = Shards(shards.logits * 30.0, shards.labels, shards.offsets)
    w = some_w(VectorScaling, 6)
    full = newton(VectorScaling, w).sums(shards)[:4, len(w) :]
    for h in (unpacked(triangle, len(w)) for triangle in full):
        near = np.sqrt(np.maximum(np.diag(h), 1e-300))
        assert np.linalg.eigvalsh(h / near / near[:, None]).min() > -1e-12


SIZES = (0, 1, 130, 7, 64, 65, 0, 20, 300, 8)


def sgd_shards(c: int = 4, sizes: tuple[int, ...] = SIZES) -> Shards:
    """Overconfident rows of clients with these numbers of rows."""
    rng = np.random.default_rng([c, *sizes])
    n = sum(sizes)
    labels = rng.integers(0, c, n)
    logits = rng.normal(0, 5, (n, c))
    logits[np.arange(n), labels] += 4
    return Shards.from_owner(logits, labels, np.repeat(np.arange(len(sizes)), sizes), len(sizes))


def asked(c: int = 4, **changes: Any) -> MLPUpdate:
    w = OrderPreservingMLP.identity(c)
    w += np.random.default_rng(c).normal(0, 0.1, w.shape)
    fields = {"w": w, "epochs": 3, "batch": 64, "lr": 0.05, "seed": 3, "count": False}
    return MLPUpdate(**(fields | changes))


def sgd(own: Shards, query: MLPUpdate) -> np.ndarray:
    """The same training, row by row and without padding."""
    y, rank = OrderPreservingMLP.features(own.logits, own.labels)
    w = query.w.copy()
    for order, weights in zip(*batches(len(y), query.epochs, query.batch, query.seed), strict=True):
        rows = order[weights > 0]
        residual = softmax(OrderPreservingMLP.scores(y[rows], w))
        residual[np.arange(len(rows)), rank[rows]] -= 1
        g = OrderPreservingMLP.pull_back(y[rows], w, residual).mean(axis=0)
        w -= query.lr * g * min(1.0, LARGEST_GRADIENT / float(np.linalg.norm(g)))
    return np.asarray(w)


@pytest.mark.parametrize(("batch", "epochs"), [(64, 2), (16, 1)])
def test_the_update_is_the_way_from_where_sgd_on_the_own_rows_ends(batch, epochs):
    shards, query = sgd_shards().ordered, asked(batch=batch, epochs=epochs)
    got = query.sums(shards)
    counted = replace(query, count=True).sums(shards)
    np.testing.assert_array_equal(counted, np.column_stack([got, np.array(SIZES) > 0]))
    for k in range(shards.clients):
        want = query.w - sgd(shards.block(k, k + 1), query) if SIZES[k] else 0 * query.w
        np.testing.assert_allclose(got[k], want, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("c", [3, 10, 70])
def test_how_many_are_trained_together_changes_no_bit(c, monkeypatch):
    shards, query = sgd_shards(c, (70, 65, 30, 29, 28, 27, 5, 80)), asked(c)
    want = query.sums(shards)
    for together in (1, 3, 64):
        monkeypatch.setattr(scaling, "_TOGETHER", together)
        assert query.sums(shards).tobytes() == want.tobytes()


def test_an_update_is_bounded_by_its_steps_before_any_clipping():
    shards = sgd_shards()
    shards = Shards(shards.logits * 1e98, shards.labels, shards.offsets)
    norms = np.linalg.norm(asked(lr=0.01).sums(shards), axis=1)
    steps = 3 * np.ceil(np.array(SIZES) / 64)
    assert (norms <= 0.01 * LARGEST_GRADIENT * steps * (1 + 1e-9)).all()
    assert norms.max() > 0.01 * LARGEST_GRADIENT
