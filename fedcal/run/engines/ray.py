"""Simulated clients on a Ray cluster: each worker answers for many of them in one message.

What a worker sends is the sum of its clients' contributions, integers mod 2**64, so that the bits
are those of `run_inline` however the clients are spread. Rows are sent once, or read by the worker
that holds them, and stay with it. In Flower's own simulation, `run_flower`, each client is a
message.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedcal.clients.site.sources import write_assigned
from fedcal.core import imports, numerics
from fedcal.core.checks import FedcalError, InputError
from fedcal.core.fitting import usable_cores
from fedcal.core.shards import Shards
from fedcal.datasets import Population
from fedcal.partition import ASSIGNED
from fedcal.privacy import curator
from fedcal.privacy.query import Request
from fedcal.run.engines import inline, superlink
from fedcal.run.engines.tls import read_address
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome, Progress
from fedcal.strategies.server_app import FRESH

RESTARTS = 3
"""Number of restarts of a worker that died, in a run."""


def run_ray(
    job: Job,
    shards: Population,
    *,
    ray_address: str | None = None,
    progress: Progress | None = None,
    **kept: Any,
) -> Outcome:
    """Run a job over simulated clients whose rows are spread over the workers of a Ray cluster.

    Parameters
    ----------
    job
        what the server runs
    shards
        one for each client; rows in blocks must be there under the same path on all nodes, and each
        worker reads its own
    ray_address
        HOST:PORT of the head of a cluster, each node of which needs this version of fedcal (for one
        on the loopback alone, see `run_flower`); None = a Ray of its own, ended afterwards. A Ray
        that this process is connected to already is used as it is
    progress
        called after each round
    **kept
        the checkpoint: see `Job.run`

    Returns
    -------
    Outcome
        Same bits as from `run_inline`. `seconds` are those of the rounds: the start of Ray and the
        sending of rows are not in them.

    Raises
    ------
    InputError
        Ray is missing, or as `Job.run`; nothing was released.
    RoundFailed
        If nobody who was asked answered.
    FedcalError
        If there is no cluster, or a worker died too often.
    """
    job.plan  # noqa: B018  # refuses settings before Ray starts
    with cluster(ray_address) as ray:
        spread = Workers(ray, shards)
        drive = partial(
            inline.run_inline, shards=shards, unavailable=job.unavailable, sum_of=spread.sum_of
        )
        try:
            return job.run(drive, progress, **kept)
        finally:
            spread.end()


class Workers:
    """Actors of Ray, each with the rows of consecutive clients.

    Parameters
    ----------
    ray
        the package, connected
    shards
        rows of all clients
    """

    def __init__(self, ray: Any, shards: Population) -> None:
        self._ray = ray
        parts = shards.parts(max(1, int(ray.cluster_resources().get("CPU", 1))))
        actor = ray.remote(num_cpus=1, max_restarts=RESTARTS, max_task_retries=RESTARTS)(_Holder)
        self._rows = [ray.put(part) for _, part in parts]
        self._actors = [actor.remote(first) for first, _ in parts]
        self._edges = np.array([first for first, _ in parts] + [shards.clients])
        self._get([one.ready.remote([r]) for one, r in zip(self._actors, self._rows, strict=True)])

    def sum_of(self, asked: curator.OpenRound, alive: numerics.Integers) -> numerics.Words:
        """Return the sum of the contributions, (length,): one message to and from each worker."""
        request, cuts = asked.request, np.searchsorted(alive, self._edges)
        at = [k for k in range(len(self._actors)) if cuts[k] < cuts[k + 1]]
        waiting = [
            self._actors[k].sum_of.remote([self._rows[k]], request, alive[cuts[k] : cuts[k + 1]])
            for k in at
        ]
        total = np.zeros(request.bound.length, np.uint64)
        for words in self._get(waiting):
            total += np.frombuffer(words, np.uint64)
        return total

    def _get(self, waiting: list[Any]) -> list[Any]:
        errors = self._ray.exceptions
        try:
            return list(self._ray.get(waiting))
        except errors.RayTaskError as e:
            if isinstance(e.cause, FedcalError):
                raise e.cause from None
            raise
        except (errors.RayActorError, errors.WorkerCrashedError) as e:
            died = f"a Ray worker died {RESTARTS + 1} times"
            raise FedcalError(f"{died}: {' '.join(str(e).split())[:300]}") from None

    def end(self) -> None:
        """End the actors, and forget their rows."""
        for one in self._actors:
            self._ray.kill(one)
        self._rows.clear()


class _Holder:
    """Clients of one worker; a process that takes a dead one's place is given the same rows."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._add_up: Callable[[Request, numerics.Integers], numerics.Words] | None = None

    def _held(self, rows: list[Any]) -> Callable[[Request, numerics.Integers], numerics.Words]:
        """Return what adds up for the clients; the rows are where Ray keeps them."""
        if self._add_up is None:
            import ray

            self._add_up = inline.local_sums(ray.get(rows[0]), first=self._first, threads=1)
        return self._add_up

    def ready(self, rows: list[Any]) -> None:
        """Answer when the rows are there."""
        self._held(rows)

    def sum_of(self, rows: list[Any], request: Request, ids: numerics.Integers) -> bytes:
        """Return the sum of these clients."""
        return self._held(rows)(request, ids - self._first).tobytes()


