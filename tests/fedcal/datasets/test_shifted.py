"""The shipped set under domain shift: its variants, its names, how it is packed."""

import numpy as np

from fedcal.datasets import is_shipped, load, shifted
from fedcal.datasets._load import STEPS, unpacked
from fedcal.experiments.research.shift.mnist import packed


def test_every_variant_loads_with_the_same_labels():
    usual = load("mnist-shift")
    np.testing.assert_array_equal(usual.scores, load("mnist-shift:fog:5").scores)
    for corruption, severity in shifted():
        name = f"mnist-shift:{corruption}:{severity}"
        data = load(name)
        assert (data.name, data.input, data.test_scores) == (name, "logits", None)
        assert (data.scores.shape, data.classes) == ((5000, 10), 10)
        assert (data.scores.max(axis=1) == 0).all()
        np.testing.assert_array_equal(data.labels, usual.labels)
        assert is_shipped(name)


def test_packing_keeps_the_order_and_is_fine_near_the_top():
    logits = np.random.default_rng(0).normal(scale=8, size=(500, 10))
    back = unpacked(packed(logits))
    depth = logits.max(axis=1, keepdims=True) - logits
    # half a step of sqrt(depth), that is sqrt(depth) / STEPS + 1 / (4 STEPS**2) of depth
    assert (np.abs(-back - depth) <= np.sqrt(depth) / STEPS + 1 / (4 * STEPS**2) + 1e-12).all()
    order = np.argsort(logits, axis=1)
    assert (np.diff(np.take_along_axis(back, order, axis=1)) >= 0).all()
    assert (back.max(axis=1) == 0).all()
