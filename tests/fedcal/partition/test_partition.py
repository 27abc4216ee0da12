"""Owners of rows: partitions by seed and skew, Flower's partitioners, the held-out part."""

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused, refused

from fedcal import partition
from fedcal.datasets import Dataset, from_arrays
from fedcal.partition import deal, dirichlet, held_out, iid, label_shards, owners_by, parse

Split = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]

SPLITS: list[Split] = [
    iid,
    lambda y, k, rng: dirichlet(y, k, 0.1, rng),
    lambda y, k, rng: partition.quantity(y, k, 10, rng),
    lambda y, k, rng: label_shards(y, k, 1, rng),
]


def balanced(classes: int, rows: int) -> np.ndarray:
    """`rows` labels of each class, shuffled."""
    return np.random.default_rng(9).permutation(np.repeat(np.arange(classes), rows))


@pytest.mark.parametrize("split", SPLITS)
def test_every_row_has_one_owner(split):
    for rows, clients in ((50, 1), (50, 7), (50, 49), (2, 300), (0, 5)):
        labels = balanced(10, rows)
        owner = split(labels, clients, np.random.default_rng(0))
        assert (owner.shape, owner.dtype) == (labels.shape, np.int64)
        sizes = np.bincount(owner, minlength=clients)
        assert len(sizes) == clients  # so no owner is above K - 1
        assert split is not iid or np.ptp(sizes) <= 1


