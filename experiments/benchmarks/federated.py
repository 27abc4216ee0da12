"""Rounds of many clients and an evaluation, beside our peers'."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from experiments.benchmarks.in_process import run_in_process
from experiments.benchmarks.pooled import DATA, synthetic
from experiments.benchmarks.timing import Case, Contestant, Inside, checksum, named, peer
from fedcal import datasets, partition
from fedcal.calibrators import BBQ, HistogramBinning
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.run.engines.ray import run_flower
from fedcal.strategies.methods.evaluate import FedEvaluate
from fedcal.strategies.methods.histograms import FedBin
from fedcal.strategies.server.job import Job
from fedcal.units import Example

ROUNDS = 12
ENGINES = {
    "fedcal inline": run_inline,
    "Flower's loop, in-process grid": run_in_process,
    "Flower's loop, Ray": None,
}


def _released(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    values = np.concatenate([np.asarray(r["values"], np.float64).ravel() for r in records])
    return {"releases": len(records), "released crc32": checksum(values)}


def engine_round(clients: int, rows: int, quick: bool) -> Case:
    """Time a later round of a run in each engine, without the start of Ray and the first round.

    The released values of all rounds are compared bit for bit; pfl's round has noise of its own.
    """
    clients, rounds = (20, 3) if quick else (clients, ROUNDS)
    data, n = datasets.load(DATA), clients * rows
    owner = partition.iid(data.labels[:n], clients, np.random.default_rng(0))
    shards = rows_by_owner(data.logits[:n], data.labels[:n], owner, clients)
    arrays = {"logits": shards.logits, "labels": shards.labels, "owner": shards.owner}
    contestants = [
        Contestant(name, partial(_later, engine, shards, rounds), _released)
        for name, engine in ENGINES.items()
    ]
    pfl = peer("pfl-research", lambda total: {}, "pfl_round", arrays, bins=128, bound=10.0)
    size = f"{clients} clients x {rows} rows x {shards.classes} classes"
    return Case(f"a later histogram round, {size}", None, [*contestants, pfl])


def _later(engine: Any, shards: Shards, rounds: int) -> Callable[[], Inside]:
    fresh = Shards(shards.logits, shards.labels, shards.offsets)  # nothing derived yet
    job = Job("fedbin", Federation(fresh.clients, fresh.classes, rounds=rounds, epsilon=1.0))
    drive: Any = partial(run_flower, job, fresh)
    if engine is None:
        if find_spec("ray") is None:
            raise ImportError("ray is not installed: the extra fedcal[simulation] has it")
    else:
        drive = partial(job.run, partial(engine, shards=fresh))
    ended: list[float] = []

    def run() -> Inside:
        outcome = drive(progress=lambda done, planned: ended.append(time.perf_counter()))
        return Inside((ended[-1] - ended[0]) / (rounds - 1), outcome.records)

    return run


def population(quick: bool) -> Case:
    """Time rounds over many clients."""
    clients, rows, rounds = (200, 10, 2) if quick else (10_000, 10, ROUNDS)
    logits, labels = synthetic(clients * rows, 10)
    owner = np.random.default_rng(0).integers(0, clients, len(labels))
    federation = Federation(clients, 10, rounds=rounds, epsilon=1.0)

    def prepare() -> Callable[[], object]:
        shards = rows_by_owner(logits, labels, owner, clients)  # nothing derived yet
        return partial(run_inline, FedBin(federation, secure_aggregation="none"), shards)

    def values(calibrator: HistogramBinning | BBQ) -> dict[str, float]:
        return {"table crc32": checksum(calibrator.table)}

    title = f"{clients:,} clients x {rounds} histogram rounds, {clients * rows:,} rows"
    return Case(title, 5.0, [Contestant("fedcal inline", prepare, values)])


# -- evaluation ---------------------------------------------------------------------------------


def evaluated(shards: Shards) -> ScoreRelease:
    """One release with epsilon 1 for each row; all metrics with their intervals."""
    federation = Federation(shards.clients, 2, epsilon=1.0, unit=Example.name)
    method = FedEvaluate(federation, secure_aggregation="none")
    fresh = Shards(shards.logits, shards.labels, shards.offsets)  # nothing derived yet
    run_inline(method, fresh)
    release = method.result()
    release.results()
    return release


def evaluation(quick: bool) -> Case:
    """All metrics of many clients' rows in process, and the peers' AUC of the pooled rows.

    Scores are calibrated, most of them near 0 and 1, and dealt at random.
    """
    clients, rows = (200, 50) if quick else (10_000, 100)
    rng, n = np.random.default_rng(0), clients * rows
    score = np.clip(rng.beta(0.5, 0.5, n), 1e-9, 1 - 1e-9)
    labels = (rng.random(n) < score).astype(np.int64)
    logits = np.stack([np.log1p(-score), np.log(score)], axis=1)
    shards = rows_by_owner(logits, labels, rng.integers(0, clients, n), clients)
    arrays = {"score": score, "labels": labels}

    def auc(release: ScoreRelease) -> dict[str, float]:
        return {"AUC": release.found.metrics["model"]["roc_auc"].value}

    return Case(
        f"evaluation of {n:,} rows over {clients:,} clients",
        2.0,
        [
            Contestant("fedcal, all metrics, epsilon 1", lambda: lambda: evaluated(shards), auc),
            peer("scikit-learn roc_auc_score, pooled", named("AUC"), "sklearn_roc_auc", arrays),
            peer("torchmetrics binary_auroc, pooled", named("AUC"), "torchmetrics_roc_auc", arrays),
        ],
    )


CASES: dict[str, Callable[[bool], Case]] = {
    "engine-round-100": partial(engine_round, 100, 50),
    "engine-round-500": partial(engine_round, 500, 10),
    "population": population,
    "evaluation": evaluation,
}
