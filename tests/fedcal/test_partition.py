from __future__ import annotations

import math
from collections.abc import Callable
from unittest.mock import Mock

import numpy as np
import pytest

from fedcal.errors import InputError
from fedcal.partition import dirichlet, iid, natural

Split = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]

SPLITS: dict[str, Split] = {
    "iid": iid,
    "dirichlet 0.1": lambda y, k, rng: dirichlet(y, k, 0.1, rng),
    "dirichlet 10": lambda y, k, rng: dirichlet(y, k, 10, rng),
}
splits = pytest.mark.parametrize("split", list(SPLITS.values()), ids=list(SPLITS))


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def balanced(classes: int, rows: int) -> np.ndarray:
    """`rows` labels of each class, shuffled."""
    return generator(9).permutation(np.repeat(np.arange(classes), rows))


@splits
@pytest.mark.parametrize(("rows", "clients"), [(50, 1), (50, 7), (50, 49), (2, 300), (0, 5)])
def test_every_row_has_one_owner(split: Split, rows: int, clients: int) -> None:
    labels = balanced(10, rows)
    owner = split(labels, clients, generator())
    assert owner.shape == labels.shape
    assert owner.dtype == np.int64
    assert np.bincount(owner, minlength=clients).sum() == len(labels)
    assert len(np.bincount(owner, minlength=clients)) == clients  # so no owner is above K - 1


@splits
def test_a_seed_repeats_a_partition_and_another_does_not(split: Split) -> None:
    labels = balanced(10, 50)
    first = split(labels, 8, generator(1))
    np.testing.assert_array_equal(first, split(labels, 8, generator(1)))
    assert (first != split(labels, 8, generator(2))).mean() > 0.2


@pytest.mark.parametrize("clients", [1, 2, 3, 7, 100, 1000])
def test_iid_sizes_differ_by_at_most_one(clients: int) -> None:
    sizes = np.bincount(iid(balanced(10, 33), clients, generator()), minlength=clients)
    assert sizes.max() - sizes.min() <= 1


def test_iid_does_not_look_at_labels_or_at_the_order_of_rows() -> None:
    labels = np.repeat(np.arange(10), 1000)  # sorted: a split by position would be extreme
    owner = iid(labels, 10, generator())
    counts = np.bincount(owner * 10 + labels, minlength=100)
    # 100 cells of mean 100; hypergeometric, variance about 100 * 0.9 * 0.9
    assert np.abs(counts - 100).max() < 6 * 9


@pytest.mark.parametrize("beta", [0.05, 0.5, 1.0, 10.0])
def test_dirichlet_skew_is_that_of_beta(beta: float) -> None:
    classes, clients, rows = 800, 10, 400
    labels = np.repeat(np.arange(classes), rows)
    owner = dirichlet(labels, clients, beta, generator(3))
    share = np.bincount(labels * clients + owner, minlength=classes * clients) / rows
    squares = (share.reshape(classes, clients) ** 2).sum(axis=1)

    def agrees(b: float) -> bool:
        """E[sum p^2] = (b + 1) / (K b + 1), within 5 standard errors (and the rounding)."""
        tolerance = 5 * squares.std() / math.sqrt(classes) + 1 / rows
        return bool(abs(squares.mean() - (b + 1) / (clients * b + 1)) < tolerance)

    assert agrees(beta)
    assert not agrees(beta / 2)
    assert not agrees(beta * 2)


def test_each_class_is_split_by_its_own_draw_and_no_client_is_favoured() -> None:
    labels = np.repeat(np.arange(600), 100)
    owner = dirichlet(labels, 5, 0.05, generator(4))
    counts = np.bincount(labels * 5 + owner, minlength=3000).reshape(600, 5)
    favourites = np.bincount(counts.argmax(axis=1), minlength=5)
    assert np.abs(favourites - 120).max() < 6 * math.sqrt(600 * 0.2 * 0.8)
    assert (counts.max(axis=1) > 50).mean() > 0.9  # small beta: one client has most of a class


def test_rows_of_a_class_are_shuffled_before_the_split() -> None:
    owner = dirichlet(np.zeros(1000, np.int64), 2, 5.0, generator())
    assert (np.diff(owner) != 0).sum() > 100


@splits
@pytest.mark.parametrize("clients", [0, -3, 2.0, True])
def test_bad_clients_are_refused(split: Split, clients: int) -> None:
    with pytest.raises(InputError, match="clients must be a whole number >= 1"):
        split(balanced(2, 5), clients, generator())


@pytest.mark.parametrize("beta", [0, -1.0, math.nan, math.inf, "1"])
def test_a_bad_beta_is_refused(beta: float) -> None:
    with pytest.raises(InputError, match="beta must be a"):
        dirichlet(balanced(2, 5), 3, beta, generator())


@pytest.mark.parametrize("beta", [1e-10, 1e-300])
def test_a_tiny_beta_gives_each_class_to_one_client(beta: float) -> None:
    labels = balanced(10, 100)
    owner = dirichlet(labels, 50, beta, generator())
    assert all(len(set(owner[labels == j])) == 1 for j in range(10))
    assert len(set(owner)) > 5


def test_a_beta_that_cannot_be_drawn_from_is_refused() -> None:
    rng = Mock(wraps=generator())
    rng.dirichlet = lambda alpha: np.full(len(alpha), math.nan)  # what some numpy versions draw
    with pytest.raises(InputError, match="too small to draw from for 50 clients"):
        dirichlet(balanced(2, 5), 50, 1e-300, rng)


def test_natural_clients_are_those_of_the_data() -> None:
    owner = natural(np.array([2, 0, 1, 1], np.int32))
    assert owner.tolist() == [2, 0, 1, 1]
    assert owner.dtype == np.int64


@pytest.mark.parametrize("client", [np.zeros((3, 1), int), np.array([0.0, 1.0]), np.array(["a"])])
def test_natural_clients_must_be_integers(client: np.ndarray) -> None:
    with pytest.raises(InputError, match="one integer per row"):
        natural(client)
