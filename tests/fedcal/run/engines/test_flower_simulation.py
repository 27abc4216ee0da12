"""Flower's simulation engine: same bits as inline, one clear line, and nothing that stays behind.

Real runs are marked slow: they take 10 to 60 s each.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from procfs import descendants, listening, processes, until
from ray_cluster import ray_cluster

import fedcal
import fedcal.run.engines.ray as engine
import fedcal.run.engines.superlink as superlink
from fedcal import SimulationResult, datasets, simulate
from fedcal.partition import deal
from fedcal.run.engines.superlink import MARK

ROOT = Path(fedcal.__file__).resolve().parents[1]

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
slow = pytest.mark.slow


def rows(n: int = 160, classes: int = 3) -> dict[str, Any]:
    """Overconfident logits with labels, of eight clients; some have few rows."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes))
    logits[np.arange(n), labels] += 1.0
    client = np.concatenate([np.arange(10, 14), rng.integers(6, 10, n - 4)])
    about = np.arange(n) // 2
    return {"logits": 3 * logits, "labels": labels, "client": client, "subject": about}


def same(ours: SimulationResult, theirs: SimulationResult) -> bool:
    def known(r: SimulationResult) -> dict[str, Any]:
        told = r.to_json()
        more = told["privacy"]["more"]
        told["privacy"]["more"] = [s for s in more if "this simulation counted" not in s]
        return told | {"seconds": 0, "config": told["config"] | {"engine": ""}}

    return (
        known(ours) == known(theirs)
        and ours.rounds == theirs.rounds
        and ours.test_probs.tobytes() == theirs.test_probs.tobytes()
        and [c.arrays().keys() for c in ours.history] == [c.arrays().keys() for c in theirs.history]
        and {k: v.tobytes() for k, v in ours.calibrator.arrays().items()}
        == {k: v.tobytes() for k, v in theirs.calibrator.arrays().items()}
    )


def folder_of(process: int) -> str | None:
    try:
        environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [entry for entry in environment if entry.startswith(MARK.encode() + b"=")]
    return found[0].decode().partition("=")[2] if found else None


def marked(folder: str) -> set[int]:
    return {process for process in processes() if folder_of(process) == folder}


class Witness:
    """A progress callback that looks around in the middle of a run."""

    def __init__(self) -> None:
        self.progress: list[tuple[int, int]] = []
        self.processes: set[int] = set()
        self.marked: set[int] = set()
        self.addresses: set[str] = set()

    def __call__(self, done: int, planned: int) -> None:
        self.progress.append((done, planned))
        self.processes |= descendants(os.getpid())
        self.marked |= {p for folder in FOLDERS for p in marked(folder)}
        self.addresses |= listening(self.processes)

    def saw_a_clean_run(self) -> None:
        """Ray was there, on the loopback alone, and nothing of it is left."""
        assert len(self.processes) > 6
        assert len(self.marked) > 6
        assert self.addresses == {"127.0.0.1"}
        assert not self.processes & processes().keys()
        assert not any(marked(folder) for folder in FOLDERS)
        assert not any(Path(folder).exists() for folder in FOLDERS)


FOLDERS: list[str] = []


@pytest.fixture(autouse=True)
def _folders(monkeypatch):
    make = tempfile.mkdtemp

    def noted(*arguments: Any, **options: Any) -> str:
        folder = make(*arguments, **options)
        FOLDERS.append(folder)
        return folder

    FOLDERS.clear()
    monkeypatch.setattr(superlink.tempfile, "mkdtemp", noted)
    yield
    FOLDERS.clear()


@slow
@linux
def test_same_bits_as_inline_and_nothing_stays():
    """Noise, masks, dropouts, rows in memory, natural clients of whom some have no rows."""
    options: dict[str, Any] = {"partition": "natural", "epsilon": 1.0, "rounds": 2, "seed": 2}
    options |= {"secure_aggregation": "masks", "dropout": 0.3}
    shards = deal(datasets.from_arrays(**rows()).split(2), "natural", None, 2)
    assert 0 in shards.rows
    witness = Witness()
    want = simulate(rows(), **options)
    got = simulate(rows(), engine="flower", progress=witness, **options)
    assert got.config.engine == "flower"
    assert same(got, want)
    assert witness.progress == [(1, 2), (2, 2)]
    witness.saw_a_clean_run()


