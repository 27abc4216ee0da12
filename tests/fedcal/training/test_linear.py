"""The linear head: gradients as plain formulas give them, exact sums, bounded rows."""

import numpy as np
import pytest

from fedcal.core.errors import InputError
from fedcal.core.numerics import softmax
from fedcal.core.types import Floats, Integers
from fedcal.training.linear import HEAVIEST, LONGEST, Linear
from fedcal.training.network import Clipping

GRID = 2.0**-36
CLASSES, WIDTH = 4, 6
HEAD = Linear()


def rows_of(n: int, scale: float = 0.5) -> tuple[Floats, Integers, Floats]:
    rng = np.random.default_rng(2)
    w = rng.normal(0, 1, HEAD.size((WIDTH,), CLASSES))
    return rng.normal(0, scale, (n, WIDTH)), rng.integers(0, CLASSES, n), w


def plain(w: Floats, x: Floats, y: Integers) -> Floats:
    """(n, size) gradients of the cross-entropy, in floats."""
    ones = np.column_stack([x, np.ones(len(x))])
    residual = softmax(ones @ w.reshape(CLASSES, -1).T)
    residual[np.arange(len(y)), y] -= 1
    return np.einsum("nc,nd->ncd", residual, ones).reshape(len(y), -1)


@pytest.mark.parametrize("rule", ["row", "global", "none"])
def test_sums_are_those_of_bounded_gradients(rule):
    x, y, w = rows_of(50)
    raw = plain(w, x, y)
    norms = np.linalg.norm(raw, axis=1)
    clip, reach = 0.4, float(np.median(norms)) * 1.01
    factor = {
        "row": np.minimum(1, clip / norms),
        "global": np.where(norms <= reach, clip / reach, 0),
        "none": np.ones(50),
    }[rule]
    clipping = Clipping(clip, rule, reach)
    ours = HEAD.steps(w, HEAD.prepared(x), y, np.array([0, 50]), CLASSES, clipping, GRID)
    np.testing.assert_allclose(ours[0] * GRID, (raw * factor[:, None]).sum(axis=0), atol=2e-3)


def test_every_way_to_deal_the_rows_adds_up_to_the_same_integers():
    x, y, w = rows_of(9000)  # more than share a product
    each = HEAD.prepared(x)
    cuts = (np.array([0, 9000]), np.array([0, 1, 1, 17, 5000, 9000]), np.arange(9001))
    sums = [
        HEAD.steps(w, each, y, offsets, CLASSES, Clipping(0.3), GRID).sum(axis=0)
        for offsets in cuts
    ]
    order = np.random.default_rng(0).permutation(9000)
    sums.append(
        HEAD.steps(w, each[order], y[order], cuts[0], CLASSES, Clipping(0.3), GRID).sum(axis=0)
    )
    for other in sums[1:]:
        np.testing.assert_array_equal(other, sums[0])


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 1e3, 1e30])
@pytest.mark.parametrize("clip", [1e-3, 0.1, 10.0])
def test_no_row_adds_more_than_the_clip(scale, clip):
    x, y, w = rows_of(60)
    x[5:] *= scale
    grid = float(2.0 ** np.floor(np.log2(clip))) * GRID
    w *= 1 + scale
    each = HEAD.steps(w, HEAD.prepared(x), y, np.arange(61), CLASSES, Clipping(clip), grid)
    largest = max(sum(int(v) ** 2 for v in row) for row in each)  # Python's: no rounding
    assert largest <= (clip / grid) ** 2
    assert largest > (0.999 * clip / grid) ** 2 or clip == 10.0


def test_what_is_too_long_is_shortened_and_a_coarse_grid_refused():
    x, _, w = rows_of(3)
    far = HEAD.logits(w, x * 1e9, CLASSES)
    assert np.isfinite(far).all()
    assert np.abs(far).max() <= (LONGEST + 1) * np.linalg.norm(w)
    assert np.abs(HEAD.logits(w * 1e9, x, CLASSES)).max() <= HEAVIEST * (LONGEST + 1)
    for clip, grid, wanted in ((1.0, 1e-3, "smaller"), (1e-6, 2.0**-36, "larger")):
        rows = HEAD.prepared(x), np.zeros(3, int), np.array([0, 3])
        with pytest.raises(InputError, match=f"too coarse .* use a {wanted} clip"):
            HEAD.steps(w, *rows, CLASSES, Clipping(clip), grid)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_a_row_that_is_no_numbers_is_bounded_as_any_other(bad):
    x, y, w = rows_of(3)
    x[1, 2] = bad
    for k in range(3):
        row = slice(k, k + 1)
        steps = HEAD.steps(
            w, HEAD.prepared(x[row]), y[row], np.array([0, 1]), CLASSES, Clipping(0.3), GRID
        )
        assert np.linalg.norm(steps.astype(np.float64)) * GRID <= 0.3
