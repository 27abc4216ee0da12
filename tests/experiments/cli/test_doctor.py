"""`fedcal doctor`: what is lacking, by the metadata, for which command."""

import json
from importlib import metadata

import pytest

from fedcal.core.errors import InputError
from fedcal.experiments.cli.main import COMMANDS, _run

GUARD = "fedcal.experiments.cli.doctor.check_flower"


def refuse():
    raise InputError("flwr was not tried")


@pytest.fixture
def report(monkeypatch, capsys):
    """What it says where these packages are not installed."""
    version = metadata.version

    def report(*lost, quiet=False):
        def look(name):
            if name in lost:
                raise metadata.PackageNotFoundError(name)
            return version(name)

        monkeypatch.setattr("importlib.metadata.version", look)
        assert _run(["doctor", *(["--quiet"] if quiet else [])]) == 0
        said = capsys.readouterr().out
        assert _run(["doctor", "--json"]) == 0
        return said, json.loads(capsys.readouterr().out)

    return report


def test_what_is_lacking_is_said_of_the_commands_that_need_it(report, monkeypatch):
    monkeypatch.setattr(GUARD, refuse)
    said, found = report("opacus", "ray", "onnx")
    commands = {name: lines for name, lines in found["commands"].items() if lines}
    for name, extra in (("simulate", "simulation"), ("train", "train"), ("export", "export")):
        assert any(line.endswith(f"pip install 'fedcal[{extra}]'") for line in commands[name])
    assert commands["site"] == [*commands["site"][:-1], "flwr was not tried"]
    assert {"plan", "report", "datasets", "site key"} & commands.keys() == set()
    assert found["extras"]["fedcal[train]"] == "lacks opacus"
    lines = said.splitlines()
    assert lines[: 1 + len(found["lacking"])] == [found["summary"], *found["lacking"]]
    runs = found["summary"].partition(" run here")[0].removeprefix("fedcal ").split(", ")
    assert {"simulate", "train"} <= {*runs} <= COMMANDS.keys() - {"export", "site"}
