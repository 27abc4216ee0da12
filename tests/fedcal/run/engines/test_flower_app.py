"""`flwr run` as the guide has it: from a clone, and from a folder that `fedcal flower-app` wrote.

The runs marked slow take half a minute each; what they start ends with them.
"""

import math
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import fedcal
from fedcal import simulate
from fedcal.clients.site.sources import site_rows
from fedcal.run.engines.flower_app import FILE, app_toml, run_config, write_app
from fedcal.strategies.server.job import Job
from fedcal.strategies.server_app import FRESH
from tests.support.superlink import shell

ROOT = Path(fedcal.__file__).resolve().parents[1]
GUIDE = ROOT / "docs" / "guide" / "engines.md"


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
