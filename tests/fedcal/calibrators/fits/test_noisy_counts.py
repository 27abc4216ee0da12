"""Negative noisy counts: laws of Norm-Sub."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedcal.calibrators.histogram_binning import norm_sub
from fedcal.core.numerics import Floats

COUNTS = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, max_side=20),
    elements=st.floats(-1e6, 1e6, allow_subnormal=False),
)


def scale(counts: Floats) -> float:
    return 1e-9 * float(np.abs(counts).sum() + 1e-300)


@given(COUNTS)
def test_norm_sub_is_not_negative_and_keeps_the_total(counts):
    got = norm_sub(counts)
    assert got.shape == counts.shape
    assert (got >= 0).all()
    negative = (counts < 0).any(axis=1)
    total = counts.sum(axis=1)
    assert got.sum(axis=1) == pytest.approx(np.maximum(total, 0.0), abs=scale(counts))
    assert not got[negative & (total <= 0)].any()
    assert np.array_equal(norm_sub(got), got)


@given(COUNTS)
def test_norm_sub_keeps_the_order_and_takes_the_same_from_all_that_stay(counts):
    got = norm_sub(counts)
    order = np.argsort(counts, axis=1, kind="stable")
    assert (np.diff(np.take_along_axis(got, order, axis=1), axis=1) >= 0).all()
    for before, after in zip(counts, got, strict=True):
        taken = (before - after)[after > 0]
        if len(taken):
            assert taken == pytest.approx(taken[0], abs=scale(before))
            assert taken[0] >= -scale(before)  # a total is never raised
            assert (before[after == 0] <= taken[0] + scale(before)).all()


@given(arrays(np.float64, (2, 9), elements=st.floats(0, 1e6)))
def test_without_negative_counts_nothing_changes(counts):
    assert norm_sub(counts).tobytes() == counts.tobytes()
