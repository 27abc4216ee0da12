"""Rounds of class histograms: our vectorised loop beside loops over clients and messages."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedcal import datasets, partition
from fedcal.calibrators import BBQ, HistogramBinning
from fedcal.clients.answers import answer
from fedcal.core.checks import FedcalError
from fedcal.core.numerics import Integers, Words
from fedcal.core.shards import Shards
from fedcal.experiments.research.benchmarks.in_process import run_in_process
from fedcal.experiments.research.benchmarks.pooled import DATA, synthetic
from fedcal.experiments.research.benchmarks.timing import (
    Case,
    Contestant,
    Inside,
    PeerMissing,
    alone,
    checksum,
    print_seconds,
)
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.privacy.curator import OpenRound
from fedcal.privacy.noise_plan import Federation
from fedcal.storage.artifact import Artifact
from fedcal.strategies import FederatedStrategy
from fedcal.strategies.methods.histograms import FedBin
from fedcal.strategies.server.job import Job

_ROWS = 50  # of a client
_ROUNDS = 12

Engine = Callable[[FederatedStrategy, Shards], Artifact]

INLINE, ONE_BY_ONE = "fedcal inline", "answer() client by client"
IN_PROCESS, RAY = "Flower's loop, in-process grid", "Flower's loop, Ray"


def _federation(clients: int, rows: int) -> tuple[Shards, str]:
    """Real rows dealt at random, and their size in words."""
    data = datasets.load(DATA)
    n = clients * rows
    owner = partition.iid(data.labels[:n], clients, np.random.default_rng(0))
    shards = Shards.from_owner(data.logits[:n], data.labels[:n], owner, clients)
    return shards, f"{clients} clients x {rows} rows x {shards.classes} classes"


# -- a run of an engine -------------------------------------------------------------------------


def histograms(
    what: str,
    target: float | None,
    engines: Mapping[str, Engine],
    quick: bool,
    *,
    rounds: int = 1,
    masks: str = "none",
) -> Case:
    """FedBin at epsilon = 1: cells, clip, ring, sum, ledger, noise, table.

    What is timed is one round's share of a run: in one of several rounds cells and ledger are made
    once.
    """
    shards, size = _federation(20 if quick else 100, _ROWS)
    federation = Federation(shards.clients, shards.classes, rounds=rounds, epsilon=1.0)

    def prepare(engine: Engine) -> Callable[[], Artifact]:
        fresh = Shards(shards.logits, shards.labels, shards.offsets)  # nothing derived yet
        return partial(engine, FedBin(federation, secure_aggregation=masks), fresh)

    return Case(
        f"{what}, {size}",
        target,
        [Contestant(name, partial(prepare, run), _table, rounds) for name, run in engines.items()],
    )


def _one_by_one(strategy: FederatedStrategy, shards: Shards) -> Artifact:
    """Loop over clients, the same `answer` for each, to show what vectorising saves."""

    def sum_of(asked: OpenRound, clients: Integers) -> Words:
        total = np.zeros(asked.request.bound.length, np.uint64)
        for k in clients.tolist():
            total += answer(shards.block(k, k + 1), asked.request)[0]
        return total

    return run_inline(strategy, shards, sum_of=sum_of)


def _table(calibrator: HistogramBinning | BBQ) -> dict[str, float]:
    return {"table crc32": checksum(calibrator.table)}


# -- a population -------------------------------------------------------------------------------


def many_clients(quick: bool) -> Case:
    """Time rounds over a population."""
    clients, rows, rounds = (200, 10, 2) if quick else (10_000, 10, _ROUNDS)
    return Case(
        f"{clients:,} clients x {rounds} histogram rounds with clipping, {clients * rows:,} rows",
        5.0,
        [alone(INLINE, __name__, clients, rows, rounds)],
    )


def all_rounds(clients: int, rows: int, rounds: int) -> Callable[[], object]:
    """FedBin with clipping (epsilon = 1) over synthetic rows, `rows` per client on average."""
    logits, labels = synthetic(clients * rows, 10)
    owner = np.random.default_rng(0).integers(0, clients, len(labels))
    shards = Shards.from_owner(logits, labels, owner, clients)
    federation = Federation(clients, shards.classes, rounds=rounds, epsilon=1.0)
    return partial(run_inline, FedBin(federation, secure_aggregation="none"), shards)


# -- later rounds, and the command --------------------------------------------------------------


def engine_round(clients: int, quick: bool) -> Case:
    """Time a later round of a run in each engine, without the start of Ray and the first round.

    The released values of all rounds are compared bit for bit.
    """
    shards, size = _federation(*_size(clients, quick))
    rounds = 3 if quick else _ROUNDS
    return Case(
        f"a later histogram round, {size}",
        None,
        [
            Contestant(name, partial(_later, name, engine, shards, rounds), _released)
            for name, engine in {**_MESSAGES, RAY: None}.items()
        ],
    )


def _size(clients: int, quick: bool) -> tuple[int, int]:
    """Clients and rows of each: together all of the data."""
    clients = 20 if quick else clients
    return clients, len(datasets.load(DATA).labels) // clients


def _later(
    name: str, engine: Callable[..., Artifact] | None, shards: Shards, rounds: int
) -> Callable[[], Inside]:
    """Seconds of a round after the first, the mean over a run; without an engine on Ray.

    There progress is looked at every 0.05 s: little beside eleven rounds.
    """
    from fedcal.experiments.runs.engines.ray import run_flower

    fresh = Shards(shards.logits, shards.labels, shards.offsets)
    job = Job("fedbin", Federation(fresh.clients, fresh.classes, rounds=rounds, epsilon=1.0))
    if engine is None:
        _need_ray()
        drive = partial(run_flower, job, fresh)
    else:
        drive = partial(job.run, partial(engine, shards=fresh))
    ended: list[float] = []

    def run() -> Inside:
        outcome = drive(progress=lambda done, planned: ended.append(time.perf_counter()))
        if len(ended) != rounds:
            raise FedcalError(f"{name}: {len(ended)} of {rounds} rounds were told")
        return Inside((ended[-1] - ended[0]) / (rounds - 1), outcome.records)

    return run


def _need_ray() -> None:
    if find_spec("ray") is None:
        raise PeerMissing("ray is not installed: the extra fedcal[simulation] has it")


def _released(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    values = np.concatenate([np.asarray(r["values"], np.float64).ravel() for r in records])
    return {"releases": len(records), "released crc32": checksum(values)}


def engine_run(clients: int, quick: bool) -> Case:
    """`fedcal simulate` with one round: interpreters, imports, data, result files, all of it."""
    clients, rows = _size(clients, quick)
    start = "from fedcal.experiments.cli.main import main; main()"
    command = [sys.executable, "-c", start, "simulate", "--quiet", "--method", "fedbin"]
    command += ["--data", DATA, "--partition", "iid", "--clients", str(clients)]
    command += ["--rounds", "1", "--epsilon", "1"]

    def run(*options: str) -> list[dict[str, Any]]:
        """Run the command line in a new process, until its result files are there."""
        with TemporaryDirectory() as folder:
            subprocess.run([*command, *options, "--out", folder], check=True)
            lines = Path(folder, "rounds.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def on_ray() -> Callable[[], list[dict[str, Any]]]:
        _need_ray()
        return partial(run, "--engine", "flower")

    return Case(
        f"the command for one histogram round, {clients} clients x {rows} rows",
        None,
        [
            Contestant("fedcal simulate", lambda: run, _released),
            Contestant("fedcal simulate --engine flower", on_ray, _released),
        ],
    )


_MESSAGES: dict[str, Engine] = {INLINE: run_inline, IN_PROCESS: run_in_process}
_CLIENTS: dict[str, Engine] = {INLINE: run_inline, ONE_BY_ONE: _one_by_one}

CASES: dict[str, Callable[[bool], Case]] = {
    "round": partial(histograms, "one histogram round", 2e-3, _CLIENTS | _MESSAGES),
    "later-round": partial(
        histograms, f"a histogram round in a run of {_ROUNDS}", 2e-3, _CLIENTS, rounds=_ROUNDS
    ),
    "population": many_clients,
    "masks": partial(
        histograms,
        "one histogram round with masks, which inline counts",
        None,
        _MESSAGES,
        masks="masks",
    ),
    "engine-round-100": partial(engine_round, 100),
    "engine-round-500": partial(engine_round, 500),
    "engine-run-100": partial(engine_run, 100),
    "engine-run-500": partial(engine_run, 500),
}

if __name__ == "__main__":
    print_seconds(all_rounds)
