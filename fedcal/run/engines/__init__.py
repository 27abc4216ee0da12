"""Engines of a job: the inline loop, workers on Ray, Flower's simulation, local gRPC processes."""

from functools import partial
from typing import Any

from fedcal.core.checks import InputError, one_of
from fedcal.core.shards import Shards
from fedcal.datasets import Population
from fedcal.run.config import ENGINES
from fedcal.run.engines import inline, ray
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome, Progress


def run(
    job: Job,
    shards: Population,
    engine: str = "inline",
    *,
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
        a name of `fedcal.run.config.ENGINES`
    ray_address
        as `run_ray` takes it
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
    one_of("engine", engine, ENGINES)  # and not that of an app, which has clients of its own
    if engine == "ray":
        return ray.run_ray(job, shards, ray_address=ray_address, progress=progress, **options)
    if isinstance(shards, Shards):
        if engine == "flower":
            return ray.run_flower(job, shards, progress=progress)
        if engine == "grpc":
            from fedcal.run.engines.grpc import run_grpc  # and its certificates

            return run_grpc(job, shards, progress=progress)
    elif engine != "inline":
        raise InputError(f"engine {engine!r} sends rows to clients: blocks need inline or ray")
    driven = partial(inline.run_inline, shards=shards, unavailable=job.unavailable)
    return job.run(driven, progress, **options)
