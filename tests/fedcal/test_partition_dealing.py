"""From what `--partition` says to shards."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fedcal.datasets import Dataset, from_arrays
from fedcal.errors import InputError
from fedcal.partition import Partition, deal, label_shards, parse, quantity
from fedcal.shards import Shards
from fedcal.streams import Purpose, stream


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
        ("iid", Partition("iid")),
        ("natural", Partition("natural")),
        ("dirichlet:0.1", Partition("dirichlet", beta=0.1)),
        ("dirichlet:1e3", Partition("dirichlet", beta=1000.0)),
        ("quantity:0.5", Partition("quantity", beta=0.5)),
        ("shards:2", Partition("shards", shards=2)),
    ],
)
def test_partitions(spec: str, expected: Partition) -> None:
    assert parse(spec) == expected


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "unknown partition ''"),
        ("Iid", "did you mean 'iid'"),
        ("iid:1", "takes no parameter, got 'iid:1'"),
        ("dirichlet", "needs dirichlet:BETA"),
        ("dirichlet:", "needs dirichlet:BETA"),
        ("dirichlet:0", "beta of partition 'dirichlet' must be finite and > 0, got 0"),
        ("quantity", "needs quantity:BETA"),
        ("quantity:many", "needs quantity:BETA"),
        ("quantity:inf", "beta of partition 'quantity' must be finite and > 0, got inf"),
        ("shards", "needs shards:N"),
        ("shards:2.5", "needs shards:N"),
        ("shards:0", "shards per client must be a whole number >= 1, got 0"),
        ("shards:" + "9" * 5000, "needs shards:N"),
        ("flwr", "needs flwr:NAME"),
        ("flwr:", "needs flwr:NAME"),
        ("quantitty:1", "did you mean 'quantity'"),
    ],
)
def test_partitions_that_are_none(spec: str, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)) as caught:
        parse(spec)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


# --- shards -------------------------------------------------------------------------------------


def test_iid_shards_are_even() -> None:
    shards = deal_as(small(), partition="iid", clients=7)
    assert sorted(shards.rows) == [8, 8, 8, 9, 9, 9, 9]


def test_dirichlet_shards_are_skewed_and_complete() -> None:
    shards = deal_as(small(), partition="dirichlet:0.1", clients=7)
    assert (shards.clients, shards.rows.sum()) == (7, 60)
    assert shards.rows.max() - shards.rows.min() > 10
    assert sorted(shards.labels) == sorted(np.arange(60) % 3)


def test_quantity_and_shards_are_dealt_by_their_functions() -> None:
    data, draw = small(), (3, Purpose.PARTITION)
    for spec, owner in (
        ("quantity:0.5", quantity(data.labels, 7, 0.5, stream(*draw))),
        ("shards:2", label_shards(data.labels, 7, 2, stream(*draw))),
    ):
        dealt = deal_as(data, spec, clients=7, seed=3)
        np.testing.assert_array_equal(dealt.rows, np.bincount(owner, minlength=7))
        np.testing.assert_array_equal(dealt.logits, data.logits[np.argsort(owner, kind="stable")])


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


@pytest.mark.parametrize("spec", ["iid", "dirichlet:0.1", "quantity:1", "shards:2"])
def test_the_partition_is_the_seed_s(spec: str) -> None:
    first, again, other = (deal_as(small(), spec, seed=s, clients=7) for s in (1, 1, 2))
    assert np.array_equal(first.offsets, again.offsets)
    assert np.array_equal(first.logits, again.logits)
    assert not np.array_equal(first.logits, other.logits)
