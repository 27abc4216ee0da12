"""Histogram binning of the confidence: what each class gets, and where counts are noise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import scored

from fedcal.calibrators import TopLabelBinning
from fedcal.calibrators.histogram_binning import MARGIN, least_value
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


def test_the_other_classes_share_in_proportion_as_far_as_they_may():
    p = np.array([[0.5, 0.4, 0.06, 0.04]])
    z = np.log(p)
    high = TopLabelBinning([0.8], 4).predict_proba(z)[0]
    assert high == pytest.approx([0.8, 0.16, 0.024, 0.016])
    low = TopLabelBinning([0.4], 4).predict_proba(z)[0]  # in proportion the second had 0.48
    assert low[0] == 0.4
    assert low[1] == pytest.approx(0.4 * (1 - MARGIN))
    assert low[1] > low[2] > low[3] > 0
    least = TopLabelBinning([0.1], 4).predict_proba(z)[0]
    assert least == pytest.approx([0.25] * 4, abs=1e-6)
    assert least.argmax() == 0


def test_where_nothing_is_left_for_the_others_they_share_evenly():
    z = np.array([[2000.0, 0.0, 0.0, -5.0]])
    assert TopLabelBinning([0.7], 4).predict_proba(z)[0] == pytest.approx([0.7, 0.1, 0.1, 0.1])


def test_noisy_counts_are_cut_and_empty_bins_keep_their_midpoint():
    correct = np.array([-3.0, 6.0, -1.0, 2.0, 0.0])
    other = np.array([-1.0, 2.0, 4.0, -5.0, 0.0])
    ours = TopLabelBinning.from_counts(correct, other, 3)
    assert ours.values.tolist() == [0.1, 0.75, 0.0, 1.0, 0.9]
    paper = TopLabelBinning.from_counts(correct, other, 3, "correct_total")
    assert paper.values.tolist() == [0.1, 1.0, 0.0, 0.7, 0.9]


def test_the_confidence_is_softmax_largest_bit_for_bit():
    for classes in (2, 10, 100):
        z, y = rows(classes)
        assert (top_confidence(shifted(z)) == softmax(z).max(axis=1)).all()
        cells = outcome_cells(softmax(z), y, 15)
        assert ((cells >= 15) == (z.argmax(axis=1) != y)).all()
