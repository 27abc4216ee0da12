"""Partitioners of flwr-datasets: each row one owner, repeatable, and refused in one line."""

import random
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused

from fedcal.core.checks import InputError
from fedcal.datasets import Dataset, from_arrays
from fedcal.partition import owners_by, parse


@pytest.fixture
def _flower_datasets():
    pytest.importorskip("flwr_datasets", reason="the extra `datasets` is not installed")


needs_it = pytest.mark.usefixtures("_flower_datasets")

ROWS = 400
DISTRIBUTION = "[[1,2,3,4],[4,3,2,1],[1,1,1,1],[1,0,0,0]]"


def four_classes(**more: Any) -> Dataset:
    """400 rows sorted by label, 8 clients of unequal size; column 0 tells the rows apart."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(ROWS, 4))
    logits[:, 0] = np.arange(ROWS) / ROWS
    client = np.repeat(np.arange(8), [10, 20, 30, 40, 50, 60, 70, 120])
    arrays: dict[str, Any] = {"logits": logits, "client": rng.permutation(client)}
    return from_arrays(**arrays | {"labels": np.repeat(np.arange(4), ROWS // 4)} | more)


def owners(spec: str, clients: int = 8, seed: int = 0, data: Dataset | None = None) -> np.ndarray:
    partition = parse(spec)
    given = four_classes() if data is None else data
    return owners_by(partition.partitioner, partition.options, given, clients, seed)[0]


PARTITIONERS = {  # spec -> sizes, where they are promised
    "flwr:IidPartitioner": [50] * 8,
    "flwr:DirichletPartitioner:alpha=0.5:min_partition_size=1": None,
    "flwr:DirichletPartitioner:alpha=[1,2,3,4,4,3,2,1.5]:min_partition_size=0": None,
    "flwr:PathologicalPartitioner:num_classes_per_partition=2"
    ":class_assignment_mode=deterministic": [50] * 8,
    "flwr:ShardPartitioner:num_shards_per_partition=2": [50] * 8,
    "flwr:LinearPartitioner": [11, 22, 33, 44, 55, 66, 77, 92],
    "flwr:SquarePartitioner": [1, 7, 17, 31, 49, 70, 96, 129],
    "flwr:ExponentialPartitioner:num_partitions=5": [4, 12, 34, 93, 257],
    "flwr:SizePartitioner": [50] * 8,
    "flwr:InnerDirichletPartitioner:alpha=5": [50] * 8,
    "flwr:NaturalIdPartitioner": [10, 20, 30, 40, 50, 60, 70, 120],
    "flwr:GroupedNaturalIdPartitioner:group_size=3": None,
    "flwr:ContinuousPartitioner:strictness=0.9": [50] * 8,
    f"flwr:DistributionPartitioner:distribution_array={DISTRIBUTION}"
    ":num_unique_labels_per_partition=2:preassigned_num_samples_per_label=2": None,
}


@needs_it
@pytest.mark.parametrize("spec", PARTITIONERS)
def test_every_row_has_one_owner_by_the_seed_and_nothing_else_changes(spec, capfd):
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    owner = owners(spec, seed=1)
    assert (owner.shape, owner.dtype) == ((ROWS,), np.int64)
    if PARTITIONERS[spec] is not None:
        assert np.bincount(owner).tolist() == PARTITIONERS[spec]
    np.testing.assert_array_equal(owner, owners(spec, seed=1))
    if "NaturalId" not in spec:
        assert (owner != owners(spec, seed=2)).mean() > 0.2
    assert random.getstate() == before[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before[1][1])  # noqa: NPY002
    assert capfd.readouterr() == ("", "")


@needs_it
def test_every_partitioner_of_theirs_is_tried_or_refused():
    import flwr_datasets.partitioner as theirs

    refused = ["Partitioner", "IdToSizeFncPartitioner"]
    refused += ["VerticalEvenPartitioner", "VerticalSizePartitioner"]
    table = [(name, f"unknown partitioner .* '{name}'") for name in refused]
    each_is_refused(table, lambda name: parse(f"flwr:{name}"))
    tried = {spec.split(":")[1] for spec in PARTITIONERS}
    assert tried | set(refused) == set(theirs.__all__)


@needs_it
def test_natural_owners_are_the_data_s_clients():
    data = four_classes()
    np.testing.assert_array_equal(owners("flwr:NaturalIdPartitioner", data=data), data.client)
    owner = owners("flwr:GroupedNaturalIdPartitioner:group_size=2:sort_unique_ids=true", data=data)
    assert data.client is not None
    np.testing.assert_array_equal(owner, data.client // 2)
    nobody = from_arrays(logits=np.zeros((4, 2)), labels=[0, 1, 0, 1], name="mine")
    by_client = "flwr:ContinuousPartitioner:strictness=1:partition_by=client"
    each_is_refused(
        [(spec, "mine names no clients") for spec in ("flwr:NaturalIdPartitioner", by_client)],
        lambda spec: owners(spec, data=nobody),
    )


@needs_it
def test_a_row_with_two_owners_is_refused(monkeypatch):
    import flwr_datasets.partitioner as theirs

    def everything(self: Any, partition_id: int) -> Any:
        return self.dataset

    monkeypatch.setattr(theirs.IidPartitioner, "load_partition", everything)
    with pytest.raises(InputError, match="and 400 to more than one"):
        owners("flwr:IidPartitioner")
