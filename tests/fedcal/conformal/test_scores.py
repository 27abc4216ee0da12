"""Conformity scores: by hand, and the same bits by every way."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedcal.calibrators.conformity import all_scores, settled, uniform_of
from fedcal.conformal import Conformity
from fedcal.core import fitting
from fedcal.core.numerics import Floats

CASES = [Conformity("lac"), Conformity("aps"), Conformity("aps", randomised=True)]


def rows(n: int, c: int, seed: int = 0) -> Floats:
    """Logits of which many are tied, and some rows are all but certain."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, c)) * rng.choice([0.1, 3.0, 200.0], (n, 1))
    logits[::3] = np.round(logits[::3])
    logits[0] = 0.0
    return logits


@pytest.mark.parametrize(
    ("name", "u", "expected"),
    [
        ("lac", None, [[0.9, 0.5, 0.85, 0.75], [0.75] * 4]),
        ("aps", None, [[1.0, 0.5, 0.9, 0.75], [0.25, 0.5, 0.75, 1.0]]),
        ("aps", [0.2, 0.5], [[0.98, 0.4, 0.87, 0.7], [0.125, 0.375, 0.625, 0.875]]),
    ],
)
def test_by_hand(name, u, expected):
    p = np.array([[0.1, 0.5, 0.15, 0.25], [0.25, 0.25, 0.25, 0.25]])
    parts = None if u is None else np.array(u)
    found = all_scores(name != "lac", p, parts)
    np.testing.assert_allclose(found, expected, atol=1e-15)


@pytest.mark.parametrize(("conformity", "c"), list(zip(CASES, (40, 2, 3), strict=True)))
def test_all_ways_give_the_same_bits(conformity, c, monkeypatch):
    """Also in blocks, by several threads."""
    logits = rows(300, c)
    scores = conformity.of_all(logits)
    monkeypatch.setattr(fitting, "BLOCK", 64)
    monkeypatch.setattr(fitting, "MANY", 1)
    monkeypatch.setattr(fitting, "usable_cores", lambda: 3)
    assert_array_equal(conformity.of_all(logits), scores)
    assert scores.min() >= 0.0
    assert scores.max() <= 1.0
    for label in range(0, c, max(1, c // 4)):
        of_labels = conformity.of_labels(logits, np.full(300, label))
        assert_array_equal(of_labels, scores[:, label])
    assert_array_equal(conformity.of_all(logits[50:60]), scores[50:60])


def test_parts_are_uniform_and_of_the_row_alone():
    logits = np.random.default_rng(0).normal(size=(200_000, 3))
    u = uniform_of(logits)
    assert_array_equal(u[7:9], uniform_of(logits[7:9]))
    assert 0.0 <= u.min() < u.max() < 1.0
    cells = np.bincount((u * 100).astype(int), minlength=100)
    assert ((cells - 2000) ** 2 / 2000).sum() < 99 + 4 * np.sqrt(198)  # chi square
    for other in (uniform_of(logits[:, ::-1]), logits[:, 0], u[1:]):
        n = len(other)
        assert abs(np.corrcoef(u[:n], other)[0, 1]) < 4 / np.sqrt(n)
    assert uniform_of(np.array([[-0.0, 1.0]])) == uniform_of(np.array([[0.0, 1.0]]))
    assert uniform_of(logits.astype(np.float32)).shape == (200_000,)


def test_probabilities_that_differ_in_their_last_bits_are_equal():
    """But for one in 2**13 that lies where they are rounded."""
    p = np.random.default_rng(0).dirichlet(np.ones(4), 5000)
    assert (settled(np.nextafter(p, 1.0)) == settled(p)).mean() > 0.998
    np.testing.assert_allclose(settled(p), p, rtol=2.0**-40)
