"""Up to a million clients: rows in blocks, workers on Ray, masks; time, memory and bytes.

`python -m fedcal.experiments.research.benchmarks.scale write FOLDER CLIENTS` makes the rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedcal import datasets, partition
from fedcal.datasets import Population
from fedcal.experiments.research.benchmarks.harness import Benchmark, say
from fedcal.experiments.research.benchmarks.in_process import run_in_process
from fedcal.experiments.research.benchmarks.timing import PeerMissing, apart, peak_mib
from fedcal.experiments.runs.engines import run
from fedcal.experiments.runs.engines.ray import cluster, run_flower, run_ray
from fedcal.experiments.runs.sweep import Row
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies.server.job import Job

ROWS, CLASSES = 50, 10
_FILE_CLIENTS = 20_000
_METHODS = ("fednewton", "fedoneshot", "fedbbq", "evaluate", "conformal")
_SIZES = (10_000, 100_000, 1_000_000)


def write_rows(folder: Path, clients: int, *, form: str = ".npz", seed: int = 0) -> None:
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
        path = folder / f"rows-{number:05d}{form}"
        if form == ".npz":
            np.savez(path, logits=logits, labels=labels, client=client)
            continue
        import pyarrow as pa
        from pyarrow import parquet

        lists = pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), CLASSES)
        table = pa.table({"logits": lists, "label": labels, "client": client})
        parquet.write_table(table, path)


def job(method: str, clients: int, masks: str = "none") -> Job:
    """Return the job of a method at epsilon = 1, trust central."""
    settings: dict[str, Any] = {} if method == "fedbbq" else {"rows_per_client": ROWS}
    federation = Federation(clients, CLASSES, epsilon=1.0, delta=1e-8)
    return Job(method, federation, settings, secure_aggregation=masks)


def in_blocks(method: str, folder: Path) -> Row:
    """Run a method over rows in blocks, in this process: seconds, and memory above what it held."""
    before = peak_mib()
    since = time.perf_counter()
    shards = datasets.in_blocks(folder)
    opened = time.perf_counter() - since
    outcome = run(job(method, shards.clients), shards)
    seconds = time.perf_counter() - since
    return {
        "work": f"{method}, rows in blocks",
        "clients": shards.clients,
        "seconds": seconds,
        "of it checking rows": opened,
        "rounds": len(outcome.records),
        "ns/row": seconds / shards.size * 1e9,
        "MiB above the interpreter": peak_mib() - before,
    }


def rows(quick: bool = False) -> Iterator[Row]:
    """Measure everything; each run over rows in blocks in a process of its own."""
    sizes = (500, 1_000, 2_000) if quick else _SIZES
    with TemporaryDirectory() as root:
        for clients in sizes:
            write_rows(Path(root, str(clients)), clients)
            say(f"wrote {clients:,} clients")
        for method in _METHODS:
            for clients in sizes:
                yield _alone(Path(root, str(clients)), method)
        folder = Path(root, "parquet")
        write_rows(folder, sizes[1], form=".parquet")
        row = _alone(folder, "fednewton")
        yield row | {"work": f"{row['work']}, .parquet"}
        yield from _masks(*((50, 10) if quick else (10_000, 5)))
        yield from _engines(quick, [Path(root, str(clients)) for clients in sizes])


def _alone(folder: Path, method: str) -> Row:
    """Return `in_blocks` of a process of its own."""
    command = [sys.executable, "-m", __name__, "run", str(folder), method]
    row: Row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return row


def _masks(clients: int, each: int) -> Iterator[Row]:
    """Time a run with masks, which are counted and change no bit, and without."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.standard_normal((clients * each, CLASSES))
    shards = datasets.from_arrays(logits=logits, labels=logits.argmax(axis=1)).shards(
        np.repeat(np.arange(clients), each), clients
    )
    for sums in ("none", "masks"):
        since = time.perf_counter()
        outcome = run(job("fednewton", clients, sums), shards)
        yield {
            "work": f"fednewton inline, secure aggregation {sums}",
            "clients": clients,
            "seconds": time.perf_counter() - since,
            "rounds": len(outcome.records),
        }


