"""A site finds by itself the rows that every engine deals to it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused

from fedcal import datasets
from fedcal.clients.site.sources import site_rows, write_dealt
from fedcal.core.errors import InputError
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


def test_a_method_that_evaluates_reads_the_test_part():
    data = datasets.load("resnet110-cifar10")
    want = deal(data.evaluated(), "iid", 7, 0)
    assert len(want.labels) == len(data.test_labels)
    run = run_config("resnet110-cifar10", "iid", 7) | {"method": "evaluate"}
    assert same(site_rows(run, {"partition-id": 2}), want.block(2, 3))


def test_no_clients_are_as_many_as_flower_says_there_are():
    want = deal(datasets.load("imdb-binary").split(0), "dirichlet:0.1", 7, 0)
    for site in range(7):
        node = {"partition-id": site, "num-partitions": 7}
        assert same(
            site_rows(run_config("imdb-binary", "dirichlet:0.1", 0), node),
            want.block(site, site + 1),
        )
    with pytest.raises(InputError, match="needs the key 'num-partitions'"):
        site_rows(run_config("imdb-binary", "iid", 0), {"partition-id": 0})


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


def test_what_is_not_there_is_refused(tmp_path):
    run, node = run_config("imdb-binary", "iid", 7), {"partition-id": 0}
    short = [(key, f"needs the key '{key}'") for key in (*run, *node)]
    each_is_refused(
        short,
        lambda gone: site_rows(
            *({k: v for k, v in one.items() if k != gone} for one in (run, node))
        ),
    )
    away = [(site, f"site {site} does not exist: the data have 7 sites") for site in (-1, 7, 10**6)]
    each_is_refused(away, lambda site: site_rows(run, {"partition-id": site}))
    shards = Shards.from_owner(np.zeros((2, 2)), np.array([0, 1]), np.array([0, 1]), 2)
    write_dealt(tmp_path / "rows.npz", shards)
    np.savez(tmp_path / "other.npz", logits=np.zeros((2, 2)))
    files = [
        (("rows.npz", 3), "partitioned among 2 clients, not 3"),
        (("other.npz", 2), "contains no partitioned rows: 'labels' is missing"),
    ]
    each_is_refused(
        files, lambda of: site_rows(run_config(tmp_path / of[0], DEALT, of[1]), {"partition-id": 0})
    )
