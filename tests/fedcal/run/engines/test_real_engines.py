"""Flower's simulation, and real SuperNodes over gRPC: the bits of inline, and nothing that stays.

Real runs are marked slow: they take 10 to 60 s each.
"""

import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest
from made_up import halves
from procfs import descendants, listening, processes, until
from superlink import shell

import fedcal
from fedcal import SimulationResult, simulate
from fedcal.clients.site.sources import site_rows
from fedcal.run.engines.flower_app import FILE, app_toml, run_config, write_app
from fedcal.strategies.server.job import Job
from fedcal.strategies.server_app import FRESH

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
    """The folders and processes made during the test are gone after it; yields earlier ones."""
    folders, make, earlier = list[str](), tempfile.mkdtemp, descendants(os.getpid())

    def noted(*arguments: Any, **options: Any) -> str:
        folders.append(make(*arguments, **options))
        return folders[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", noted)
    yield earlier
    assert until(lambda: descendants(os.getpid()) <= earlier, 20)
    assert [folder for folder in folders if Path(folder).exists()] == []


MASKED = {"epsilon": 1.0, "rounds": 2, "secure_aggregation": "masks", "dropout": 0.3, "seed": 1}
LOCAL = {"method": "fedbbq", "epsilon": 8.0, "unit": "example", "trust": "local"}
SLOW = [("flower", MASKED), ("flower", LOCAL), ("grpc", LOCAL)]
ALL = [("grpc", MASKED), *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)]


@linux
@pytest.mark.parametrize(
    ("engine", "options"), ALL, ids=["grpc-masks", "flower-masks", "flower-local", "grpc-local"]
)
@pytest.mark.filterwarnings("ignore:round 1. 2 of 3 clients answered")
def test_same_bits_as_inline_on_the_loopback_alone(engine, options, nothing_stays):
    seen: set[str] = set()

    def look(done: int, planned: int) -> None:
        seen.update(listening(descendants(os.getpid()) - nothing_stays))

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


ROOT = Path(fedcal.__file__).resolve().parents[1]
GUIDE = ROOT / "docs" / "guide" / "your-flower-app.md"


def flower(text: str) -> dict[str, Any]:
    app: dict[str, Any] = tomllib.loads(text)["tool"]["flwr"]["app"]
    return app


def test_the_project_s_own_file_is_the_app_and_sites_understand_it():
    ours = flower((ROOT / FILE).read_text("utf-8"))
    assert ours == flower(app_toml(run_config()))
    fields = ours["config"]
    job = Job.from_fields(fields, nodes=100, classes=10)
    assert set(fields) == {*job.to_fields(), "data", "partition", "out", *FRESH}
    rows = site_rows(fields, {"partition-id": 99, "num-partitions": 100})
    assert rows.clients == 1


def test_the_folder_holds_one_file_and_it_may_be_written_again(tmp_path):
    folder = tmp_path / "new" / "app"
    file = write_app(folder)
    assert [file] == list(folder.iterdir())
    first = file.read_bytes()
    assert flower(first.decode())["config"] == run_config()
    file.write_bytes(first.replace(b"epsilon = inf", b"epsilon = 2.0"))
    assert write_app(folder).read_bytes() == first


def guide_lines() -> list[str]:
    lines = [line[2:] for line in GUIDE.read_text("utf-8").splitlines() if line[:2] == "$ "]
    return [line for line in lines if re.search(r"\bflwr run\b|\bfedcal flower-app\b", line)]


def expected(line: str) -> float:
    """The temperature that the simulation of the same run finds."""
    nodes = re.search(r"num-supernodes=(\d+)", line)
    epsilon = re.search(r"epsilon=([\d.]+)", line)
    result = simulate(
        clients=int(nodes[1]) if nodes else 2,  # Flower's own default
        epsilon=float(epsilon[1]) if epsilon else math.inf,
    )
    return float(result.calibrator.arrays()["temperature"])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ends daemons, which only Linux lets it find")
@pytest.mark.parametrize("line", [line for line in guide_lines() if "flwr run" in line])
def test_flwr_run(line, tmp_path):
    """From a folder that `fedcal flower-app` writes; from a clone it is the same file."""
    (write,) = [line for line in guide_lines() if "flower-app" in line]
    folder = tmp_path if "flwr run ." in line else tmp_path / shlex.split(write)[2]
    write_app(folder)
    log = shell(line, tmp_path)
    assert f"temperature={expected(line)!r}" in log, log
    assert ("is rows / clients of the simulated data" in log) == ("epsilon=" in line)