def _engines(quick: bool, folders: Sequence[Path]) -> Iterator[Row]:
    """Time a later histogram round in each engine, and what workers and driver do of it."""
    data = datasets.load("resnet110-cifar10")
    few = 20 if quick else 500
    shards = partition.deal(data, "iid", few, 0)
    peers = {"inline": run, "Flower's loop": _loop, "Flower on Ray": run_flower}
    for name, engine in peers.items():
        yield {"work": f"histogram round, {name}", "clients": few} | _round(engine, shards)
    try:
        arrays = {"logits": shards.logits, "labels": shards.labels, "owner": shards.owner}
        with apart("pfl_round", arrays, bins=128, bound=10.0) as prepare:
            seconds = [prepare()().seconds for _ in range(6)]
        yield {"work": "histogram round, pfl", "clients": few, "seconds": float(np.median(seconds))}
    except PeerMissing as e:
        say(f"pfl: skipped: {e}")
    with _ray(4) as workers:
        if workers is None:
            return
        yield {"work": "histogram round, workers on Ray", "clients": few} | _round(workers, shards)
        for folder in folders:
            blocks = datasets.in_blocks(folder)
            once = {"work": "histogram round, workers on Ray, blocks", "clients": blocks.clients}
            yield once | _round(workers, blocks)


@contextmanager
def _ray(many: int) -> Iterator[Any]:
    """Yield the engine of workers that are processes of a cluster on the loopback."""
    command = [str(Path(sys.executable).with_name("ray"))]
    address = "127.0.0.1:6399"
    start = [*command, "start", "--head", "--port=6399", "--node-ip-address=127.0.0.1"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        subprocess.run(
            [*start, f"--num-cpus={many}", "--include-dashboard=false"], check=True, **quiet
        )
    except (OSError, subprocess.CalledProcessError):
        say("workers on Ray: skipped: `ray start` failed")
        yield None
        return
    try:
        with cluster(None, address):
            yield run_ray
    finally:
        subprocess.run([*command, "stop", "--force"], check=False, **quiet)


def _round(engine: Any, shards: Population, rounds: int = 6) -> Row:
    """Return seconds of a later round, and of the driver's part in it."""
    federation = Federation(shards.clients, CLASSES, epsilon=1.0, rounds=rounds, delta=1e-8)
    task = Job("fedbin", federation)
    ended: list[tuple[float, float]] = []

    def progress(done: int, planned: int) -> None:
        ended.append((time.perf_counter(), time.process_time()))

    engine(task, shards, progress=progress)
    first, last = np.array(ended[0]), np.array(ended[-1])
    wall, own = (last - first) / (len(ended) - 1)
    return {"seconds": wall, "rounds": 1, "driver's CPU s": own}


def _loop(task: Job, shards: Any, progress: Any) -> object:
    return task.run(partial(run_in_process, shards=shards), progress)


def _notes(measured: Sequence[Row]) -> list[str]:
    """Return how seconds and memory grow with the number of clients, fitted on a log-log scale."""
    notes = []
    by_work = groupby((row for row in measured if row.get("ns/row")), lambda row: row["work"])
    for work, group in by_work:
        points = list(group)
        if len(points) < 3:
            continue
        x = np.log([row["clients"] for row in points])
        slopes = {
            name: float(np.polyfit(x, np.log([max(row[name], 1e-9) for row in points]), 1)[0])
            for name in ("seconds", "MiB above the interpreter")
        }
        grows = ", ".join(f"{name} like clients^{slope:.2f}" for name, slope in slopes.items())
        notes.append(f"{work}: {grows}.")
    return notes


BENCHMARK = Benchmark("up to a million clients", rows, notes=_notes)

if __name__ == "__main__":
    what, place, last = sys.argv[1:4]
    if what == "write":
        write_rows(Path(place), int(last), form=(sys.argv[4:5] or [".npz"])[0])
    else:
        print(json.dumps(in_blocks(last, Path(place))))
