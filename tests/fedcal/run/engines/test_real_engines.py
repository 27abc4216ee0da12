"""Flower's simulation, and real SuperNodes over gRPC: the bits of inline, and nothing that stays.

Real runs are marked slow: they take 10 to 60 s each.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest
from made_up import halves
from procfs import descendants, listening, processes, until
from refusals import each_is_refused

from fedcal import SimulationResult, simulate
from fedcal.core.numerics import Integers
from fedcal.core.shards import Shards
from fedcal.privacy.privacy import Federation
from fedcal.run.engines.grpc import run_grpc
from fedcal.run.engines.inline import run_inline
from fedcal.run.engines.supernode import SuperNode
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome

ROWS, CLASSES = 240, 3
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def rows() -> dict[str, Any]:
    """Rows of three natural clients, with a test part."""
    return halves(CLASSES, ROWS, 5, 1.0) | {"client": np.arange(ROWS) % 3}


def run(engine: str, **options: Any) -> SimulationResult:
    return simulate(rows(), clients=3, engine=engine, partition="natural", **options)


def bits(result: SimulationResult) -> Any:
    return result.rounds, result.before, result.after, result.test_probs.tobytes()


@pytest.fixture
def nothing_stays(monkeypatch):
    """The folders made during the test and all processes are gone after it."""
    folders, make = list[str](), tempfile.mkdtemp

    def noted(*arguments: Any, **options: Any) -> str:
        folders.append(make(*arguments, **options))
        return folders[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", noted)
    yield
    assert until(lambda: descendants(os.getpid()) == set(), 20)
    assert [folder for folder in folders if Path(folder).exists()] == []


def test_what_an_engine_cannot_do_is_one_line():
    table: list[tuple[dict[str, Any], str]] = [
        (
            {"data": rows(), "clients": None},
            r"inline takes any\) must be a whole number in \[1, 64\], got 100",
        ),
        (
            {"engine": "inline", "timeout": 5.0},
            "timeout has no effect here: the engine is not grpc",
        ),
        ({"engine": "study"}, "is started by fedcal study run"),
        ({"engine": "study", "method": "none"}, "real sites keep theirs"),
        ({"engine": "study", "dropout": 0.1}, "real sites are not simulated"),
    ]
    each_is_refused(table, lambda given: simulate(**{"engine": "grpc", "clients": 3, **given}))


@pytest.mark.slow
@linux
@pytest.mark.parametrize("engine", ["flower", "grpc"])
@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 1.0, "rounds": 2, "secure_aggregation": "masks", "dropout": 0.3, "seed": 1},
        {"method": "fedbbq", "epsilon": 8.0, "unit": "example", "trust": "local"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:round 1: 2 of 3 clients answered")
def test_same_bits_as_inline_on_the_loopback_alone(engine, options, nothing_stays):
    seen: set[str] = set()

    def look(done: int, planned: int) -> None:
        seen.update(listening(descendants(os.getpid())))

    assert bits(run(engine, progress=look, **options)) == bits(run("inline", **options))
    assert seen == {"127.0.0.1"}


INTERRUPTS = [
    *(("flower", number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)),
    ("grpc", signal.SIGINT),
]


@pytest.mark.slow
@linux
@pytest.mark.parametrize(("engine", "number"), INTERRUPTS)
def test_an_interrupted_run_leaves_nothing(engine, number, tmp_path):
    np.savez(tmp_path / "rows.npz", **rows())
    command = [sys.executable, "-m", "fedcal", "simulate", "--data", "rows.npz", "--out", "out"]
    command += ["--engine", engine, "--clients", "3", "--rounds", "500", "--quiet"]
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,  # a longer path fits no socket
        subprocess.Popen(
            command, cwd=tmp_path, env=os.environ | {"TMPDIR": folder}, stderr=PIPE, text=True
        ) as process,
    ):
        started = until(lambda: bool([*Path(folder).glob("*/out/progress")]), 120)
        below = descendants(process.pid)
        process.send_signal(number)
        _, written = process.communicate(timeout=60)
        assert started, written
        if number == signal.SIGINT:
            assert process.returncode == 130
            assert written.splitlines()[-1] == "fedcal: interrupted; nothing was written"
        assert until(lambda: not below & processes().keys())
        assert until(lambda: not [*Path(folder).glob("fedcal-*")])
    assert not (tmp_path / "out").exists()


SITES, LAST = 5, 4
STEPS = {"before it answers": "asked which", "answered": "answered:", "confirmed": "confirmed:"}
"""When the last site dies -> what its log has said just before."""


def shards() -> Shards:
    given = rows()
    return Shards(given["logits"], given["labels"], 48 * np.arange(SITES + 1), "logits")


def secure_job(**facts: float | str) -> Job:
    """Five sites, all in the committee, of whom one may be away."""
    agreed = {"quorum": 0.8, "committee": 5, "threshold": 4, "colluding": 2}
    federation = Federation(SITES, CLASSES, **agreed, **facts)
    return Job("fedbin", federation, secure_aggregation="protocol", timeout=40.0)


def inline(job: Job, away: tuple[int, ...] = ()) -> Outcome:
    def drop(number: int) -> Integers:
        return np.array(away, np.int64)

    return job.run(lambda strategy: run_inline(strategy, shards(), unavailable=drop))


def killing(words: str) -> tuple[list[SuperNode], Callable[[], bool]]:
    """Nodes, of which the last one is killed once its log holds these words; whether it was."""
    nodes, done = list[SuperNode](), threading.Event()

    def watch() -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            if len(nodes) == SITES:
                log: Path = nodes[LAST].folder / "site.log"
                if log.exists() and words in log.read_text("utf-8"):
                    nodes[LAST].kill()
                    done.set()
                    return
            time.sleep(0.005)

    threading.Thread(target=watch, daemon=True).start()
    return nodes, done.is_set


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_site_that_dies_at_any_step_of_a_secure_sum_moves_no_bit_of_the_others(step):
    """The sum is that of the signed contributions: with its own where it had answered."""
    nodes, killed = killing(STEPS[step])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run_grpc(secure_job(), shards(), nodes=nodes)
    assert killed()
    with_it, without = (inline(secure_job(), away).records for away in ((), (LAST,)))
    # it dies as it answers: the message may be out or not
    possible = {"before it answers": [without], "answered": [with_it, without]}
    assert found.records in possible.get(step, [with_it])


@pytest.mark.slow
def test_noise_in_shares_through_a_real_superlink_has_the_bits_of_inline():
    job = secure_job(epsilon=4.0, trust="distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run_grpc(job, shards())
    assert found.records == inline(job).records
