"""The planted faults fit the source, and name tests that are there and run by default.

Whether the tests catch them, `python tests/planted_faults` says.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

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


def test_every_fault_can_be_planted() -> None:
    complaints = {name: PLANTED.planted(fault, ROOT)[1] for name, fault in FAULTS.items()}
    assert {name: why for name, why in complaints.items() if why} == {}


def test_their_tests_are_there_and_run_by_default() -> None:
    for name, fault in FAULTS.items():
        assert fault.what.endswith("."), name
        for test in fault.tests:
            path, _, function = test.partition("::")
            assert slowness(path).get(function) is False, f"{name}: {test} is not there, or slow"


def test_a_fault_changes_a_line_or_a_few_of_the_source() -> None:
    packages = ("fedcal/", "clients/", "strategies/", "experiments/")
    for name, fault in FAULTS.items():
        assert fault.file.startswith(packages), name
        assert fault.old != fault.new, name
        assert len(fault.old.splitlines()) <= 30, name


def test_a_row_that_does_not_fit_is_told() -> None:
    fault = replace(next(iter(FAULTS.values())), old="nowhere")
    assert PLANTED.planted(fault, ROOT)[1].startswith("its old lines stand 0 times")
