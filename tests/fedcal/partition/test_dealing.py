"""From what `--partition` says to shards."""

from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused

from fedcal.datasets import Dataset, from_arrays
from fedcal.partition import deal


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
