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
from fedcal.artifact import Artifact
from fedcal.calibrators import BBQ, HistogramBinning
from fedcal.clients.answers import answer
from fedcal.errors import FedcalError
from fedcal.experiments.benchmarks import population
from fedcal.experiments.benchmarks.timing import Case, Contestant, Inside, PeerMissing, checksum
from fedcal.experiments.engines.flower import run_in_process
from fedcal.experiments.engines.inline import run_inline
from fedcal.privacy.plan import Federation
from fedcal.shards import Shards
from fedcal.strategies import CalibrationStrategy, FedBin
from fedcal.strategies.job import Job
from fedcal.strategies.outcome import Outcome, Progress

_DATA = "resnet110-cifar10"
_ROWS = 50  # of a client
_ROUNDS = 12

Engine = Callable[[CalibrationStrategy, Shards], Artifact]


def histogram_round(quick: bool) -> Case:
    """A whole run of one round: cells, clip, ring, sum, ledger, noise, table."""
    shards = _federation(20 if quick else 100)
    return Case(
        f"one histogram round, {_shape(shards)}",
        2e-3,
        _round("fedcal inline", run_inline, shards),
        (
            _round("answer() client by client", _one_by_one, shards),
            _round("Flower's loop, in-process grid", run_in_process, shards),
        ),
    )


def later_round(quick: bool) -> Case:
    """A round's share of a run of twelve: cells and ledger are made once."""
    shards = _federation(20 if quick else 100)
    return Case(
        f"a histogram round in a run of {_ROUNDS}, {_shape(shards)}",
        2e-3,
        _round("fedcal inline", run_inline, shards, rounds=_ROUNDS),
        (_round("answer() client by client", _one_by_one, shards, rounds=_ROUNDS),),
    )


def masked_round(quick: bool) -> Case:
    """The same round with every contribution masked."""
    shards = _federation(20 if quick else 100)
    return Case(
        f"one histogram round with masks, {shards.clients} clients",
        None,
        _round("fedcal inline", run_inline, shards, masks=True),
        (_round("Flower's loop, in-process grid", run_in_process, shards, masks=True),),
    )


def many_clients(quick: bool) -> Case:
    """Rounds over a population, in a process of its own."""
    clients, rows, rounds = (200, 10, 2) if quick else (10_000, 10, _ROUNDS)
    return Case(
        f"{clients:,} clients x {rounds} histogram rounds with clipping, {clients * rows:,} rows",
        5.0,
        Contestant(
            "fedcal inline",
            lambda: lambda: population.run_apart(clients, rows, rounds),
            lambda told: dict(told),
        ),
    )


def _shape(shards: Shards) -> str:
    rows = len(shards.labels) // shards.clients
    return f"{shards.clients} clients x {rows} rows x {shards.classes} classes"


def _federation(clients: int, rows: int = _ROWS) -> Shards:
    data = datasets.load(_DATA)
    n = clients * rows
    owner = partition.iid(data.labels[:n], clients, np.random.default_rng(0))
    return Shards.from_owner(data.logits[:n], data.labels[:n], owner, clients)


def _round(
    name: str, engine: Engine, shards: Shards, *, rounds: int = 1, masks: bool = False
) -> Contestant:
    """FedBin at epsilon = 1; what is timed is one round's share of a run."""

    def prepare() -> Callable[[], Inside]:
        fresh = Shards(shards.logits, shards.labels, shards.offsets)  # nothing derived yet
        strategy = FedBin(
            Federation(shards.clients, shards.classes, rounds=rounds, epsilon=1.0),
            secure_aggregation="masks" if masks else "none",
        )

        def run() -> Inside:
            start = time.perf_counter()
            calibrator = engine(strategy, fresh)
            return Inside((time.perf_counter() - start) / rounds, calibrator)

        return run

    return Contestant(name, prepare, _table)


def _one_by_one(strategy: CalibrationStrategy, shards: Shards) -> Artifact:
    """A plain loop over clients, the same `answer` for each: what vectorising saves."""
    for round_number in range(1, strategy.plan.rounds + 1):
        asked = strategy.open_round(round_number)
        if asked is None:
            break
        strategy.charge_round(asked, len(asked.clients))
        total = np.zeros(asked.request.bound.length, np.uint64)
        for k in asked.clients.tolist():
            total += answer(shards.block(k, k + 1), asked.request)[0]
        strategy.close_round(asked, total)
    return strategy.result()


