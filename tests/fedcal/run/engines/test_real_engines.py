"""Flower's simulation, and real SuperNodes over gRPC: the bits of inline, and nothing that stays.

Real runs are marked slow: they take 10 to 60 s each.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest
from made_up import halves
from procfs import descendants, listening, processes, until
from refusals import each_is_refused

from fedcal import SimulationResult, simulate

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
