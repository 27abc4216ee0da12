"""Up to a million clients, with rows in blocks: time and memory, beside what nothing does without.

`python -m experiments.benchmarks.scale` measures all of it, and prints a table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedcal import datasets
from fedcal.core import fitting, numerics
from fedcal.core.pages import Table
from fedcal.metrics.binning import top_confidence
from fedcal.privacy.noise_plan import Federation
from fedcal.results.terminal import markdown
from fedcal.run.engines import run
from fedcal.run.sweep import Row
from fedcal.storage.npz import mapped_npz
from fedcal.strategies.server.job import Job

ROWS, CLASSES = 50, 10
METHODS = ("fednewton", "fedoneshot", "fedbbq", "evaluate", "conformal")
LIMITS: dict[str, Callable[..., object]] = {  # of some rows of scores, as they lie in the files
    "reading": np.max,
    "exponentials": np.exp,
    "cells": lambda z: np.int16(256 * top_confidence(numerics.shifted(fitting.by_class(z)))),
}
SIZES = (10_000, 100_000, 1_000_000)
_FILE_CLIENTS, _ROWS = 20_000, 4096


def write_rows(folder: Path, clients: int, seed: int = 0) -> None:
    """Write rows of an overconfident model into files of up to 20,000 clients each.

    Each client has 50 rows of 10 classes in single precision; 30 % of the labels are drawn at
    random. A file is drawn from the seed and its number, and is all that is in memory.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, clients, _FILE_CLIENTS)):
        some = min(_FILE_CLIENTS, clients - first)
        rng = np.random.default_rng([seed, number])
        logits = 3 * rng.standard_normal((some * ROWS, CLASSES), dtype=np.float32)
        labels = logits.argmax(axis=1).astype(np.int32)
        wrong = rng.random(len(labels)) < 0.3
        labels[wrong] = rng.integers(0, CLASSES, int(wrong.sum()))
        client = np.repeat(np.arange(first, first + some, dtype=np.int32), ROWS)
        np.savez(folder / f"rows-{number:05d}.npz", logits=logits, labels=labels, client=client)


def peak_mib() -> float:
    """Most memory that this process ever held, in MiB (Linux).

    `getrusage` would tell also what the parent held when it started us.
    """
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measure(work: str, folder: Path) -> Row:
    """Do one of `LIMITS` or `METHODS`, in this process: seconds, and memory above what it held."""
    before, since = peak_mib(), time.perf_counter()
    clients, rounds = (limit if work in LIMITS else in_blocks)(work, folder)
    seconds = time.perf_counter() - since
    return {
        "work": work,
        "clients": clients,
        "rounds": rounds,
        "seconds": seconds,
        "ns/row": seconds / (clients * ROWS) * 1e9,
        "MiB above the interpreter": peak_mib() - before,
    }


def limit(work: str, folder: Path) -> tuple[int, int]:
    """Return the number of clients, and of rounds: none."""

    def each(path: Path) -> int:
        scores = mapped_npz(path)["logits"]
        for some in np.array_split(scores(0, scores.rows), scores.rows // _ROWS + 1):
            LIMITS[work](some)
        return scores.rows

    return sum(fitting.in_threads(each, folder.iterdir(), fitting.usable_cores())) // ROWS, 0


def in_blocks(method: str, folder: Path) -> tuple[int, int]:
    """Run a method over rows in blocks; return the number of clients and of rounds."""
    shards = datasets.in_blocks(folder)
    federation = Federation(shards.clients, CLASSES, epsilon=1.0, delta=1e-8)
    job = Job(method, federation, {"rows_per_client": ROWS}, secure_aggregation="none")
    return shards.clients, len(run(job, shards).records)


def rows() -> Iterator[Row]:
    """Measure everything; each work in a process of its own."""
    alone = get_context("spawn")
    with TemporaryDirectory() as root, ProcessPoolExecutor(1, alone, max_tasks_per_child=1) as pool:
        folders = [Path(root, str(clients)) for clients in SIZES]
        for folder, clients in zip(folders, SIZES, strict=True):
            write_rows(folder, clients)
        yield from pool.map(measure, *zip(*product((*LIMITS, *METHODS), folders), strict=True))


def main() -> None:
    """Measure, and print a table."""
    found = list(rows())
    shown = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in r.values()] for r in found]
    print(markdown(Table("", tuple(found[0]), shown, left=(0,))))


if __name__ == "__main__":
    main()
