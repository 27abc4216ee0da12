"""Up to a million clients, with rows in blocks: time and memory.

`python -m experiments.benchmarks.scale --out DIR` measures all of it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedcal import datasets
from fedcal.core.pages import Table
from fedcal.privacy.noise_plan import Federation
from fedcal.results.terminal import markdown
from fedcal.run.engines import run
from fedcal.run.sweep import Row
from fedcal.strategies.server.job import Job

ROWS, CLASSES = 50, 10
METHODS = ("fednewton", "fedoneshot", "fedbbq", "evaluate", "conformal")
SIZES = (10_000, 100_000, 1_000_000)
_FILE_CLIENTS = 20_000


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


def in_blocks(method: str, folder: Path) -> Row:
    """Run a method over rows in blocks, in this process: seconds, and memory above what it held."""
    before, since = peak_mib(), time.perf_counter()
    shards = datasets.in_blocks(folder)
    settings = {"rows_per_client": ROWS}
    federation = Federation(shards.clients, CLASSES, epsilon=1.0, delta=1e-8)
    outcome = run(Job(method, federation, settings, secure_aggregation="none"), shards)
    seconds = time.perf_counter() - since
    return {
        "work": f"{method}, rows in blocks",
        "clients": shards.clients,
        "rounds": len(outcome.records),
        "seconds": seconds,
        "ns/row": seconds / shards.size * 1e9,
        "MiB above the interpreter": peak_mib() - before,
    }


def rows(quick: bool = False) -> Iterator[Row]:
    """Measure everything; each run over rows in blocks in a process of its own."""
    sizes = (500, 1_000) if quick else SIZES
    alone = get_context("spawn")
    with TemporaryDirectory() as root, ProcessPoolExecutor(1, alone, max_tasks_per_child=1) as pool:
        folders = [Path(root, str(clients)) for clients in sizes]
        for folder, clients in zip(folders, sizes, strict=True):
            write_rows(folder, clients)
        yield from pool.map(in_blocks, *zip(*product(METHODS, folders), strict=True))


def main() -> None:
    """Measure, and write `scale.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench-out"))
    parser.add_argument("--quick", action="store_true", help="few clients")
    given = parser.parse_args()
    found = list(rows(given.quick))
    shown = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in r.values()] for r in found]
    page = markdown(Table("", tuple(found[0]), shown, left=(0,)))
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "scale.md").write_text(page, "utf-8")
    print(page)


if __name__ == "__main__":
    main()
