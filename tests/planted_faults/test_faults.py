"""The planted faults fit the source, and name tests that are there and run by default.

Whether the tests catch them, `python tests/planted_faults` says.
"""

import ast
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rows", Path(__file__).with_name("rows.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


ROWS = table()
FAULTS = ROWS.faults()


@cache
def slow(path: str) -> frozenset[str]:
    """Return the slow tests of a file."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    marks = [n for n in tree.body if isinstance(n, ast.Assign) and "pytestmark" in ast.unparse(n)]
    all_slow = any("slow" in ast.unparse(mark) for mark in marks)
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and (all_slow or any("mark.slow" in ast.unparse(d) for d in node.decorator_list))
    )


def test_every_fault_has_its_lines_in_the_source_once():
    assert len(FAULTS) >= 250
    files = {path: (ROOT / path).read_text("utf-8") for path in {f.file for f in FAULTS.values()}}
    assert [name for name, f in FAULTS.items() if files[f.file].count(f.old) != 1] == []
    assert [name for name, f in FAULTS.items() if f.old == f.new] == []


def test_their_tests_are_there_and_run_by_default():
    for name, fault in FAULTS.items():
        assert fault.tests, name
        assert fault.file.startswith(tuple(f"{package}/" for package in ROWS.PRODUCT)), name
        assert ROWS.missing_tests(fault, ROOT) == [], name
        for test in fault.tests:
            path, _, function = test.partition("::")
            assert function.partition("[")[0] not in slow(path), f"{name}: {test} is slow"
