"""Real sites on one machine: how long a run over gRPC takes, also when sites die."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from fedcal import datasets
from fedcal.experiments.research.benchmarks.harness import Benchmark
from fedcal.experiments.runs.engines.grpc import run_grpc
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.experiments.runs.engines.supernode import SuperNode
from fedcal.experiments.runs.sweep import Row
from fedcal.partition import deal
from fedcal.privacy.federation import Federation
from fedcal.strategies.server.job import Job
from fedcal.units import Example

DATA = "resnet110-cifar10"
RUNS: tuple[dict[str, Any], ...] = (
    {"method": "fedoneshot", "clients": 3},
    {"method": "fednewton", "clients": 3, "rounds": 4},
    {"method": "fednewton", "clients": 5, "rounds": 4, "committee": (5, 4)},
    {"method": "fednewton", "clients": 20, "rounds": 4},
    {"method": "fednewton", "clients": 20, "rounds": 4, "die": 2},
)
TIMEOUT = 120.0


def rows(quick: bool = False) -> Iterator[Row]:
    """One row for each run; quick: the small ones."""
    for run in RUNS[: 2 if quick else None]:
        yield measured_row(**run)


def measured_row(
    method: str,
    clients: int,
    rounds: int | None = None,
    die: int = 0,
    committee: tuple[int, int] | None = None,
) -> Row:
    """Time a run with epsilon 1 for each row; the last `die` sites lose power after round 1.

    With a committee (members, threshold) sites add up by the protocol of secure aggregation.
    """
    data = datasets.load(DATA).split(0)
    shards = deal(data, "iid", clients, 0)
    federation = Federation(clients, shards.classes, rounds=rounds, epsilon=1.0, unit=Example.name)
    summed = "none"
    if committee is not None:
        summed, (size, threshold) = "protocol", committee
        federation = replace(federation, committee=size, threshold=threshold)
    job = Job(method, federation, secure_aggregation=summed, timeout=TIMEOUT)
    nodes, ended = list[SuperNode](), list[float]()

    def moved(done: int, planned: int) -> None:
        ended.append(time.perf_counter())
        if done == 1:
            for node in nodes[clients - die :]:
                node.kill()

    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        outcome = run_grpc(job, shards, progress=moved, nodes=nodes)
    whole = time.perf_counter() - began
    same = outcome.records == job.run(lambda s: run_inline(s, shards)).records
    took = outcome.round_seconds
    return {
        "method": method,
        "sites": clients,
        "secure aggregation": summed,
        "die after round 1": die,
        "rounds": len(outcome.records),
        "first round, s": took[0],
        "median of later rounds, s": median(took[1:]) if took[1:] else "",
        "longest round, s": max(took),
        "whole run, s": whole,
        "bits of inline": same,
        "notices": "; ".join(str(one.message) for one in told),
    }


def _as_promised(found: Sequence[Row]) -> bool:
    """Test for the bits of inline if no site dies, and for a result if sites do."""
    return all(row["bits of inline"] or row["die after round 1"] for row in found)


BENCHMARK = Benchmark("runs over gRPC on this machine", rows, passed=_as_promised)
