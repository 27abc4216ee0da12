"""Three Flower apps of somebody else's, and the few lines by which fedcal follows a training."""

import importlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedcal import InProcessGrid
from fedcal.calibrators import load as load_calibrator
from tests.support.superlink import SuperLink

APPS = Path(__file__).parent / "apps"
NAMES = sorted(path.parent.name for path in APPS.glob("*/fedcal.diff"))
PACKAGE = "someapp"
SETTINGS = {"num-server-rounds": 1, "learning-rate": 0.1}


def changed(name: str, folder: Path) -> Path:
    """The app, whose task is of that name, with its diff applied."""
    app = folder / name
    shutil.copytree(APPS / "common", app, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(APPS / name / "task.py", app / PACKAGE)
    patch = APPS / name / "fedcal.diff"
    subprocess.run(["git", "apply", "--unidiff-zero", patch], cwd=app, check=True)
    return app


@pytest.fixture
def in_process(tmp_path, monkeypatch):
    """Run the changed app in Flower's loop over five clients; what `AfterTraining` left."""

    def run(name):
        monkeypatch.syspath_prepend(str(changed(name, tmp_path)))
        client = importlib.import_module(f"{PACKAGE}.client_app").app
        server = importlib.import_module(f"{PACKAGE}.server_app").app
        out = tmp_path / "out"
        grid = InProcessGrid(client, range(1, 6))
        server(grid, Context(1, 0, {}, RecordDict(), {**SETTINGS, "out": str(out)}))
        for module in [m for m in sys.modules if m.partition(".")[0] == PACKAGE]:
            del sys.modules[module]
        return out

    return run


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("name", NAMES)
def test_the_clients_answer_from_the_model_just_trained(name, in_process):
    out = in_process(name)
    result = json.loads((out / "result.json").read_text("utf-8"))
    assert result["privacy"]["epsilon"] == 2
    assert result["sites"] == {"enrolled": 5, "answered": 5, "absent": [], "missed": {}}
    said = " ".join(result["privacy"]["more"])
    assert "without the guard, the policy and the ledger of a real site" in said
    assert "how it was trained, are not covered" in said
    page = (out / "report.html").read_text("utf-8")
    assert "AfterTraining(" in page
    assert "without the guard, the policy and the ledger" in page
    if name == "image":
        assert 0.2 < load_calibrator(out / "calibrator.npz").temperature < 5
    elif name == "tabular":  # the clients' test halves: 285 rows
        accuracy = result["metrics"]["accuracy"]
        assert accuracy["high"] > 0.8  # chance is .63; noise and training differ each time
        assert accuracy["high"] - accuracy["low"] < 0.3
    else:
        assert 0.5 < result["sets"]["thresholds"]["all rows"] < 1


@pytest.mark.slow
def test_over_a_superlink(tmp_path):
    """Ordinary SuperNodes, with TLS and node authentication."""
    app, out = changed("tabular", tmp_path), tmp_path / "out"
    superlink = SuperLink(tmp_path, ["a", "b", "c"])
    with superlink.running():
        superlink.register("a", "b", "c")
        with superlink.supernodes("a", "b", "c"):
            superlink.flwr("run", app, "test", "-c", f'out="{out}" num-server-rounds=1')
            until, ended = time.monotonic() + 400, False
            while not ended and time.monotonic() < until:
                time.sleep(3)
                ended = superlink.runs()[0]["status"].startswith("finished")
    assert (out / "result.json").is_file(), superlink.log.read_text("utf-8")[-3000:]
    result = json.loads((out / "result.json").read_text("utf-8"))
    assert result["sites"]["answered"] == 3
