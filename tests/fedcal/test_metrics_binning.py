"""The edge rule of the one binning function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcal.errors import InputError
from fedcal.metrics import bin_index

# No deadline: no test depends on the clock. Derandomized: a run repeats.
steady = settings(deadline=None, derandomize=True)

floats = st.floats(0.0, 1.0)


@steady
@given(st.lists(floats, max_size=30), st.integers(1, 300))
def test_rule_in_plain_python(values: list[float], bins: int) -> None:
    expected = [min(math.floor(v * bins), bins - 1) for v in values]
    assert bin_index(values, bins).tolist() == expected


@pytest.mark.parametrize("bins", [1, 2, 15, 128])
def test_an_edge_belongs_to_the_bin_above(bins: int) -> None:
    edges = np.arange(bins) / bins
    assert bin_index(edges, bins).tolist() == list(range(bins))


@pytest.mark.parametrize("bins", [15, 128])
def test_one_ulp_below_an_edge_is_the_bin_below(bins: int) -> None:
    below = np.nextafter(np.arange(1, bins + 1) / bins, 0.0)
    assert bin_index(below, bins).tolist() == list(range(bins))


def test_the_rounded_product_decides() -> None:
    assert bin_index(np.nextafter(0.9, 0.0), 10) == 9
    assert bin_index(0.29, 100) == 28


def test_the_last_bin_is_closed_and_takes_a_little_more() -> None:
    top = [np.nextafter(1.0, 0.0), 1.0, np.nextafter(1.0, 2.0), 1 + 2e-5, 1 + 1e-3]
    assert bin_index(top, 15).tolist() == [14] * 5
    assert bin_index(1 + 1e-3, 2**20) == 2**20 - 1


def test_zeros_of_either_sign_and_subnormals_are_in_bin_0() -> None:
    assert bin_index([0.0, -0.0, 5e-324], 15).tolist() == [0, 0, 0]


def test_shape_and_type() -> None:
    index = bin_index(np.full((2, 3), 0.5, np.float32), 4)
    assert index.shape == (2, 3)
    assert index.dtype == np.int64
    assert bin_index(0.5, 4).shape == ()
    assert bin_index(np.empty((0, 3)), 4).shape == (0, 3)


def test_float32_is_binned_as_the_double_it_stands_for() -> None:
    values = (np.arange(129) / 128).astype(np.float32) * np.float32(0.999)
    assert bin_index(values, 15).tolist() == bin_index(values.astype(float), 15).tolist()


def test_input_is_left_alone() -> None:
    values = np.array([0.1, 1 + 2e-5])
    bin_index(values, 15)
    assert values.tolist() == [0.1, 1 + 2e-5]


def test_outside_is_refused() -> None:
    for bad in (-1e-300, -0.1, 1 + 2e-3, math.nan, math.inf, -math.inf):
        with pytest.raises(InputError, match=r"must lie in \[0, 1\]") as caught:
            pytest.fail(f"taken: {bad} {bin_index([0.5, bad, 0.5], 15)}")
        assert "\n" not in str(caught.value)


def test_number_of_bins() -> None:
    bad: list[Any] = [0, -1, 2.0, True, 2**20 + 1]
    for bins in bad:
        with pytest.raises(InputError, match="bins must be a whole number"):
            pytest.fail(f"taken: {bins} {bin_index([0.5], bins)}")
