"""Updates and Newton sums of scaling with a vector of parameters."""

from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused

from fedcal.calibrators import MatrixScaling, OrderPreservingVector, VectorScaling
from fedcal.calibrators.parametric import ParametricScaling, local_fits
from fedcal.clients.statistics.scaling import scaling_newton, scaling_update
from fedcal.core.numerics import softmax
from fedcal.core.shards import Shards
from fedcal.core.types import Floats
from fedcal.queries import ScalingNewton, ScalingUpdate

FORMS = [VectorScaling, MatrixScaling, OrderPreservingVector]
forms = pytest.mark.parametrize("form", FORMS)
Form = type[ParametricScaling]


def some_shards(c: int, clients: int = 5, rows: int = 60) -> Shards:
    """The last client is empty."""
    rng = np.random.default_rng(c)
    labels = rng.integers(0, c, rows)
    logits = rng.normal(0, 2, (rows, c))
    logits[np.arange(rows), labels] += 1
    return Shards.from_owner(logits, labels, rng.integers(0, clients - 1, rows), clients)


def some_w(form: Form, c: int) -> Floats:
    return form.identity(c) + np.random.default_rng(9).normal(0, 0.3, form.size(c))


def newton(form: Form, w: Floats, curvature: Any) -> ScalingNewton:
    c = next(c for c in range(2, 20) if form.size(c) == len(w))
    return ScalingNewton(form.kind, w, curvature, c)


def loss(form: Form, own: Shards, w: Floats) -> float:
    x, columns = form.features(own.logits, own.labels)
    return float(-np.log(softmax(form.scores(x, w))[np.arange(len(columns)), columns]).sum())


def unpacked(triangle: Floats, size: int) -> Floats:
    h = np.zeros((size, size))
    h[np.triu_indices(size)] = triangle
    return h + np.triu(h, 1).T


@forms
def test_the_update_is_the_way_from_the_optimum_to_w(form):
    shards, w = some_shards(4), some_w(form, 4)
    asked = {"form": form.kind, "w": w, "proximal": 0.5, "steps": 40, "count": True}
    got = scaling_update(shards, ScalingUpdate(**asked))
    fits = local_fits(form, shards, w, proximal=0.5, steps=40)
    assert got[:, :-1] == pytest.approx(w - fits, abs=0)
    assert got[:, -1].tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert not got[-1].any()
    uncounted = scaling_update(shards, ScalingUpdate(**{**asked, "count": False}))
    assert uncounted.tobytes() == np.ascontiguousarray(got[:, :-1]).tobytes()


@forms
def test_the_gradient_is_that_of_the_loss(form):
    shards, w, step = some_shards(4), some_w(form, 4), 1e-6
    got = scaling_newton(shards, newton(form, w, "none"))
    assert got.shape == (5, len(w))
    for k in range(4):
        own = shards.block(k, k + 1)
        want = [
            (loss(form, own, w + step * e) - loss(form, own, w - step * e)) / (2 * step)
            for e in np.eye(len(w))
        ]
        assert got[k] == pytest.approx(want, abs=1e-6)


@forms
@pytest.mark.parametrize("c", [2, 5])
def test_curvature_is_that_of_an_explicit_jacobian(form, c):
    """J by finite differences of the scores: J' (diag p - p p') J."""
    shards, w, step = some_shards(c), some_w(form, c), 1e-6
    size = len(w)
    x, _ = form.features(shards.logits, shards.labels)
    p = softmax(form.scores(x, w))
    slopes = [form.scores(x, w + step * e) - form.scores(x, w - step * e) for e in np.eye(size)]
    j = np.stack(slopes, axis=2) / (2 * step)
    inner = np.einsum("nk,kl->nkl", p, np.eye(c)) - p[:, :, None] * p[:, None, :]
    rows = np.einsum("nka,nkl,nlb->nab", j, inner, j)
    diagonal = scaling_newton(shards, newton(form, w, "diagonal"))[:, size:]
    for k in range(5):
        want = rows[shards.owner == k].sum(axis=0)
        assert diagonal[k] == pytest.approx(np.diag(want), rel=1e-5, abs=1e-7)
        if form is not MatrixScaling:
            full = scaling_newton(shards, newton(form, w, "full"))[k, size:]
            assert unpacked(full, size) == pytest.approx(want, rel=1e-5, abs=1e-6)


def test_curvature_of_rows_so_confident_that_1_p_has_no_digits_is_positive():
    shards = some_shards(6)
    shards = Shards(shards.logits * 30.0, shards.labels, shards.offsets)
    for form in (VectorScaling, OrderPreservingVector):
        w = some_w(form, 6)
        full = scaling_newton(shards, newton(form, w, "full"))[:4, len(w) :]
        for h in (unpacked(triangle, len(w)) for triangle in full):
            near = np.sqrt(np.maximum(np.diag(h), 1e-300))
            assert np.linalg.eigvalsh(h / near / near[:, None]).min() > -1e-12


def test_a_query_that_cannot_be_answered_is_refused():
    usual = {"form": "vector", "w": VectorScaling.identity(3), "curvature": "full", "classes": 3}
    table: list[tuple[dict[str, Any], str]] = [
        ({"form": "temperature"}, "unknown form 'temperature'"),
        ({"form": "matrix"}, "12 parameters"),
        ({"curvature": "half"}, "unknown curvature 'half'"),
        ({"form": "matrix", "w": MatrixScaling.identity(3)}, "no full curvature"),
    ]
    each_is_refused(
        table, lambda change: scaling_newton(some_shards(3), ScalingNewton(**(usual | change)))
    )
