"""Updates and Newton sums of scaling with a vector of parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcal.calibrators import MatrixScaling, OrderPreservingVector, VectorScaling
from fedcal.calibrators.parametric import ParametricScaling, local_fits
from fedcal.clients.parametric import scaling_newton, scaling_update
from fedcal.errors import InputError
from fedcal.numerics import softmax
from fedcal.queries import ScalingNewton, ScalingUpdate
from fedcal.shards import Shards
from fedcal.types import Floats

FORMS = [VectorScaling, MatrixScaling, OrderPreservingVector]
forms = pytest.mark.parametrize("form", FORMS)
full_forms = pytest.mark.parametrize("form", [VectorScaling, OrderPreservingVector])
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
def test_the_update_is_the_way_from_the_optimum_to_w(form: Form) -> None:
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
def test_the_gradient_is_that_of_the_loss(form: Form) -> None:
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


@pytest.mark.parametrize("c", [2, 5])
def test_vector_curvature_is_the_hessian(c: int) -> None:
    shards, w, step = some_shards(c), some_w(VectorScaling, c), 1e-6
    size = len(w)
    got = scaling_newton(shards, newton(VectorScaling, w, "full"))
    assert got.shape == (5, size + size * (size + 1) // 2)

    def gradient(w: Floats) -> Floats:
        return scaling_newton(shards, newton(VectorScaling, w, "none"))

    columns = [(gradient(w + step * e) - gradient(w - step * e)) / (2 * step) for e in np.eye(size)]
    for k in range(5):
        want = np.stack([column[k] for column in columns])
        assert unpacked(got[k, size:], size) == pytest.approx(want, abs=1e-6)


@forms
@pytest.mark.parametrize("c", [2, 5])
def test_curvature_is_that_of_an_explicit_jacobian(form: Form, c: int) -> None:
    """J by finite differences of the scores: J' (diag p - p p') J."""
    shards, w, step = some_shards(c), some_w(form, c), 1e-6
    size = len(w)
    x, _ = form.features(shards.logits, shards.labels)
    p = softmax(form.scores(x, w))
    j = np.stack(
        [(form.scores(x, w + step * e) - form.scores(x, w - step * e)) / (2 * step)
         for e in np.eye(size)], axis=2,
    )  # fmt: skip
    inner = np.einsum("nk,kl->nkl", p, np.eye(c)) - p[:, :, None] * p[:, None, :]
    rows = np.einsum("nka,nkl,nlb->nab", j, inner, j)
    diagonal = scaling_newton(shards, newton(form, w, "diagonal"))[:, size:]
    for k in range(5):
        own = slice(int(shards.offsets[k]), int(shards.offsets[k + 1]))
        want = rows[own].sum(axis=0)
        assert diagonal[k] == pytest.approx(np.diag(want), rel=1e-5, abs=1e-7)
        if form is not MatrixScaling:
            full = scaling_newton(shards, newton(form, w, "full"))[k, size:]
            assert unpacked(full, size) == pytest.approx(want, rel=1e-5, abs=1e-6)


@full_forms
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_curvature_is_positive_and_its_diagonal_the_diagonal(form: Form, scale: float) -> None:
    """Also of rows so confident that 1 - p has no digits."""
    shards = some_shards(6)
    shards = Shards(shards.logits * scale, shards.labels, shards.offsets)
    w = some_w(form, 6)
    size = len(w)
    full = scaling_newton(shards, newton(form, w, "full"))
    diagonal = scaling_newton(shards, newton(form, w, "diagonal"))
    assert full[:, :size].tobytes() == diagonal[:, :size].tobytes()
    for k in range(4):
        h = unpacked(full[k, size:], size)
        assert np.diag(h) == pytest.approx(diagonal[k, size:], rel=1e-9, abs=1e-9)
        near = np.sqrt(np.maximum(np.diag(h), 1e-300))
        eigenvalues = np.linalg.eigvalsh(h / near / near[:, None])
        assert eigenvalues.min() > -1e-12
        assert eigenvalues.max() > 0.1


def test_newton_steps_on_the_sums_reach_the_pooled_optimum() -> None:
    """However the rows are dealt: that is what the sums are for."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 4, 1500)
    logits = rng.normal(0, 2, (1500, 4))
    logits[np.arange(1500), labels] += 1
    shards = Shards.from_owner(logits, labels, labels * 3 + rng.integers(0, 3, 1500), 12)
    w = VectorScaling.identity(4)
    for _ in range(12):
        total = scaling_newton(shards, newton(VectorScaling, w, "full")).sum(axis=0)
        # a constant added to all offsets changes nothing: that direction is flat
        step = np.linalg.pinv(unpacked(total[8:], 8), rcond=1e-10, hermitian=True) @ total[:8]
        w = w - step * min(1.0, 0.5 / np.abs(step).max())
    assert np.abs(total[:8]).max() < 1e-6
    pooled = VectorScaling().fit(logits, labels)
    own = Shards(logits, labels, np.array([0, 1500]))
    assert loss(VectorScaling, own, w) == pytest.approx(
        loss(VectorScaling, own, pooled.w), rel=1e-9
    )


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"form": "temperature"}, "unknown form 'temperature'"),
        ({"form": "matrix"}, "12 parameters"),
        ({"curvature": "half"}, "unknown curvature 'half'"),
        ({"form": "matrix", "w": MatrixScaling.identity(3)}, "no full curvature"),
    ],
)
def test_a_query_that_cannot_be_answered_is_refused(changes: dict[str, Any], match: str) -> None:
    asked = {"form": "vector", "w": VectorScaling.identity(3), "curvature": "full", "classes": 3}
    with pytest.raises(InputError, match=match) as caught:
        scaling_newton(some_shards(3), ScalingNewton(**{**asked, **changes}))
    assert "\n" not in str(caught.value)