def command(out: Path, *options: str) -> list[str]:
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # `make &` ignores it
        "from fedcal.cli.main import main\n"
        "main(sys.argv[1:])"
    )
    run = ["simulate", "--engine", "flower", "--clients", "3", "--rounds", "500", "--quiet"]
    return [sys.executable, "-P", "-c", code, *run, "--out", str(out), *options]


@slow
@linux
@pytest.mark.parametrize(
    ("number", "file"),
    [
        (signal.SIGINT, "app/pyproject.toml"),
        (signal.SIGINT, "out/progress"),
        (signal.SIGTERM, "out/progress"),
        (signal.SIGKILL, "out/progress"),
    ],
)
def test_an_interrupted_run_leaves_nothing(number, file, tmp_path):
    """Early, when Flower starts, and in the middle of the rounds."""
    run = subprocess.Popen(
        command(tmp_path / "result"), cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )

    def far_enough() -> bool:
        folders = {folder_of(process) for process in descendants(run.pid)} - {None}
        return any(Path(str(f), file).exists() for f in folders) or run.poll() is not None

    with run:
        assert until(far_enough)
        assert run.poll() is None
        seen = descendants(run.pid)
        (folder,) = {folder_of(process) for process in seen} - {None}
        run.send_signal(number)
        _, said = run.communicate()
    if number == signal.SIGINT:
        assert (run.returncode, said) == (130, "fedcal: interrupted; nothing was written\n")
    else:
        assert run.returncode == -number
        assert until(lambda: not seen & processes().keys())  # nobody waited for them
    assert not seen & processes().keys()
    assert until(lambda: not marked(str(folder)))
    assert until(lambda: not Path(str(folder)).exists())
    assert not (tmp_path / "result").exists()


@pytest.fixture(scope="module")
def cluster():
    with ray_cluster(2) as address:
        yield address


def environment(tmp_path: Path, address: str | None = None) -> dict[str, str]:
    own = engine.ray_environment(tmp_path, address)
    return superlink.quiet_environment(tmp_path / "home") | own


def test_nothing_of_the_user_s_environment_leads_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    for name, value in {
        "PYTHONPATH": f"here{os.pathsep}{os.pathsep}/there",
        "RAY_ADDRESS": "192.0.2.1:6379",
        "FLWR_HOME": "/home/user/.flwr",
        "FLWR_TELEMETRY_ENABLED": "1",
        "NO_PROXY": "intern.example",
        "PATH": "/usr/bin",
        "KEPT": "as it is",
    }.items():
        monkeypatch.setenv(name, value)
    env = environment(tmp_path)
    assert env["PYTHONPATH"].split(os.pathsep) == [str(ROOT), str(tmp_path / "here"), "/there"]
    assert (env["RAY_ADDRESS"], env["RAY_TMPDIR"]) == ("local", str(tmp_path))
    assert env["FLWR_HOME"] == str(tmp_path / "home")
    assert (env["FLWR_TELEMETRY_ENABLED"], env["RAY_USAGE_STATS_ENABLED"]) == ("0", "0")
    assert env["NO_PROXY"] == env["no_proxy"] == "intern.example,127.0.0.1"
    assert env["KEPT"] == "as it is"
    env = environment(tmp_path, "192.0.2.1:6379")  # a cluster keeps its own folder
    assert env["RAY_ADDRESS"] == "192.0.2.1:6379"
    assert "RAY_TMPDIR" not in env
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setattr(superlink.sysconfig, "get_path", lambda name: str(ROOT))
    assert environment(tmp_path)["PYTHONPATH"] == ""  # an installed fedcal is found without help
