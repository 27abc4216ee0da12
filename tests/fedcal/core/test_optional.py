"""Extras: one table of what they are for, beside what they install."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import fedcal
from fedcal.core.errors import InputError
from fedcal.core.optional import packages

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


def test_what_an_extra_asks_for_is_looked_up_in_extras_of_others_too(monkeypatch):
    lines = {
        "ours": ["numpy>=2", "other[more]>=3; extra == 'a'", "lost; python_version < '3'"],
        "other": ["scipy", "ray<2; extra == 'more'", "none; extra == 'b'"],
    }
    versions = {"numpy": "1.9", "other": "3.0", "ray": "1.5"}
    monkeypatch.setattr("importlib.metadata.requires", lines.__getitem__)
    monkeypatch.setattr("importlib.metadata.version", versions.__getitem__)
    assert list(map(str, packages(of="ours"))) == ["numpy 1.9 (another is needed)"]
    found = list(packages("a", "ours"))
    assert [(package.name, package.fits) for package in found] == [("other", True), ("ray", True)]


def test_a_folder_that_pip_did_not_install_says_so():
    with pytest.raises(InputError, match="no-such-package is not installed by pip"):
        list(packages(of="no-such-package"))
