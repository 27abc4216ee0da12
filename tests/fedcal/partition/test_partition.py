import math
from collections.abc import Callable

import numpy as np
import pytest

from fedcal.partition import dirichlet, iid, label_shards, quantity

Split = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]

SPLITS: list[Split] = [
    iid,
    lambda y, k, rng: dirichlet(y, k, 0.1, rng),
    lambda y, k, rng: quantity(y, k, 10, rng),
    lambda y, k, rng: label_shards(y, k, 1, rng),
]


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def balanced(classes: int, rows: int) -> np.ndarray:
    """`rows` labels of each class, shuffled."""
    return generator(9).permutation(np.repeat(np.arange(classes), rows))


@pytest.mark.parametrize("split", SPLITS)
def test_every_row_has_one_owner_by_the_seed(split):
    for rows, clients in ((50, 1), (50, 7), (50, 49), (2, 300), (0, 5)):
        labels = balanced(10, rows)
        owner = split(labels, clients, generator())
        assert (owner.shape, owner.dtype) == (labels.shape, np.int64)
        assert len(np.bincount(owner, minlength=clients)) == clients  # so no owner is above K - 1
    labels = balanced(10, 50)
    first = split(labels, 8, generator(1))
    np.testing.assert_array_equal(first, split(labels, 8, generator(1)))
    assert (first != split(labels, 8, generator(2))).mean() > 0.2


@pytest.mark.parametrize("clients", [1, 2, 3, 7, 100, 1000])
def test_iid_sizes_differ_by_at_most_one(clients):
    sizes = np.bincount(iid(balanced(10, 33), clients, generator()), minlength=clients)
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("beta", [0.05, 0.5, 1.0, 10.0])
@pytest.mark.parametrize("split", [dirichlet, quantity])
def test_skew_is_that_of_beta(split, beta):
    """Of each class by itself, or of all rows."""
    draws, clients, rows, rng = 600, 10, 400, generator(3)
    if split is dirichlet:
        labels = np.repeat(np.arange(draws), rows)
        owner = labels * clients + dirichlet(labels, clients, beta, rng)
    else:
        dealt = [quantity(np.zeros(rows, np.int64), clients, beta, rng) for _ in range(draws)]
        owner = np.concatenate([k * clients + one for k, one in enumerate(dealt)])
    share = np.bincount(owner, minlength=draws * clients) / rows
    squares = (share.reshape(draws, clients) ** 2).sum(axis=1)

    def agrees(b: float) -> bool:
        """E[sum p^2] = (b + 1) / (K b + 1), within 5 standard errors (and the rounding)."""
        tolerance = 5 * squares.std() / math.sqrt(draws) + 1 / rows
        return bool(abs(squares.mean() - (b + 1) / (clients * b + 1)) < tolerance)

    assert agrees(beta)
    assert not agrees(beta / 2)
    assert not agrees(beta * 2)


@pytest.mark.parametrize(("rows", "clients", "shards"), [(1003, 7, 3), (50, 7, 7), (9, 4, 2)])
def test_shards_differ_by_at_most_one_row(rows, clients, shards):
    labels = np.zeros(rows, np.int64)
    sizes = np.bincount(label_shards(labels, clients, shards, generator()), minlength=clients)
    assert sizes.sum() == rows
    assert sizes.min() >= shards * (rows // (clients * shards))
    assert sizes.max() <= shards * -(-rows // (clients * shards))
