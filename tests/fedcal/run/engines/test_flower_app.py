"""`flwr run` as the guide has it: from a clone, and from a folder that `fedcal flower-app` wrote.

The runs marked slow take half a minute each; what they start ends with them.
"""

import json
import math
import os
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcal
from fedcal import InProcessGrid, simulate
from fedcal.clients.client_app import client_app
from fedcal.clients.site.sources import site_rows
from fedcal.run.config import Config
from fedcal.run.engines.flower_app import (
    FAMILIES,
    FILE,
    app_toml,
    run_config,
    write_app,
)
from fedcal.run.simulation import finish
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome
from fedcal.strategies.server_app import FRESH, serve
from tests.support.superlink import shell

ROOT = Path(fedcal.__file__).resolve().parents[1]
GUIDE = ROOT / "docs" / "guide" / "engines.md"


def flower(text: str) -> dict[str, Any]:
    app: dict[str, Any] = tomllib.loads(text)["tool"]["flwr"]["app"]
    return app


def test_every_key_has_the_default_of_simulate_here_and_in_the_project_s_own_file():
    ours, theirs = flower((ROOT / FILE).read_text("utf-8")), flower(app_toml(run_config()))
    assert ours == theirs
    assert list(ours["config"]) == list(theirs["config"])
    fields, config = run_config(), Config()
    job = Job.from_fields(fields, nodes=100, classes=10)
    here = {"data", "partition", "out", *FRESH}
    assert set(fields) == {*job.to_fields(), *here}
    assert (fields["data"], fields["partition"]) == (config.data, config.partition)
    shared = "rounds sampling_rate epsilon delta unit seed mechanism quorum noise_source"
    for name in shared.split():
        assert getattr(job.federation, name) == getattr(config, name), name
    for name in ("method", "dropout", "ledger", "cap"):
        assert getattr(job, name) == getattr(config, name), name
    assert (fields["clients"], fields["classes"], fields["trust"]) == (0, 0, "")
    assert job.settings == config.set
    rows = site_rows(fields, {"partition-id": 99, "num-partitions": 100})
    assert rows.clients == 1  # the sites understand it too


@pytest.mark.parametrize(
    "family",
    [pytest.param(f, marks=[] if f == "evaluate" else pytest.mark.slow) for f in FAMILIES],
)
def test_each_family_has_an_app_that_runs_as_it_is(family, tmp_path):
    fields = flower(write_app(tmp_path, family).read_text("utf-8"))["config"]
    assert STRATEGIES[fields["method"]].family == family
    out = tmp_path / "out"
    app = client_app(
        lambda context: site_rows(fields, context.node_config), simulated=True, dealt_to=lambda _: 3
    )
    serve(InProcessGrid(app, range(1, 4)), {**fields, "out": str(out)})
    expected, known = simulate(method=fields["method"], clients=3), Outcome.load(out).artifact
    numbers = {k: v for k, v in expected.artifact.arrays().items() if v.dtype.kind in "fiu"}
    for name, values in numbers.items():
        np.testing.assert_array_equal(values, known.arrays()[name])
    result = json.loads((finish(out).parent / "result.json").read_text("utf-8"))
    same = expected.to_json()
    for key in same.keys() & {"after", "metrics", "sets", "intervals"}:
        assert json.dumps(result[key]) == json.dumps(same[key])


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


@pytest.fixture
def clone(tmp_path):
    folder, ignored = tmp_path / "clone", shutil.ignore_patterns("__pycache__")
    for name in ("fedcal", "clients", "strategies", "experiments"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in (FILE, "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ends daemons, which only Linux lets it find")
@pytest.mark.parametrize("line", [line for line in guide_lines() if line.find("flwr run .") > 0])
def test_flwr_run_from_a_clone(line, clone):
    log = shell(line, clone)
    assert f"temperature={expected(line)!r}" in log, log
    private = "epsilon=" in line
    assert ("is rows / clients of the simulated data" in log) == private


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ends daemons, which only Linux lets it find")
def test_flwr_run_without_a_clone(tmp_path):
    (write,) = [line for line in guide_lines() if "flower-app" in line]
    (folder,) = shlex.split(write)[2:]
    write_app(tmp_path / folder)
    line = next(line for line in guide_lines() if f"flwr run {folder}" in line)
    log = shell(line, tmp_path)
    assert f"temperature={expected(line)!r}" in log, log
    assert os.listdir(tmp_path / folder) == [FILE]
