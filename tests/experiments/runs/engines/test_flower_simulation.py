"""Flower's simulation engine: same bits as inline, one clear line, and nothing that stays behind.

Real runs are marked slow: they take 10 to 60 s each.
"""

import math
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from procfs import descendants, listening, processes, until
from ray_cluster import ray_cluster

import fedcal
import fedcal.experiments.runs.engines.ray as engine
import fedcal.experiments.runs.engines.superlink as superlink
from fedcal import datasets
from fedcal.core.checks import RoundFailed
from fedcal.experiments import SimulationResult, simulate
from fedcal.experiments.runs.engines.ray import NamedData, run_flower
from fedcal.experiments.runs.engines.superlink import MARK
from fedcal.partition import deal
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies.server.job import Job

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


@slow
@linux
@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
def test_a_client_error_stops_the_run(epsilon, tmp_path):
    shards = deal(datasets.load("imdb-binary").split(0), "iid", 3, 0)
    job = Job("fednewton", Federation(3, 2, epsilon=epsilon), {"rows_per_client": 50})
    gone = str(tmp_path / "rows-of-somebody.npz")
    with pytest.raises(RoundFailed) as caught:
        run_flower(job, shards, source=NamedData(gone, "iid"))
    line, _, log = str(caught.value).partition("; the run's log is ")
    if math.isinf(epsilon):
        assert line.startswith("site ")
        assert line.endswith("answered with an error: InputError; see the site's own log")
    else:
        assert line.startswith("round 1: a sampled client failed")
    assert "rows-of-somebody" not in str(caught.value)
    assert "rows-of-somebody" in Path(log).read_text()
    assert Path(log).stat().st_mode & 0o077 == 0
    Path(log).unlink()
    assert not any(marked(folder) or Path(folder).exists() for folder in FOLDERS)


def command(out: Path, *options: str) -> list[str]:
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # `make &` ignores it
        "from fedcal.experiments.cli.main import main\n"
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
    return {**superlink.environment(tmp_path, tmp_path / "home", tmp_path / "bin"), **own}


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
    assert env["PATH"] == f"{tmp_path}/bin{os.pathsep}/usr/bin"
    assert (env["KEPT"], env[MARK]) == ("as it is", str(tmp_path))
    env = environment(tmp_path, "192.0.2.1:6379")  # a cluster keeps its own folder
    assert env["RAY_ADDRESS"] == "192.0.2.1:6379"
    assert "RAY_TMPDIR" not in env
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setattr(superlink.sysconfig, "get_path", lambda name: str(ROOT))
    assert environment(tmp_path)["PYTHONPATH"] == ""  # an installed fedcal is found without help


def test_what_flower_bundles_holds_no_code(tmp_path):
    (tmp_path / "folder").mkdir()
    run = superlink.FlowerRun(tmp_path / "folder", superlink.commands("flower"), {})
    fields = {"epsilon": math.inf, "seed": 2**63 - 1, "out": 'a "b" \\ ü'}
    run.write_app(fields)
    (file,) = (tmp_path / "folder" / "app").iterdir()
    app = tomllib.loads(file.read_text("utf-8"))["tool"]["flwr"]["app"]
    assert file.name == "pyproject.toml"
    assert app["config"] == fields
    assert app["components"] == {
        "serverapp": "fedcal.strategies.server_app:app",
        "clientapp": "fedcal.clients.client_app:app",
    }
