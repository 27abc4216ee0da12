"""Workers on Ray: the bits of inline, constant messages, and nothing lost with a worker."""

import os
import signal
import sys
import types
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pytest
from ray_cluster import ray_cluster

from fedcal import datasets, partition
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines import run
from fedcal.run.engines.ray import cluster, run_ray
from fedcal.strategies.server.job import Job

pytest.importorskip("ray")
DATA = "resnet110-cifar10"


@pytest.fixture(scope="module")
def _connected():
    """Connect to four workers, which are processes of a cluster on the loopback."""
    with pytest.MonkeyPatch.context() as patched, ray_cluster(4) as address:
        # what RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 does, if Ray is not imported yet
        patched.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)
        with cluster(address):
            yield


def job(method: str, clients: int, settings: dict[str, Any] | None = None, **options: Any) -> Job:
    masks = "masks" if options.get("trust") == "distributed" else "none"
    federation = Federation(clients, 10, seed=5, **options)
    return Job(method, federation, settings or {}, secure_aggregation=masks, dropout=0.1)


ASKED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "fedbbq": ({"rows_per_client": 20}, {"epsilon": 1.0}),
    "fedtemp": ({}, {"epsilon": 1.0, "trust": "distributed", "rounds": 3, "quorum": 0.5}),
    "fednewton": ({"rows_per_client": 20}, {"epsilon": 2.0, "trust": "local"}),
    "acct": ({"rows_per_client": 20}, {"sampling_rate": 0.5, "epsilon": 4.0}),
}


class HereRay(types.ModuleType):
    """Ray's few functions that are used, in this process."""

    def __init__(self) -> None:
        super().__init__("ray")
        kinds = {name: type(name, (Exception,), {}) for name in ERRORS}
        self.exceptions = types.SimpleNamespace(**kinds)
        self.killed: list[Any] = []
        self.is_initialized = lambda: True
        self.cluster_resources = lambda: {"CPU": 4.0}
        self.put = lambda value: [value]
        self.get = lambda value: value[0] if len(value) == 1 else value
        self.kill = self.killed.append

    def remote(self, **_: Any) -> Any:
        def start(actor: Any, first: int) -> Any:
            held = actor(first)
            calls = {n: getattr(held, n) for n in ("ready", "sum_of")}
            of = {n: types.SimpleNamespace(remote=call) for n, call in calls.items()}
            return types.SimpleNamespace(**of)

        return lambda actor: types.SimpleNamespace(remote=partial(start, actor))


ERRORS = ("RayTaskError", "RayActorError", "WorkerCrashedError")


def workers() -> list[int]:
    """Processes of the actors of a cluster on this machine."""
    known = ((path, path.read_bytes()) for path in Path("/proc").glob("[0-9]*/cmdline"))
    return [int(path.parent.name) for path, command in known if command.startswith(b"ray::_Holder")]


def the_bits_are_inline_s(clients: int, method: str) -> None:
    settings, options = ASKED[method]
    shards = partition.deal(datasets.load(DATA), "dirichlet:0.1", clients, 0)
    one = job(method, clients, settings, **options)
    assert run_ray(one, shards).records == run(one, shards).records


@pytest.mark.parametrize("method", ASKED)
def test_the_bits_are_inline_s(method, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", here := HereRay())
    the_bits_are_inline_s(60, method)
    assert len(here.killed) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("_connected")
def test_a_worker_that_is_killed_in_a_round_is_replaced_and_no_row_lost_or_counted_twice(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("fedcal.datasets._blocks.PIECE_NUMBERS", 2**18)
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (400_000, 10)).astype(np.float32)
    client = np.repeat(np.arange(8000), 50)
    np.savez(tmp_path / "rows.npz", logits=logits, labels=logits.argmax(axis=1), client=client)
    blocks = datasets.in_blocks(tmp_path / "rows.npz")
    for rows in (blocks, datasets.load(tmp_path / "rows.npz").shards(client, 8000)):
        one = job("fedtemp", 8000, rounds=4)  # of seconds each
        killed = list[int]()

        def progress(done: int, planned: int, killed: list[int] = killed) -> None:
            if done == 2:
                killed[:] = workers()[:2]
                os.kill(killed[0], signal.SIGKILL)  # before its next question
                Timer(0.05, os.kill, (killed[1], signal.SIGKILL)).start()  # and one at its work

        assert run_ray(one, rows, progress=progress).records == run(one, rows).records
        assert len({*killed} - {*workers()}) == 2
