"""From what `--partition` says to shards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedcal.datasets import Dataset, from_arrays
from fedcal.errors import InputError, NotBuiltYet
from fedcal.partition import deal, parse
from fedcal.shards import Shards


def small(**more: Any) -> Dataset:
    rng = np.random.default_rng(0)
    return from_arrays(logits=rng.normal(size=(60, 3)), labels=np.arange(60) % 3, **more)


def deal_as(
    data: Dataset, partition: str = "dirichlet:0.1", clients: int | None = None, seed: int = 0
) -> Shards:
    return deal(data, partition, clients, seed)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("iid", ("iid", 0.0)),
        ("natural", ("natural", 0.0)),
        ("dirichlet:0.1", ("dirichlet", 0.1)),
        ("dirichlet:1e3", ("dirichlet", 1000.0)),
    ],
)
def test_partitions(spec: str, expected: tuple[str, float]) -> None:
    assert parse(spec) == expected


@pytest.mark.parametrize("spec", ["quantity:1", "shards:2", "flwr:IidPartitioner", "shards"])
def test_later_partitions(spec: str) -> None:
    with pytest.raises(NotBuiltYet):
        parse(spec)


@pytest.mark.parametrize("spec", ["", "dirichlet", "dirichlet:", "dirichlet:0", "iid:1", "Iid"])
def test_partitions_that_are_none(spec: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(spec)
    assert not isinstance(caught.value, NotBuiltYet)


# --- shards -------------------------------------------------------------------------------------


def test_iid_shards_are_even() -> None:
    shards = deal_as(small(), partition="iid", clients=7)
    assert sorted(shards.rows) == [8, 8, 8, 9, 9, 9, 9]


def test_dirichlet_shards_are_skewed_and_complete() -> None:
    shards = deal_as(small(), partition="dirichlet:0.1", clients=7)
    assert (shards.clients, shards.rows.sum()) == (7, 60)
    assert shards.rows.max() - shards.rows.min() > 10
    assert sorted(shards.labels) == sorted(np.arange(60) % 3)


def test_a_hundred_clients_is_the_default() -> None:
    assert deal_as(small()).clients == 100


def test_natural_shards_are_the_data_s_own() -> None:
    names = np.array(["b", "a", "c", "a"])[np.arange(60) % 4]
    shards = deal_as(small(client=names), partition="natural")
    assert shards.rows.tolist() == [30, 15, 15]  # a, b, c
    assert deal_as(small(client=names), partition="natural", clients=3).clients == 3
    with pytest.raises(InputError, match="3 natural clients, but clients = 4"):
        deal_as(small(client=names), partition="natural", clients=4)
    with pytest.raises(InputError, match="names no clients"):
        deal_as(small(), partition="natural")


def test_the_partition_is_the_seed_s() -> None:
    first, again, other = (deal_as(small(), seed=s, clients=7) for s in (1, 1, 2))
    assert np.array_equal(first.offsets, again.offsets)
    assert np.array_equal(first.labels, again.labels)
    assert not np.array_equal(first.offsets, other.offsets)
