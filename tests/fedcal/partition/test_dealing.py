"""From what `--partition` says to shards."""

import re
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused

from fedcal.datasets import Dataset, from_arrays
from fedcal.partition import deal, parse


def small(**more: Any) -> Dataset:
    rng = np.random.default_rng(0)
    return from_arrays(logits=rng.normal(size=(60, 3)), labels=np.arange(60) % 3, **more)


def test_partitions():
    assert {p: type(parse(p)).name for p in ("iid", "natural")} == {
        "iid": "iid",
        "natural": "natural",
    }
    assert [parse(spec).beta for spec in ("dirichlet:0.1", "quantity:0.5")] == [0.1, 0.5]
    assert parse("shards:2").shards_per_client == 2
    table = {
        "": "unknown partition ''",
        "Iid": "did you mean 'iid'",
        "iid:1": "takes no parameter, got 'iid:1'",
        "dirichlet": "needs dirichlet:BETA",
        "dirichlet:0": "beta of partition 'dirichlet' must be finite and > 0, got 0",
        "quantity:many": "needs quantity:BETA",
        "quantity:inf": "beta of partition 'quantity' must be finite and > 0, got inf",
        "shards:2.5": "needs shards:N",
        "shards:0": "shards per client must be a whole number >= 1, got 0",
        "shards:" + "9" * 5000: "needs shards:N",
        "flwr": "needs flwr:NAME",
    }
    each_is_refused([(spec, re.escape(said)) for spec, said in table.items()], parse, most=400)


def test_natural_shards_are_the_data_s_own():
    names = np.array(["b", "a", "c", "a"])[np.arange(60) % 4]
    named = small(client=names)
    for clients in (None, 3):
        assert deal(named, "natural", clients, 0).rows.tolist() == [30, 15, 15]  # a, b, c
    table = [((named, 4), "3 natural clients, but clients = 4"), ((small(), None), "no clients")]
    each_is_refused(table, lambda given: deal(given[0], "natural", given[1], 0))


@pytest.mark.parametrize("spec", ["iid", "dirichlet:0.1", "quantity:1", "shards:2"])
def test_the_partition_is_the_seed_s(spec):
    first, again, other = (deal(small(), spec, 7, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.offsets, again.offsets)
    assert np.array_equal(first.logits, again.logits)
    assert not np.array_equal(first.logits, other.logits)