def _table(calibrator: HistogramBinning | BBQ) -> dict[str, float]:
    return {"table crc32": checksum(calibrator.table)}


# -- engines ------------------------------------------------------------------------------------

Drive = Callable[[Job, Shards, Progress], Outcome]


def engine_round(clients: int, quick: bool) -> Case:
    """A later round of one run in each engine: the start of Ray and the first round do not count.

    The released values of all rounds are compared bit for bit.
    """
    shards, rounds = _federation(*_size(clients, quick)), 3 if quick else _ROUNDS
    return Case(
        f"a later histogram round, {_shape(shards)}",
        None,
        _later("fedcal inline", _driven_by(run_inline), shards, rounds),
        (
            _later("Flower's loop, in-process grid", _driven_by(run_in_process), shards, rounds),
            _later("Flower's loop, Ray", _drive_ray, shards, rounds),
        ),
    )


def engine_run(clients: int, quick: bool) -> Case:
    """`fedcal simulate` with one round: interpreters, imports, data, result files, all of it."""
    clients, rows = _size(clients, quick)
    options: dict[str, Any] = {
        "--data": _DATA,
        "--method": "fedbin",
        "--clients": clients,
        "--partition": "iid",
    }
    return Case(
        f"the command for one histogram round, {clients} clients x {rows} rows",
        None,
        _command("fedcal simulate", options),
        (_command("fedcal simulate --engine ray", options | {"--engine": "ray"}),),
    )


def _size(clients: int, quick: bool) -> tuple[int, int]:
    """Clients and rows of each: together all of the data."""
    clients = 20 if quick else clients
    return clients, len(datasets.load(_DATA).labels) // clients


def _later(name: str, drive: Drive, shards: Shards, rounds: int) -> Contestant:
    """Seconds of a round after the first, the mean over a run."""

    def prepare() -> Callable[[], Inside]:
        if drive is _drive_ray:
            _need_ray()
        fresh = Shards(shards.logits, shards.labels, shards.offsets)
        job = Job("fedbin", Federation(fresh.clients, fresh.classes, rounds=rounds, epsilon=1.0))
        ended: list[float] = []

        def run() -> Inside:
            outcome = drive(job, fresh, lambda done, planned: ended.append(time.perf_counter()))
            if len(ended) != rounds:
                raise FedcalError(f"{name}: {len(ended)} of {rounds} rounds were told")
            return Inside((ended[-1] - ended[0]) / (rounds - 1), outcome.records)

        return run

    return Contestant(name, prepare, _released)


def _released(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    values = np.concatenate([np.asarray(r["values"], np.float64).ravel() for r in records])
    return {"releases": len(records), "released crc32": checksum(values)}


def _driven_by(engine: Callable[..., Artifact]) -> Drive:
    return lambda job, shards, progress: job.run(partial(engine, shards=shards), progress)


def _drive_ray(job: Job, shards: Shards, progress: Progress) -> Outcome:
    """Progress is looked at every 0.05 s: little beside eleven rounds."""
    from fedcal.experiments.engines.ray import run_ray

    return run_ray(job, shards, progress=progress)


def _need_ray() -> None:
    if find_spec("ray") is None:
        raise PeerMissing("ray is not installed: the extra fedcal[simulation] has it")


def _command(name: str, options: dict[str, Any]) -> Contestant:
    """A fresh process of the command line, until its result files are there."""

    def prepare() -> Callable[[], list[dict[str, Any]]]:
        if "--engine" in options:
            _need_ray()
        return run

    def run() -> list[dict[str, Any]]:
        with TemporaryDirectory() as folder:
            given = options | {"--rounds": 1, "--epsilon": 1, "--out": folder}
            start = "from fedcal.experiments.cli import main; main()"
            command = [sys.executable, "-c", start, "simulate", "--quiet"]
            command += [str(word) for pair in given.items() for word in pair]
            subprocess.run(command, check=True)
            lines = Path(folder, "rounds.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    return Contestant(name, prepare, _released)
