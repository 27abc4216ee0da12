"""The file that `flwr run` reads, in a clone and in a folder that `fedcal flower-app` wrote."""

import tomllib
from pathlib import Path
from typing import Any

import fedcal
from fedcal.clients.site.sources import site_rows
from fedcal.run.engines.flower_app import FILE, app_toml, run_config, write_app
from fedcal.strategies.server.job import Job
from fedcal.strategies.server_app import FRESH

ROOT = Path(fedcal.__file__).resolve().parents[1]


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
