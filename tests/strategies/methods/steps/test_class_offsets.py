"""Offsets of classes from noisy gradients: the test's size, the offsets, what gains must exceed."""

import numpy as np
import pytest

from fedcal.strategies.methods.steps.class_offsets import GATE, OFFSET_LIMIT, ClassOffsets

CLASSES, KAPPA = 10, 400.0
CENTRE = np.eye(CLASSES) - 1 / CLASSES


def looked(
    rng: np.random.Generator, offsets: np.ndarray, std: float, looks: int = 2, copies: float = 1.0
) -> ClassOffsets:
    """Gradients of one set of rows, each with fresh noise; rows that stand `copies` times."""
    rows = rng.normal(0, np.sqrt(copies * KAPPA), CLASSES) @ CENTRE
    effects = ClassOffsets(CLASSES, copies)
    for _ in range(looks):
        g = KAPPA * CENTRE @ (effects.offsets - offsets) + rows
        g = g + rng.normal(0, std, CLASSES) if std else g
        effects.learn(g, KAPPA + rng.normal(0, std), std)
    return effects


@pytest.mark.parametrize("std", [0.0, 5.0, 40.0], ids=["exact", "weak noise", "strong noise"])
@pytest.mark.parametrize("copies", [1.0, 10.0])
def test_rows_without_effects_are_called_so_as_often_as_promised(std, copies):
    """Rows do not average over looks as noise does; rows that stand ten times vary ten times."""
    rng = np.random.default_rng(1)
    none = np.zeros(CLASSES)
    found = np.array([looked(rng, none, std, copies=copies).p < GATE for _ in range(1500)])
    assert 0.6 * GATE < found.mean() < 1.4 * GATE


def test_repeated_rows_look_like_effects_where_nobody_says_so():
    rng = np.random.default_rng(2)
    rows = rng.normal(0, np.sqrt(10 * KAPPA), (200, CLASSES)) @ CENTRE
    seen = 0
    for g in rows:
        effects = ClassOffsets(CLASSES)
        effects.learn(g, KAPPA, 1.0)
        seen += effects.p < GATE
    assert seen > 190


def test_offsets_are_shrunk_towards_none_and_unbiased_where_much_is_known():
    true = CENTRE @ np.linspace(-0.6, 0.6, CLASSES)
    for std, within in ((0.0, 0.3), (20.0, 0.45)):
        many = [looked(np.random.default_rng(s), true, std).offsets for s in range(40)]
        assert np.mean(many, axis=0) == pytest.approx(true, abs=0.1)
        assert np.abs(np.array(many) - true).max() < within
    weak = [looked(np.random.default_rng(s), true, 200.0).offsets for s in range(40)]
    assert np.linalg.norm(weak, axis=1).mean() < 0.8 * np.linalg.norm(true)
    assert np.abs(weak).max() <= OFFSET_LIMIT


def test_sampling_that_nobody_can_bound_shows_nothing():
    effects = ClassOffsets(CLASSES)
    effects.learn(np.arange(CLASSES) * 1e3, KAPPA, 1.0, np.inf)
    assert effects.p == 1
    assert not effects.offsets.any()


def test_a_gain_must_exceed_noise_and_what_fitting_noise_gains():
    """Offsets that fit nothing gain half a chi-square on the rows that they were fitted to."""
    rng = np.random.default_rng(3)
    rows = rng.normal(0, np.sqrt(KAPPA), (4000, CLASSES)) @ CENTRE
    gains = (rows**2).sum(axis=1) / KAPPA / 2
    least = ClassOffsets(CLASSES).threshold(0.0)
    assert 0.005 < (gains > least).mean() < 0.016
    assert ClassOffsets(CLASSES).threshold(10.0) - least == pytest.approx(15.0)
    assert ClassOffsets(CLASSES, 10.0).threshold(0.0) == pytest.approx(10 * least)
