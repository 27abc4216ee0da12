"""The edge rule of the one binning function."""

import bisect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcal.metrics import bin_index

# No deadline: no test depends on the clock. Derandomized: a run repeats.
steady = settings(deadline=None, derandomize=True)

floats = st.floats(0.0, 1.0)


@steady
@given(st.lists(floats, max_size=30), st.integers(1, 300))
def test_rule_in_plain_python(values, bins):
    edges = [float(np.float32(k / bins)) for k in range(1, bins)]
    expected = [bisect.bisect_right(edges, float(np.float32(v))) for v in values]
    assert bin_index(values, bins).tolist() == expected


@pytest.mark.parametrize("bins", [1, 2, 10, 15, 20, 49, 100, 128, 1000, 2**20 - 1])
def test_an_edge_belongs_to_the_bin_above(bins):
    edges, each = np.arange(bins) / bins, np.arange(bins)
    single = edges.astype(np.float32)
    for same in (edges, single, edges * (1 + 1e-15), edges * (1 - 1e-15)):
        np.testing.assert_array_equal(bin_index(same, bins), each)
    below = np.nextafter(single, np.float32(-1.0))[1:]
    np.testing.assert_array_equal(bin_index(below, bins), each[:-1])
    assert bin_index([0.0, -0.0, 5e-324, 1e-40], bins).tolist() == [0] * 4
