"""Fits of a client's own rows against other minimisers, and derivatives of scaling."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize
from strategy_checks import some_shards

from fedcal.calibrators import (
    EntropyTemperature,
    MatrixScaling,
    OrderPreservingMLP,
    OrderPreservingVector,
    TemperatureScaling,
    VectorScaling,
)
from fedcal.calibrators.minimisers import minimize
from fedcal.calibrators.order_preserving import LARGEST_GRADIENT, batches
from fedcal.calibrators.parametric import LIMIT, LocalLosses, ParametricScaling, local_fits, rows_of
from fedcal.clients.questions import temperature
from fedcal.clients.questions.scaling import MLPUpdate, ScalingNewton, ScalingUpdate
from fedcal.clients.questions.temperature import TemperatureUpdate
from fedcal.core.fitting import LOG_A_LIMIT
from fedcal.core.numerics import Floats, softmax
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards

Form = type[ParametricScaling]
forms = pytest.mark.parametrize("form", [VectorScaling, MatrixScaling, OrderPreservingVector])
smooth = pytest.mark.parametrize("form", [VectorScaling, EntropyTemperature])


def updates(shards: Shards, params: dict[str, Any]) -> Floats:
    return TemperatureUpdate(**params).sums(shards)


@pytest.mark.parametrize("c", [2, 10, 60])
def test_the_local_optimum_is_the_fit_of_the_clients_rows(c):
    """Wherever it starts, within 50 steps; the update is the way from it to w."""
    shards = some_shards(c, rows=400, clients=9, scale=4.0).block(1, 9)  # the last has none
    own = [shards.block(k, k + 1) for k in range(shards.clients - 1)]
    t = np.array([TemperatureScaling().fit(one.logits, one.labels).temperature for one in own])
    assert (np.abs(np.log(t)) < LOG_A_LIMIT - 0.1).all()
    for start, steps in ((-2.0, 80), (0.0, 50), (1.5, 80)):
        got = temperature.local_log_a(shards, start, steps=steps)
        assert got[:-1] == pytest.approx(-np.log(t), abs=1e-6)
        assert got[-1] == start
    for average, optimum in (("inverse", 1 / t), ("temperature", t)):
        asked = {"w": 0.3, "average": average, "count": True}
        sent = updates(shards, asked)
        assert sent[:-1, 0] == pytest.approx(0.3 - optimum, abs=1e-5)
        assert sent[:, 1].tolist() == [1.0] * len(t) + [0.0]
        assert sent[-1, 0] == 0
        assert np.array_equal(updates(shards, asked | {"count": False}), sent[:, :1])


@pytest.mark.parametrize(
    ("logits", "labels", "a"),
    [
        ([[3.0, 0.0, 1.0], [0.0, 2.0, 1.0]], [0, 1], 20.0),  # no errors
        ([[3.0, 0.0, 1.0]], [0], 20.0),  # one row, right
        ([[3.0, 0.0, 1.0]], [1], 1 / 20),  # one row, wrong
        ([[3.0, 0.0], [0.0, 9.0]], [1, 0], 1 / 20),  # nothing but errors
    ],
)
def test_shards_without_an_optimum_answer_the_bound(logits, labels, a):
    """Beside other clients, too; the fit of a calibrator has the same bound."""
    inverse: dict[str, Any] = {"w": 1.0, "average": "inverse", "count": True}
    owner = np.append(np.zeros(len(labels), np.int64), 1)
    other = [[0.0] * len(logits[0])]
    beside = rows_by_owner(np.array(logits + other), np.array([*labels, 0]), owner, 2)
    own = beside.block(0, 1)
    for shards in (own, beside):
        assert updates(shards, inverse)[0] == pytest.approx([1 - a, 1.0], rel=1e-12)
    plain = updates(own, inverse | {"average": "temperature"})
    assert plain[0] == pytest.approx([1 - 1 / a, 1.0], rel=1e-12)
    fitted = TemperatureScaling().fit(own.logits, own.labels).temperature
    assert 1 / a == pytest.approx(fitted, rel=1e-5)
    if a == 20.0:
        assert updates(own, inverse | {"limit": 2.0})[0, 0] == pytest.approx(-1.0)


def peer(form: Form, own: Shards, start: Floats, proximal: float) -> tuple[Floats, float]:
    """Optimum and loss of scipy's L-BFGS-B in the same box."""

    def objective(w: Floats) -> tuple[float, Floats]:
        x, columns = form.features(own.logits, own.labels)
        p = softmax(form.scores(x, w))
        at = (np.arange(len(columns)), columns)
        value = -np.log(p[at]).sum() + proximal / 2 * ((w - start) ** 2).sum()
        p[at] -= 1
        gradient = form.pull_back(x, w, p).sum(axis=0) + proximal * (w - start)
        return float(value), gradient

    middle = form.identity(own.classes)
    options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 20}
    bounds = list(zip(middle - LIMIT, middle + LIMIT, strict=True))
    found = scipy_minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return np.asarray(found.x), float(found.fun)


