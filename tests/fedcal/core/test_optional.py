"""Extras: one table of what they are for, beside what they install."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

import fedcal

ROOT = Path(fedcal.__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SOURCES = "\n".join(
    path.read_text("utf-8")
    for room in ("fedcal", "clients", "strategies", "experiments")
    for path in (ROOT / room).rglob("*.py")
)


def test_the_extra_that_a_refusal_names_installs_the_package():
    called = re.findall(r'\bneed\(\s*"(\w+)[\w.]*", "(\w+)"', SOURCES)
    assert len(called) > 10
    for module, extra in {*called} - {("datasets", "datasets"), ("ray", "simulation")}:  # Flower's
        lines = PROJECT["optional-dependencies"][extra]
        installed = {Requirement(line).name.replace("-", "_") for line in lines}
        assert module in installed, (module, extra)
