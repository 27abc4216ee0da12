"""Flower's simulation engine: real messages between a ServerApp and ClientApps in Ray actors.

Everything happens in child processes that end with the run: a SuperLink of its own on a free
port of the loopback interface, with its own FLWR_HOME, and `flwr run` against it. What Flower
ships to them is a folder that holds nothing but a `pyproject.toml`: the code is what is
installed, and the sites find their rows by name or path (`fedcal.clients.site.sources`).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NamedTuple

from fedcal.clients.site.sources import write_dealt
from fedcal.core.errors import FedcalError, InputError
from fedcal.core.optional import absent
from fedcal.core.parallel import usable_cores
from fedcal.core.shards import Shards
from fedcal.experiments.runs.engines.superlink import FlowerRun, commands, run_folder
from fedcal.partition import DEALT
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome, Progress
from fedcal.strategies.server_app import FRESH

_CLUSTER_SECONDS = 4.0


class NamedData(NamedTuple):
    """Data set and partition by which sites find their own rows (`site.sources.site_rows`)."""

    data: str
    partition: str


def run_flower(
    job: Job,
    shards: Shards,
    *,
    source: NamedData | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a job over simulated clients in Flower's simulation engine.

    Parameters
    ----------
    job
        what the server runs
    shards
        one shard for each client
    source
        where every process finds the same shards by itself; None = in a file that is
        written for the run, which only processes of this machine can read
    ray_address
        HOST:PORT of the head (GCS) of a Ray cluster. This machine must be one of its
        nodes; fedcal, Flower and the data must be there, under the same path, on all of them.
        (For a cluster on the loopback alone, started with RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0,
        that variable must be set here, too.) None = a Ray of its own on this machine
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
        If Flower or Ray failed, or there is no cluster at `ray_address`.
    """
    programs = commands("flower")
    if importlib.util.find_spec("ray") is None:
        raise absent("ray", "simulation", "engine 'flower'")
    if ray_address is not None:
        check_cluster(ray_address)
    with run_folder() as folder:
        if source is None:
            source = NamedData(str(folder / "rows.npz"), DEALT)
            write_dealt(Path(source.data), shards)
        out = folder / "out"
        out.mkdir()
        fields = {
            **job.to_fields(),
            "data": source.data,
            "partition": source.partition,
            "out": str(out),
            **FRESH,
        }
        run = FlowerRun(folder, programs, ray_environment(folder, ray_address))
        run.write_app(fields)
        federation = f"num-supernodes={job.federation.clients} client-resources-num-cpus=1"
        if ray_address is None:  # a cluster has the cores that it has
            federation += f" init-args-num-cpus={min(job.federation.clients, usable_cores())}"
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
    host, _, port = address.rpartition(":")
    plain = host and "/" not in address and port.isascii() and port.isdecimal()
    if not plain or not 0 < int(port) < 65536:
        raise InputError(
            f"ray_address must be HOST:PORT of a cluster's head, such as 127.0.0.1:6379, "
            f"got {address!r}"
        )
    import grpc

    # Ray itself would wait for minutes, and for ever where something else listens.
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        try:
            grpc.channel_ready_future(channel).result(_CLUSTER_SECONDS)
        except grpc.FutureTimeoutError:
            raise FedcalError(f"no Ray cluster answers at {address}") from None


def ray_environment(folder: Path, ray_address: str | None) -> dict[str, str]:
    """Return the variables that Ray reads: its own Ray in `folder`, or the cluster's address."""
    own = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on Linux too: loopback only
        "RAY_TMPDIR": str(folder),
    }
    cluster = {"RAY_NUM_REDIS_GET_RETRIES": "1"}  # a head that is gone: fail after half a minute
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ADDRESS": ray_address or "local",  # no cluster that happens to run on this machine
        **(own if ray_address is None else cluster),
    }
