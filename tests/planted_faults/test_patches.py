"""The planted faults fit the source, and name tests that are there and run by default.

Whether the tests catch them, `python tests/planted_faults` says.
"""

from __future__ import annotations

import ast
import importlib.util
import shutil
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script() -> ModuleType:
    path = Path(__file__).with_name("__main__.py")
    spec = importlib.util.spec_from_file_location("planted_faults", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


PLANTED = script()
FAULTS = PLANTED.faults()


@cache
def slowness(path: str) -> dict[str, bool]:
    """The tests of a file: name -> whether it is slow."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    marks = [n for n in tree.body if isinstance(n, ast.Assign) and "pytestmark" in ast.unparse(n)]
    all_slow = any("slow" in ast.unparse(mark) for mark in marks)
    return {
        node.name: all_slow or any("mark.slow" in ast.unparse(d) for d in node.decorator_list)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_there_are_enough_of_them() -> None:
    assert len(FAULTS) >= 30


def test_every_patch_applies() -> None:
    if shutil.which("git") is None:
        pytest.skip("patches are applied by git, which is not installed here")
    said = {name: PLANTED.apply(fault, ROOT, "--check") for name, fault in FAULTS.items()}
    assert {name: why for name, why in said.items() if why} == {}


def test_their_tests_are_there_and_run_by_default() -> None:
    for name, fault in FAULTS.items():
        assert fault.what.endswith("."), name
        for test in fault.tests:
            path, _, function = test.partition("::")
            assert slowness(path).get(function) is False, f"{name}: {test} is not there, or slow"


def test_a_patch_changes_a_line_or_a_few_of_the_source() -> None:
    rooms = ("fedcal/", "clients/", "strategies/", "experiments/")
    for name, fault in FAULTS.items():
        lines = fault.patch.read_text("utf-8").splitlines()
        (file,) = (line.removeprefix("+++ b/") for line in lines if line.startswith("+++ "))
        assert file.startswith(rooms), name
        signed = [line for line in lines if line[:1] in ("+", "-")]
        changed = [line for line in signed if line[:3] not in ("+++", "---")]
        assert 1 <= len(changed) <= 16, name


def test_what_is_no_patch_is_refused(tmp_path: Path) -> None:
    patch = tmp_path / "nothing.patch"
    patch.write_text("--- a/fedcal/search.py\n")
    with pytest.raises(ValueError, match="must begin with"):
        PLANTED.read(patch)


def test_a_patch_that_does_not_fit_is_told() -> None:
    if shutil.which("git") is None:
        pytest.skip("patches are applied by git, which is not installed here")
    fault = next(iter(FAULTS.values()))
    assert "does not apply" in PLANTED.apply(fault, ROOT, "--check", "--reverse")
