"""Strategy matrices: counts come back, and prefix sums hold the noise that the docs say."""

import numpy as np
import pytest

from fedcal.metrics import binning

CASES = [(name, b, h) for name in binning.ENCODINGS for b in (1, 2, 5, 9, 64) for h in (1, 2, 3)]


@pytest.mark.parametrize(("name", "buckets", "height"), CASES)
def test_counts_come_back(name, buckets, height):
    matrix = binning.matrix_of(name, buckets, height)
    assert (matrix == np.rint(matrix)).all()
    np.testing.assert_allclose(
        binning.decoder_of(name, buckets, height) @ matrix, np.eye(buckets), atol=1e-8
    )


def largest(name: str, buckets: int, height: int, order: int) -> float:
    sums = np.cumsum(binning.decoder_of(name, buckets, height), axis=0)
    norm = binning.column_norm(name, buckets, height, order)
    return norm * float(np.sqrt(np.square(sums).sum(axis=1)).max())


def test_largest_noise_of_a_prefix_sum():
    """METHODS 7 of Henzinger et al. 2023 and Hay et al. 2010, 1,024 counts."""
    assert largest("flat", 1024, 1, 2) == pytest.approx(32.0)
    assert largest("prefix", 1024, 1, 2) == pytest.approx(3.279, abs=1e-3)
    # under pure epsilon few levels are best: a row counts once on each
    assert largest("tree", 1024, 3, 1) < 0.35 * largest("flat", 1024, 1, 1)
    assert binning.prefix_std("tree", 1024, 3, 1) < binning.prefix_std("tree", 1024, 10, 1)
