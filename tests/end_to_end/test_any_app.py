"""A Flower app of somebody else's, and the few lines by which fedcal follows its training."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedcal import InProcessGrid

APP = Path(__file__).parent / "app"
PACKAGE = "someapp"


@pytest.fixture
def app(tmp_path):
    """The app with its diff applied."""
    copy = tmp_path / "app"
    shutil.copytree(APP, copy, ignore=shutil.ignore_patterns("__pycache__", "*.diff"))
    patch = APP / "fedcal.diff"
    subprocess.run(["git", "apply", "--unidiff-zero", patch], cwd=copy, check=True)
    return copy


@pytest.mark.filterwarnings("ignore:Converting a tensor")
def test_the_clients_answer_from_the_model_just_trained(app, tmp_path, monkeypatch):
    """In Flower's loop over five clients."""
    monkeypatch.syspath_prepend(str(app))
    client = importlib.import_module(f"{PACKAGE}.client_app").app
    server = importlib.import_module(f"{PACKAGE}.server_app").app
    out = tmp_path / "out"
    settings = {"num-server-rounds": 1, "learning-rate": 0.1, "out": str(out)}
    server(InProcessGrid(client, range(1, 6)), Context(1, 0, {}, RecordDict(), settings))
    for module in [m for m in sys.modules if m.partition(".")[0] == PACKAGE]:
        del sys.modules[module]
    result = json.loads((out / "result.json").read_text("utf-8"))
    assert result["privacy"]["epsilon"] == 2
    assert result["sites"] == {"enrolled": 5, "answered": 5, "absent": [], "missed": {}}
    assert "how it was trained, are not covered" in " ".join(result["privacy"]["more"])
    page = (out / "report.html").read_text("utf-8")
    assert "AfterTraining(" in page
    assert "without the guard, the policy and the ledger" in page
    accuracy = result["metrics"]["accuracy"]  # of the clients' test halves: 285 rows
    assert accuracy["high"] > 0.8  # chance is .63; noise and training differ each time
    assert accuracy["high"] - accuracy["low"] < 0.3
