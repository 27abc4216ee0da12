"""A site finds by itself the rows that every engine deals to it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal import datasets
from fedcal.clients.site.sources import site_rows, write_dealt
from fedcal.core.shards import Shards
from fedcal.partition import DEALT, deal

CSV = "label,client,score\n" + "".join(f"{k % 2},c{k % 3},{(k * 7 % 10) / 10}\n" for k in range(40))


def run_config(data: str | Path, partition: str, clients: int, seed: int = 0) -> dict[str, Any]:
    return {"data": str(data), "partition": partition, "clients": clients, "seed": seed}


def same(one: Shards, other: Shards) -> bool:
    return all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in ("logits", "labels", "offsets")
    )


@pytest.mark.parametrize(
    ("partition", "clients"), [("iid", 7), ("dirichlet:0.1", 30), ("natural", 3)]
)
@pytest.mark.parametrize("seed", [0, 5])
def test_every_site_has_the_rows_that_it_is_dealt(partition, clients, seed, tmp_path):
    file = tmp_path / "rows.csv"  # no test part: half of the rows are held out by seed
    file.write_text(CSV)
    want = deal(datasets.load(file).split(seed), partition, clients, seed)
    run = run_config(file, partition, clients, seed)
    for site in range(clients):
        assert same(site_rows(run, {"partition-id": site}), want.block(site, site + 1))


def test_columns_travel_with_their_rows_and_with_those_who_have_none(tmp_path):
    file = tmp_path / "rows.csv"
    scores = [((k * 7 % 10) / 10, (k * 3 % 10) / 10) for k in range(40)]
    lines = [f"{k % 2},c{k % 3},p{k % 8},w{k % 5},{a},{b}" for k, (a, b) in enumerate(scores)]
    file.write_text("\n".join(["label,client,subject,group,score,other_score", *lines]))
    want = deal(datasets.load(file).split(0), "natural", 3, 0)
    empty = np.append(want.offsets, want.offsets[-1])
    for clients, offsets, data, partition in (
        (3, want.offsets, file, "natural"),
        (4, empty, tmp_path / "rows.npz", DEALT),
    ):
        dealt = replace(want, offsets=offsets)
        write_dealt(tmp_path / "rows.npz", dealt)
        for site in range(clients):
            here = site_rows(run_config(data, partition, clients), {"partition-id": site})
            there = dealt.block(site, site + 1)
            assert same(here, there)
            for column in ("subjects", "groups", "other"):
                assert getattr(there, column) is not None
                np.testing.assert_array_equal(getattr(here, column), getattr(there, column))
            assert here.group_names == ("w0", "w1", "w2", "w3", "w4")
