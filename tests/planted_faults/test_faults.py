"""The planted faults fit the source, and name tests that are there and run by default.

Whether the tests catch them, `python tests/planted_faults` says.
"""

import ast
import importlib.util
import sys
from dataclasses import replace
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
    """The slow tests of a file."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    marks = [n for n in tree.body if isinstance(n, ast.Assign) and "pytestmark" in ast.unparse(n)]
    all_slow = any("slow" in ast.unparse(mark) for mark in marks)
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and (all_slow or any("mark.slow" in ast.unparse(d) for d in node.decorator_list))
    )


def test_every_fault_can_be_planted():
    assert len(FAULTS) >= 250
    complaints = {name: ROWS.planted(fault, ROOT)[1] for name, fault in FAULTS.items()}
    assert {name: why for name, why in complaints.items() if why} == {}


def test_their_tests_are_there_and_run_by_default():
    for name, fault in FAULTS.items():
        assert fault.tests, name
        assert fault.what.endswith("."), name
        assert ROWS.missing_tests(fault, ROOT) == [], name
        for test in fault.tests:
            path, _, function = test.partition("::")
            assert function.partition("[")[0] not in slow(path), f"{name}: {test} is slow"


def test_a_fault_changes_a_line_or_a_few_of_the_source():
    for name, fault in FAULTS.items():
        assert fault.file.startswith(tuple(f"{package}/" for package in ROWS.PRODUCT)), name
        assert fault.old != fault.new, name
        assert len(fault.old.splitlines()) <= 30, name


def test_a_stale_row_follows_its_lines_and_tests(tmp_path):
    """Lines that moved to another file; a test that moved; lines that are nowhere."""
    (tmp_path / "fedcal").mkdir()
    (tmp_path / "tests").mkdir()
    test = "def test_sums() -> None:\n    pass\n"
    (tmp_path / "tests/test_new.py").write_text(test, "utf-8")
    new = "def total(counts):\n    return counts.sum(axis=0)\n"
    (tmp_path / "fedcal/new.py").write_text(new, "utf-8")
    tests = ("tests/test_old.py::test_sums",)
    there = ("tests/test_new.py::test_sums",)
    old = "    return counts.sum(axis=0)\n"
    moved = ROWS.Fault("a", "fedcal/old.py", old, old.replace("0", "1"), "The axis.", tests)
    assert ROWS.planted(moved, tmp_path)[1].startswith("its old lines stand 0 times")
    assert ROWS.mended(moved, tmp_path) == replace(moved, file="fedcal/new.py", tests=there)
    assert ROWS.mended(replace(moved, old="    launch(rockets)\n", new=""), tmp_path) is None


def test_a_written_table_is_read_again(tmp_path):
    table = tmp_path / "faults.toml"
    table.write_text("# head\n\n[[fault]]\n", "utf-8")
    ROWS.write(list(FAULTS.values()), table)
    assert ROWS.faults(table) == FAULTS
    assert table.read_text("utf-8").startswith("# head\n\n[[fault]]\n")
