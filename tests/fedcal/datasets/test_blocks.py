"""Rows in blocks: the bits of rows in memory, little memory, and one line for what is refused."""

import itertools
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused, refused

from fedcal import datasets
from fedcal.datasets import _blocks, in_blocks
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines import inline, run
from fedcal.strategies.server.job import Job

CLIENTS, CLASSES = 40, 3


def rows(n: int = 900) -> dict[str, Any]:
    """Rows of clients of very different size, two of which have more than a piece."""
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 2, (n, CLASSES)).astype(np.float32)
    labels = np.where(rng.random(n) < 0.7, logits.argmax(axis=1), rng.integers(0, CLASSES, n))
    client = np.sort(rng.integers(0, CLIENTS, n) ** 2 // CLIENTS)
    return {
        "logits": logits,
        "labels": labels,
        "client": client,
        "subject": rng.integers(0, 5, n),
        "group": rng.choice([2, 10, 9], n),
        "other_logits": logits * 2,
    }


def write(folder: Path, given: dict[str, Any], files: int = 3) -> Path:
    """Write rows into files that end in the middle of a client."""
    folder.mkdir(exist_ok=True)
    cuts = np.linspace(0, len(given["labels"]), files + 1).astype(int)
    for k, (a, b) in enumerate(itertools.pairwise(cuts)):
        part = {name: array[a:b] for name, array in given.items()}
        np.savez(folder / f"rows-{k}.npz", **part)
    return folder


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr(_blocks, "PIECE_NUMBERS", 120)
    monkeypatch.setattr(_blocks, "_IDS", 100)


ASKED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "newton": ("fednewton", {"epsilon": 1.0}, {"rows_per_client": 20}),
    "sampled": (
        "fedbbq",
        {"epsilon": 1.0, "sampling_rate": 0.5, "rounds": 3},
        {"rows_per_client": 20},
    ),
    "shares": ("fedtemp", {"epsilon": 1.0, "trust": "distributed", "rounds": 2, "quorum": 0.5}, {}),
    "metrics": ("evaluate", {"epsilon": 1.0, "unit": "example"}, {"groups": '["2", "9", "10"]'}),
    "subjects": ("conformal", {"epsilon": 1.0, "unit": "subject"}, {"rows_per_client": 20}),
}


def test_the_bits_are_those_of_rows_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(inline.fitting, "MANY", 1)  # and those of several threads
    given = rows()
    data = datasets.from_arrays(**given)
    assert data.client is not None
    shards = data.shards(data.client, clients := len(np.unique(given["client"])))
    blocks = in_blocks(write(tmp_path / "rows", given))
    assert len(blocks.edges) > 5
    assert (blocks.clients, blocks.size, blocks.classes) == (clients, 900, CLASSES)
    assert blocks.group_names == shards.group_names == ("2", "9", "10")
    assert blocks.count_subjects() == shards.count_subjects()
    assert blocks.client_ids.tolist() == np.unique(given["client"]).tolist()
    for method, options, settings in ASKED.values():
        federation = Federation(clients, CLASSES, seed=7, **options)
        masks = "masks" if "trust" in options else "none"
        job = Job(method, federation, settings, secure_aggregation=masks, dropout=0.2)
        there, here = run(job, blocks), run(job, shards)
        assert there.records == here.records, method
    sizes = np.unique(given["client"], return_counts=True)[1]
    for first, part in blocks.parts(3):  # as workers have them
        read = [of for task in part.tasks(np.arange(part.clients), 10**6) for of in task()]
        found = [n for _, own in read for n in np.diff(own.offsets).tolist()]
        assert np.concatenate([ids for ids, _ in read]).tolist() == [*range(part.clients)]
        assert found == sizes[first : first + part.clients].tolist()


def test_memory_is_that_of_a_few_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(_blocks, "PIECE_NUMBERS", 2**13)
    monkeypatch.setattr(inline, "BLOCK_NUMBERS", 2**13)
    monkeypatch.setattr(inline, "_KEPT_BYTES", 1)
    peaks = []
    for many in (1, 1, 4):  # once for what is imported and kept
        n = many * 30_000
        logits = np.random.default_rng(0).normal(size=(n, CLASSES)).astype(np.float32)
        given = {"logits": logits, "labels": logits.argmax(axis=1), "client": np.arange(n) // 60}
        folder = write(tmp_path / str(len(peaks)), given)
        del given
        tracemalloc.start()
        blocks = in_blocks(folder)
        run(Job("fedbbq", Federation(blocks.clients, CLASSES)), blocks)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.3 * peaks[1]  # the number of clients is a small part of it
    assert peaks[2] < logits.nbytes


def test_what_cannot_be_read_in_blocks_is_one_line(tmp_path):
    def place(change: dict[str, Any]) -> Path:
        return write(tmp_path / f"{len(list(tmp_path.iterdir()))}", rows() | change)

    late = rows()["logits"].copy()
    late[700, 1] = np.nan
    np.savez_compressed(tmp_path / "packed.npz", **rows())
    np.savez(tmp_path / "columns.npz", **rows() | {"logits": np.asfortranarray(rows()["logits"])})
    other = place({})
    part = rows(10) | {"client": np.full(10, 99)}
    np.savez(other / "rows-9.npz", **{k: v for k, v in part.items() if k != "group"})
    without = {k: v for k, v in rows().items() if k != "client"}
    table = [
        (place({"client": rows()["client"][::-1]}), "must be sorted by client: .* at row"),
        (place({"logits": late}), r"in its rows \d+ to \d+.*: logits: nan at row"),
        (write(tmp_path / "nobody", without), "a column client is needed"),
        (tmp_path / "packed.npz", "is compressed"),
        (tmp_path / "columns.npz", "column by column"),
        (other, "columns and classes in all"),
    ]
    each_is_refused(table, in_blocks)
    file = place({}) / "rows-0.npz"
    opened = in_blocks(file)
    file.unlink()
    refused("cannot be read: No such file", opened.piece, 0)
