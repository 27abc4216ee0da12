"""Engines of a job: the inline loop, workers on Ray, Flower's simulation, local gRPC processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.core.shards import Shards
from fedcal.datasets import Population
from fedcal.experiments.runs.config import ENGINES
from fedcal.experiments.runs.engines.flower import InProcessGrid, run_in_process
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.experiments.runs.engines.ray import NamedData, run_flower, run_ray
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome, Progress

__all__ = [
    "InProcessGrid",
    "NamedData",
    "run",
    "run_flower",
    "run_in_process",
    "run_inline",
    "run_ray",
]


def run(
    job: Job,
    shards: Population,
    engine: str = "inline",
    *,
    source: NamedData | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Outcome:
    """Run a job over the clients' rows; the same bits by every engine.

    Parameters
    ----------
    job
        what the server runs
    shards
        one for each client
    engine
        a name of `fedcal.experiments.runs.config.ENGINES`
    source, ray_address
        as `run_flower` takes them; the address is for `run_ray`, too
    progress
        called after each round
    **options
        the checkpoint of an inline run: see `Job.run`

    Raises
    ------
    InputError
        If a value is not allowed, or the ledger refuses; nothing was released.
    RoundFailed
        If a client failed, or nobody answered.
    """
    drive: Callable[..., object] = run_inline
    one_of("engine", engine, ENGINES)  # and not that of an app, which has clients of its own
    if engine == "ray":
        return run_ray(job, shards, ray_address=ray_address, progress=progress, **options)
    if isinstance(shards, Shards):
        if engine == "flower":
            return run_flower(
                job, shards, source=source, ray_address=ray_address, progress=progress
            )
        if engine == "grpc":
            from fedcal.experiments.runs.engines.grpc import run_grpc  # and its certificates

            return run_grpc(job, shards, progress=progress)
    elif engine != "inline":
        raise InputError(f"engine {engine!r} sends rows to clients: blocks need inline or ray")
    else:  # a round is long here: progress is that of its parts
        drive, progress = partial(run_inline, progress=progress), None
    driven = partial(drive, shards=shards, unavailable=job.unavailable)
    return job.run(driven, progress, **options)
