"""Local fits: the minimisers that scipy finds, one client at a time."""

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

from fedcal.calibrators import (
    EntropyTemperature,
    MatrixScaling,
    OrderPreservingVector,
    VectorScaling,
    parametric,
)
from fedcal.calibrators.minimisers import minimize
from fedcal.calibrators.parametric import LIMIT, LocalLosses, ParametricScaling, local_fits, rows_of
from fedcal.core.numerics import Floats, softmax
from fedcal.core.shards import Shards

forms = pytest.mark.parametrize("form", [VectorScaling, MatrixScaling, OrderPreservingVector])
Form = type[ParametricScaling]


def some_shards(c: int, clients: int = 6, rows: int = 300, seed: int = 0) -> Shards:
    """Overconfident rows with errors and label skew; the third client is empty."""
    rng = np.random.default_rng([seed, c])
    labels = rng.integers(0, c, rows)
    logits = rng.normal(0, 2, (rows, c))
    logits[np.arange(rows), labels] += 2
    owner = np.where(rng.random(rows) < 0.7, labels % clients, rng.integers(0, clients, rows))
    owner[owner == 2] = 3
    return Shards.from_owner(logits, labels, owner, clients)


def losses(form: Form, shards: Shards, w: Floats, start: Floats, proximal: float = 0.0) -> Floats:
    """Each client's objective, by the definition."""
    x, columns = form.features(shards.logits, shards.labels)
    p = softmax(form.scores(x, w[shards.owner]))
    nll = -np.log(p[np.arange(len(columns)), columns])
    return shards.sum_rows(nll) + proximal / 2 * ((w - start) ** 2).sum(axis=1)


def peer(form: Form, own: Shards, start: Floats, proximal: float) -> Floats:
    """scipy's L-BFGS-B in the same box."""

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
    return np.asarray(found.x)


@forms
@pytest.mark.parametrize("c", [2, 7])
@pytest.mark.parametrize("proximal", [0.3, 5.0])
def test_each_client_gets_its_own_optimum(form, c, proximal):
    shards = some_shards(c)
    start = form.identity(c) + np.random.default_rng(1).normal(0, 0.1, form.size(c))
    got = local_fits(form, shards, start, proximal=proximal, steps=500)
    for k in (0, 1, 3, 5):
        want = peer(form, shards.block(k, k + 1), start, proximal)
        assert got[k] == pytest.approx(want, abs=2e-5)
        assert np.abs(got[k] - start).max() > 1e-3
    assert got[2].tolist() == start.tolist()


@pytest.mark.parametrize("form", [VectorScaling, EntropyTemperature])
@pytest.mark.parametrize("c", [2, 9, 40])
def test_the_triangle_of_many_blocks_is_the_sum_of_single_rows(form, c):
    """Each client at a w of its own, with 1, 64, 65, 130 and 640 rows."""
    rows = np.array([1, 64, 65, 130, 640])
    owner = np.repeat(np.arange(len(rows)), rows)
    rng = np.random.default_rng(6)
    logits, labels = rng.normal(0, 3, (len(owner), c)), rng.integers(0, c, len(owner))
    x, columns = form.features(logits, labels)
    w = form.identity(c) + rng.normal(0, 0.2, (len(rows), form.size(c)))
    got = LocalLosses(form, x, columns, rows, w[0]).triangle(w)
    for k in range(len(rows)):
        own, at = owner == k, w[k : k + 1]
        alone = LocalLosses(form, x[own], columns[own], rows[k : k + 1], w[0]).triangle(at)
        assert alone.tobytes() == got[k].tobytes()
        of_rows = form.triangle(x[own], w[k], softmax(form.scores(x[own], w[k])), 1)
        assert of_rows.shape == (rows[k], form.size(c) * (form.size(c) + 1) // 2)
        want = of_rows.sum(axis=0)
        assert got[k] == pytest.approx(want, rel=1e-11, abs=1e-13 * np.abs(want).max())


@forms
@pytest.mark.parametrize("c", [2, 8])
def test_the_pooled_fit_is_the_optimum(form, c):
    rng = np.random.default_rng(5)
    labels = rng.integers(0, c, 2000)
    logits = rng.normal(0, 2, (2000, c))
    logits[np.arange(2000), labels] += 2
    own = Shards(logits, labels, np.array([0, 2000]))
    start = form.identity(c)
    calibrator = form().fit(logits, labels)
    got = losses(form, own, calibrator.w[None], start)[0]
    want = losses(form, own, peer(form, own, start, 0.0)[None], start)[0]
    assert got <= want * (1 + 1e-9)
    nll = -np.log(calibrator.predict_proba(logits)[np.arange(2000), labels]).sum()
    assert nll == pytest.approx(got, rel=1e-9)
    assert got < 0.95 * losses(form, own, start[None], start)[0]


@forms
@pytest.mark.parametrize(("c", "proximal"), [(4, 0.0), (4, 1.0), (40, 1.0)])
def test_a_client_among_others_is_fitted_as_if_alone(form, c, proximal, monkeypatch):
    shards, start = some_shards(c), form.identity(c)
    together = local_fits(form, shards, start, proximal=proximal)
    monkeypatch.setattr(parametric, "_STATE", 1)  # a block each
    np.testing.assert_array_equal(together, local_fits(form, shards, start, proximal=proximal))
    for k in range(shards.clients):
        alone = local_fits(form, shards.block(k, k + 1), start, proximal=proximal)
        np.testing.assert_array_equal(together[k], alone[0])


@pytest.mark.parametrize("far", [0.0, 0.3])
def test_matrix_scaling_of_many_classes_is_at_its_optimum(far):
    shards, form = some_shards(40, rows=500), MatrixScaling
    assert ((shards.rows > 64) & (shards.rows <= 80)).sum() == 2  # more than a tile
    start = form.identity(40) + far * np.random.default_rng(3).normal(size=form.size(40))
    w = local_fits(form, shards, start, proximal=2.0)
    features, columns = rows_of(form, shards)
    at = LocalLosses(form, features, columns, shards.rows, start, 2.0)
    value, gradient = at.value(w)
    few = (shards.rows > 0) & (shards.rows <= 80)
    assert np.abs(gradient[few]).max() < 1e-5
    slow = minimize(at, np.tile(start, (6, 1)), start - LIMIT, start + LIMIT, 1000)
    assert (value[few] <= at.value(slow)[0][few] * (1 + 1e-12)).all()
    np.testing.assert_allclose(w[few], slow[few], atol=1e-5)