@pytest.mark.parametrize("beta", [0.05, 1.0, 10.0])
@pytest.mark.parametrize("split", [dirichlet, partition.quantity])
def test_skew_is_that_of_beta(split, beta):
    """Moments of the shares of each class by itself, or of all rows."""
    draws, clients, rows, rng = 600, 10, 400, np.random.default_rng(3)
    if split is dirichlet:
        labels = np.repeat(np.arange(draws), rows)
        owner = labels * clients + dirichlet(labels, clients, beta, rng)
    else:
        drawn = [
            partition.quantity(np.zeros(rows, np.int64), clients, beta, rng) for _ in range(draws)
        ]
        owner = np.concatenate([k * clients + one for k, one in enumerate(drawn)])
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
    owner = label_shards(labels, clients, shards, np.random.default_rng(0))
    sizes = np.bincount(owner, minlength=clients)
    assert sizes.sum() == rows
    assert sizes.min() >= shards * (rows // (clients * shards))
    assert sizes.max() <= shards * -(-rows // (clients * shards))


def small(**more: Any) -> Dataset:
    rng = np.random.default_rng(0)
    return from_arrays(logits=rng.normal(size=(60, 3)), labels=np.arange(60) % 3, **more)


def test_natural_shards_are_the_data_s_own():
    names = np.array(["b", "a", "c", "a"])[np.arange(60) % 4]
    named = small(client=names)
    for clients in (None, 3):
        assert deal(named, "natural", clients, 0).rows.tolist() == [30, 15, 15]  # a, b, c
    table = [
        ((named, 4), "clients, the natural ones of arrays, must be 3, got 4"),
        ((small(), None), "no clients"),
    ]
    each_is_refused(table, lambda given: deal(given[0], "natural", given[1], 0))


@pytest.mark.parametrize("spec", ["iid", "dirichlet:0.1", "quantity:1", "shards:2"])
def test_the_partition_is_the_seed_s(spec):
    first, again, other = (deal(small(), spec, 7, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.offsets, again.offsets)
    assert np.array_equal(first.logits, again.logits)
    assert not np.array_equal(first.logits, other.logits)


def test_a_part_follows_from_the_id_alone():
    ids = np.arange(5000)
    full = held_out(ids, 7, 0.1)
    assert 0.085 < full.mean() < 0.115  # 3.5 standard deviations
    some = np.random.default_rng(0).permutation(5000)[:700]
    np.testing.assert_array_equal(held_out(ids[some], 7, 0.1), full[some])
    # a neighbour, without row 13: one part loses that row, the other stays as it is
    without = np.delete(ids, 13)
    parts = [set(rows[held_out(rows, 7, 0.1)]) for rows in (ids, without)]
    rest = [set(rows[~held_out(rows, 7, 0.1)]) for rows in (ids, without)]
    assert (parts[0] ^ parts[1]) | (rest[0] ^ rest[1]) == {13}


def test_neighbouring_ids_and_other_keys_are_independent():
    drawn = np.array([held_out(np.arange(4000), key, 0.5) for key in range(8)]).astype(float)
    assert np.abs(np.corrcoef(drawn) - np.eye(8)).max() < 0.08  # 5 / sqrt(4000)
    assert abs(np.corrcoef(drawn[0, :-1], drawn[0, 1:])[0, 1]) < 0.08


ROWS = 400
DISTRIBUTION = "[[1,2,3,4],[4,3,2,1],[1,1,1,1],[1,0,0,0]]"


def owners(spec: str, seed: int = 0, **more: Any) -> np.ndarray:
    """Owners of 400 rows sorted by label, of 8 clients."""
    pytest.importorskip("flwr_datasets", reason="the extra `datasets` is not installed")
    labels = np.repeat(np.arange(4), ROWS // 4)
    data = from_arrays(logits=np.zeros((ROWS, 4)), labels=labels, name="mine", **more)
    return owners_by(*parse(spec).value, data, 8, seed)[0]


PARTITIONERS = {  # spec -> sizes, where they are promised
    "flwr:PathologicalPartitioner:num_classes_per_partition=2"
    ":class_assignment_mode=deterministic": [50] * 8,
    "flwr:ExponentialPartitioner:num_partitions=5": [4, 12, 34, 93, 257],
    f"flwr:DistributionPartitioner:distribution_array={DISTRIBUTION}"
    ":num_unique_labels_per_partition=2:preassigned_num_samples_per_label=2": None,
}


@pytest.mark.parametrize("spec", PARTITIONERS)
def test_every_row_has_one_owner_by_the_seed_and_nothing_else_changes(spec, capfd):
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    owner = owners(spec, seed=1)
    assert (owner.shape, owner.dtype) == ((ROWS,), np.int64)
    if PARTITIONERS[spec] is not None:
        assert np.bincount(owner).tolist() == PARTITIONERS[spec]
    np.testing.assert_array_equal(owner, owners(spec, seed=1))
    assert (owner != owners(spec, seed=2)).mean() > 0.2
    assert random.getstate() == before[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before[1][1])  # noqa: NPY002
    assert capfd.readouterr() == ("", "")


def test_natural_owners_are_the_data_s_clients():
    client = np.random.default_rng(0).permutation(np.arange(ROWS) % 8)
    natural = "flwr:NaturalIdPartitioner"
    np.testing.assert_array_equal(owners(natural, client=client), client)
    refused("mine names no clients", owners, natural)
    refused("removed in 0.3: use dirichlet", owners, "flwr:ContinuousPartitioner:strictness=0.9")
    refused("VerticalEvenPartitioner divides columns", owners, "flwr:VerticalEvenPartitioner")
    refused("needs sizes", owners, "flwr:SizePartitioner")


def test_client_k_has_the_rows_of_partition_k_of_flower_s_data_set(monkeypatch):
    theirs, hub = map(pytest.importorskip, ("flwr_datasets", "datasets"))
    rows = hub.Dataset.from_dict({"label": np.repeat(np.arange(4), ROWS // 4), "row": range(ROWS)})
    monkeypatch.setattr(hub, "load_dataset", lambda **_: hub.DatasetDict(train=rows))
    monkeypatch.setattr(theirs.federated_dataset, "event", lambda *_: None)
    split = {"train": theirs.partitioner.DirichletPartitioner(8, "label", 0.5, seed=7)}
    data = theirs.FederatedDataset(dataset="mine", partitioners=split, seed=7)
    owner = owners("flwr:DirichletPartitioner:alpha=0.5", seed=7)
    for k in range(8):
        assert sorted(data.load_partition(k)["row"]) == np.flatnonzero(owner == k).tolist()


def test_a_row_with_two_owners_is_refused(monkeypatch):
    theirs = pytest.importorskip("flwr_datasets.partitioner")
    monkeypatch.setattr(theirs.IidPartitioner, "load_partition", lambda self, k: self.dataset)
    refused("and 400 to more than one", owners, "flwr:IidPartitioner")
