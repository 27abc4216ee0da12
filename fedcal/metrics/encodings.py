"""Encodings of counts, under which sums of neighbouring counts have little noise.

A release of counts h with noise z on each of them is h + z. Instead, clients may send M h, for a
public integer matrix M (the strategy matrix of the matrix mechanism, Li et al. 2010), and the
server estimates h from M h + z by least squares. Sums of many counts then have much less noise:

========  ==============================================================  ==================
name      M                                                               intended for
========  ==============================================================  ==================
flat      the identity                                                    single counts
prefix    the square root of the matrix of prefix sums, lower triangular  Gaussian noise
          Toeplitz with c_0 = 1, c_i = c_{i-1} (2 i - 1) / (2 i)
          (Henzinger et al. 2023), times 128 and rounded
tree      sums over the nodes of a tree of `height` levels, the root      Laplace noise
          left out, the counts its leaves (Hay et al. 2010)
========  ==============================================================  ==================

Largest std of a prefix sum of 1,024 counts at equal Gaussian noise budget: flat 32, prefix 3.28,
the binary tree 4.44. At equal Laplace budget a tree of few levels is best, because one row counts
once on each of them. `tests/fedcal/metrics/test_encodings.py` measures both.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Literal

import numpy as np

from fedcal.core.checks import one_of, unused, whole
from fedcal.core.types import Floats, Integers

SCALE = 128
"""Factor of the square root, before its entries are rounded to integers."""

Height = Annotated[int, lambda name, value: whole(name, value, 1, 12)]
"""Levels of a tree of counts, as the type of a parameter."""

MOST_BUCKETS = 4096
"""Counts that are encoded together: matrices have as many rows."""


FLAT, PREFIX, TREE = "flat", "prefix", "tree"


def _prefix(buckets: int, height: int) -> Floats:
    """Return 128 times the Toeplitz matrix of the square root of prefix sums, rounded."""
    i = np.arange(1, buckets)
    first = np.cumprod(np.concatenate([[1.0], (2 * i - 1) / (2 * i)]))
    lag = np.subtract.outer(np.arange(buckets), np.arange(buckets))
    return np.where(lag >= 0, np.rint(SCALE * first)[np.abs(lag)], 0.0)


def _tree(buckets: int, height: int) -> Floats:
    """Return a row of ones over its leaves for each node, the widest nodes first.

    Each level has the same number of children, as few as reach all buckets.
    """
    levels = tree_levels(buckets, height)
    return np.concatenate(
        [np.arange(n)[:, None] == node_of(buckets, height, k) for k, n in enumerate(levels)]
    ).astype(np.float64)


ENCODINGS: dict[str, Callable[[int, int], Floats]] = {
    FLAT: lambda buckets, _: np.eye(buckets),
    PREFIX: _prefix,
    TREE: _tree,
}
"""Name -> the strategy matrix M of so many buckets and levels, (answers, buckets), of integers."""


def branching(buckets: int, height: int) -> int:
    """Return the children of a node: the least number with `children ** height >= buckets`."""
    fan = 1
    while fan**height < buckets:
        fan += 1
    return fan


def tree_levels(buckets: int, height: int) -> tuple[int, ...]:
    """Return the nodes of each level of a tree, the widest ones first, without redundant levels.

    With 5 buckets and height 3 there are levels of 2, 3 and 5 nodes.
    """
    fan = branching(buckets, height)
    widths = (-(-buckets // fan**level) for level in range(height - 1, -1, -1))
    return tuple(sorted(set(widths)))


def node_of(buckets: int, height: int, level: int) -> Integers:
    """Return the node of a level that is above each bucket, (buckets,)."""
    nodes, fan = tree_levels(buckets, height)[level], branching(buckets, height)
    widths = [fan**k for k in range(height)]
    width = next(w for w in widths if -(-buckets // w) == nodes)
    return np.asarray(np.arange(buckets) // width)


def check_encoding(name: str, buckets: int, height: int) -> None:
    """Raise InputError if an encoding does not exist, or its matrix would be too large."""
    one_of("encoding", name, ENCODINGS)
    whole("buckets", buckets, 1, MOST_BUCKETS)
    whole("height", height, 1, 12)
    if name != TREE:
        unused(f"encoding '{name}' has no levels", height=None if height == 1 else height)


@cache
def matrix_of(name: str, buckets: int, height: int = 1, nodes: bool = False) -> Floats:
    """Return M, (answers, buckets), read-only.

    With `nodes` the first and last bucket stand beside a tree, as large as its L1 norm: counts that
    are read alone have less noise so. (Beside a prefix matrix all others would lose more.)
    """
    apart = nodes and name == TREE
    matrix = ENCODINGS[name](buckets - 2 * apart, height)
    if apart:
        matrix = np.pad(matrix, 1)
        matrix[[0, -1], [0, -1]] = matrix.sum(axis=0).max()
    matrix.setflags(write=False)
    return matrix


@cache
def decoder_of(name: str, buckets: int, height: int = 1, nodes: bool = False) -> Floats:
    """Return the matrix that decodes noisy answers, (buckets, answers), with least variance.

    It is the pseudo-inverse of M: least squares where all answers have the same noise.
    """
    m = matrix_of(name, buckets, height, nodes)
    decoder = np.linalg.inv(m) if len(m) == buckets else np.linalg.solve(m.T @ m, m.T)
    decoder.setflags(write=False)
    return np.asarray(decoder)


def column_norm(name: str, buckets: int, height: int, order: Literal[1, 2]) -> float:
    """Return the largest L1 or L2 norm of the contribution of a row, which is in one bucket."""
    return float(np.linalg.norm(matrix_of(name, buckets, height), order, axis=0).max())


def prefix_std(name: str, buckets: int, height: int, order: Literal[1, 2]) -> float:
    """Return the root mean square noise of a prefix sum, per unit of noise std at sensitivity 1.

    Encodings are chosen by it: metrics at a threshold, and curves, are computed from prefix sums.
    """
    sums = np.cumsum(decoder_of(name, buckets, height), axis=0)
    norm = column_norm(name, buckets, height, order)
    return norm * float(np.sqrt(np.square(sums).sum(axis=1).mean()))