@contextmanager
def cluster(address: str | None) -> Iterator[Any]:
    """Connect to a Ray cluster, or start a Ray on this machine; end what was started.

    Parameters
    ----------
    address
        HOST:PORT of a cluster that runs already; None = start one here. A Ray that this
        process is connected to already is used as it is, and stays

    Yields
    ------
    Any
        The package ray.

    Raises
    ------
    InputError
        Ray is missing, or there is no cluster at that address.
    """
    ray = imports.need("ray", "simulation", "computing on Ray")
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # its warning of a change
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    else:
        check_cluster(address)
    try:
        ray.init(address=address or "local", **options)
    except (ConnectionError, RuntimeError, ValueError) as e:
        why = " ".join(str(e).split())[:300]
        raise InputError(f"no Ray cluster at {address!r}: {why}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


_CLUSTER_SECONDS = 4.0


def run_flower(job: Job, shards: Shards, *, progress: Progress | None = None) -> Outcome:
    """Run a job over simulated clients in Flower's simulation engine, on a Ray of its own.

    Parameters
    ----------
    job
        what the server runs
    shards
        one shard for each client; Flower's processes read them from a file
    progress
        called after each round

    Returns
    -------
    Outcome
        Same bits as from `run_inline`. `seconds` are those of the rounds in the server; the
        start of Flower and Ray, 10 to 20 s, is not in them.

    Raises
    ------
    InputError
        If Ray or Flower's commands are missing, or as `Job.run`; nothing was released.
    RoundFailed
        If a client failed, or nobody of those asked answered.
    FedcalError
        If Flower or Ray failed.
    """
    if job.method.startswith("__main__:"):
        raise InputError(
            f"engine 'flower' computes in other processes: write the method {job.method} into a "
            "module of its own"
        )
    programs = superlink.commands("flower")
    imports.need("ray", "simulation", "engine 'flower'")
    with superlink.run_folder() as folder:
        rows, out = folder / "rows.npz", folder / "out"
        write_assigned(rows, shards)
        out.mkdir()
        here = {"data": str(rows), "partition": ASSIGNED, "out": str(out), **FRESH}
        run = superlink.FlowerRun(folder, programs, ray_environment(folder))
        run.write_app({**job.to_fields(), **here})
        clients = job.federation.clients
        federation = f"num-supernodes={clients} client-resources-num-cpus=1"
        federation += f" init-args-num-cpus={min(clients, usable_cores())}"
        with run.superlink(lambda: ("--insecure", "--simulation")):
            status = run.run(federation, out, progress)
        return run.outcome(out, status, "Flower's simulation", private=job.plan.private)


def check_cluster(address: str) -> None:
    """Refuse an address at which no cluster's head can be.

    Parameters
    ----------
    address
        HOST:PORT

    Raises
    ------
    InputError
        If it is no such address.
    FedcalError
        If nobody answers there.
    """
    read_address("ray_address", address)
    import grpc

    # Ray itself would wait for minutes, and for ever where something else listens.
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            grpc.channel_ready_future(channel).result(_CLUSTER_SECONDS)
        except grpc.FutureTimeoutError:
            raise FedcalError(f"no Ray cluster answers at {address}") from None


def ray_environment(folder: Path) -> dict[str, str]:
    """Return the variables that Ray reads: it has its own cluster in `folder`, on loopback."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ADDRESS": "local",  # no cluster that happens to run on this machine
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux too: loopback only
        "RAY_TMPDIR": str(folder),
    }
