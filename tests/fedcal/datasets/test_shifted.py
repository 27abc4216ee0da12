"""The shipped set under domain shift: its variants, its names, how it is packed."""

import numpy as np

from fedcal.datasets import is_shipped, load, shifted


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
