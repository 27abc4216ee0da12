"""Histogram binning of the confidence: what each class gets, and where counts are noise."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import scored

from fedcal.calibrators import TopLabelBinning
from fedcal.calibrators.histogram_binning import least_value
from fedcal.core.numerics import shifted, softmax
from fedcal.metrics.binning import outcome_cells, top_confidence


def rows(classes: int, n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return scored(classes, n, [classes, seed])


@settings(max_examples=150, deadline=None)
@given(
    classes=st.integers(2, 12),
    value=st.floats(0.0, 1.0),
    scale=st.sampled_from([0.0, 1e-12, 1e-3, 1.0, 40.0, 1e90]),
    seed=st.integers(0, 10**6),
)
def test_the_prediction_never_changes(classes, value, scale, seed):
    z = np.random.default_rng(seed).normal(size=(20, classes)) * scale
    z[::3] = np.round(z[::3])  # ties
    probs = TopLabelBinning([value], classes).predict_proba(z)
    top = probs.max(axis=1)
    np.testing.assert_array_equal(probs.argmax(axis=1), z.argmax(axis=1))
    np.testing.assert_array_equal(probs.astype(np.float32).argmax(axis=1), z.argmax(axis=1))
    np.testing.assert_allclose(top, max(value, least_value(classes)), rtol=0, atol=0)
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert (probs >= 0).all()


def test_the_confidence_is_softmax_largest_bit_for_bit():
    for classes in (2, 10, 100):
        z, y = rows(classes)
        assert (top_confidence(shifted(z)) == softmax(z).max(axis=1)).all()
        cells = outcome_cells(softmax(z), y, 15)
        assert ((cells >= 15) == (z.argmax(axis=1) != y)).all()