@forms
@pytest.mark.parametrize(("c", "proximal"), [(2, 5.0), (7, 0.3)])
def test_the_update_leads_from_each_client_s_optimum_to_w(form, c, proximal):
    shards = some_shards(c, rows=250, clients=6).block(1, 6)  # the last has none
    w = form.identity(c) + np.random.default_rng(1).normal(0, 0.1, form.size(c))
    asked = {"form": form.kind, "w": w, "proximal": proximal, "steps": 500, "count": True}
    got = ScalingUpdate(**asked).sums(shards)
    for k in range(4):
        want, _ = peer(form, shards.block(k, k + 1), w, proximal)
        assert got[k, :-1] == pytest.approx(w - want, abs=2e-5)
        assert np.abs(got[k, :-1]).max() > 1e-3
    assert not got[-1].any()
    assert got[:, -1].tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert np.array_equal(ScalingUpdate(**{**asked, "count": False}).sums(shards), got[:, :-1])


def test_clients_of_more_rows_than_a_tile_are_at_their_optimum_whoever_is_beside_them():
    rows, form = [64, 65, 80, 200], MatrixScaling  # 64 rows are a tile
    own = some_shards(40, rows=sum(rows), clients=3).block(1, 2)
    shards = rows_by_owner(own.logits, own.labels, np.repeat(np.arange(4), rows), 4)
    start = form.identity(40) + 0.3 * np.random.default_rng(3).normal(size=form.size(40))
    w = local_fits(form, shards, start, proximal=2.0)
    features, columns = rows_of(form, shards)
    at = LocalLosses(form, features, columns, shards.rows, start, 2.0)
    value, gradient = at.value(w)
    assert np.abs(gradient[:3]).max() < 1e-5
    slow = minimize(at, np.tile(start, (4, 1)), start - LIMIT, start + LIMIT, 1000)
    assert (value[:3] <= at.value(slow)[0][:3] * (1 + 1e-12)).all()
    np.testing.assert_allclose(w[:3], slow[:3], atol=1e-5)
    alone = [local_fits(form, shards.block(k, k + 1), start, proximal=2.0)[0] for k in range(4)]
    np.testing.assert_array_equal(w, alone)


def few_shards(c: int) -> Shards:
    """The last client of five is empty."""
    return some_shards(c, rows=60, clients=6).block(1, 6)


def some_w(form: Form, c: int) -> Floats:
    return form.identity(c) + np.random.default_rng(9).normal(0, 0.3, form.size(c))


def loss(form: Form, own: Shards, w: Floats) -> float:
    x, columns = form.features(own.logits, own.labels)
    return float(-np.log(softmax(form.scores(x, w))[np.arange(len(columns)), columns]).sum())


def unpacked(triangle: Floats, size: int) -> Floats:
    h = np.zeros((size, size))
    h[np.triu_indices(size)] = triangle
    return h + np.triu(h, 1).T


@smooth
@pytest.mark.parametrize("c", [2, 5])
def test_newton_has_the_gradient_and_the_curvature_of_the_loss(form, c):
    """By finite differences; the curvature is J' (diag p - p p') J, and positive."""
    shards, w, step = few_shards(c), some_w(form, c), 1e-6
    size = len(w)
    x, _ = form.features(shards.logits, shards.labels)
    p = softmax(form.scores(x, w))
    slopes = [form.scores(x, w + step * e) - form.scores(x, w - step * e) for e in np.eye(size)]
    j = np.stack(slopes, axis=2) / (2 * step)
    inner = np.einsum("nk,kl->nkl", p, np.eye(c)) - p[:, :, None] * p[:, None, :]
    rows = np.einsum("nka,nkl,nlb->nab", j, inner, j)
    got = ScalingNewton(form.kind, w, c).sums(shards)
    for k in range(4):
        own, mine = shards.block(k, k + 1), shards.owner == k
        ends = [[loss(form, own, w + s * step * e) for s in (1, -1)] for e in np.eye(size)]
        assert got[k, :size] == pytest.approx(-np.diff(ends)[:, 0] / (2 * step), abs=1e-6)
        h = unpacked(got[k, size:], size)
        assert h == pytest.approx(rows[mine].sum(axis=0), rel=1e-5, abs=1e-6)
    sure = Shards(shards.logits * 30.0, shards.labels, shards.offsets)  # 1 - p has no digits
    for triangle in ScalingNewton(form.kind, w, c).sums(sure)[:4, size:]:
        h = unpacked(triangle, size)
        near = np.sqrt(np.maximum(np.diag(h), 1e-300))
        assert np.linalg.eigvalsh(h / near / near[:, None]).min() > -1e-12


SIZES = (0, 1, 130, 7, 64, 65, 0, 20, 300, 8)


def sgd(own: Shards, query: MLPUpdate) -> Floats:
    """Parameters after the same training, row by row and without padding."""
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
def test_an_update_by_sgd_is_that_of_a_plain_loop(batch, epochs):
    own = some_shards(4, rows=sum(SIZES), clients=3, scale=5.0).block(1, 2)
    owner = np.repeat(np.arange(len(SIZES)), SIZES)
    shards = rows_by_owner(own.logits, own.labels, owner, len(SIZES)).ordered
    w = OrderPreservingMLP.identity(4)
    w += np.random.default_rng(4).normal(0, 0.1, w.shape)
    query = MLPUpdate(w=w, epochs=epochs, batch=batch, lr=0.05, seed=3, count=True)
    got = query.sums(shards)
    assert np.array_equal(got[:, -1], np.array(SIZES) > 0)
    for k in range(shards.clients):
        want = query.w - sgd(shards.block(k, k + 1), query) if SIZES[k] else 0 * query.w
        np.testing.assert_allclose(got[k, :-1], want, rtol=1e-6, atol=1e-12)
