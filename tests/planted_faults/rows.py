"""The table of planted faults: its rows, where they stand in the source, and stale rows mended."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TABLE = HERE / "faults.toml"
PRODUCT = ("fedcal", "clients", "strategies", "experiments")


@dataclass(frozen=True)
class Fault:
    """One row of the table.

    Attributes
    ----------
    file
        path of the source file, from the root
    old, new
        lines that stand in the file once, and what is planted in their place
    what
        the fault, in a sentence
    tests
        that catch it, `tests/path.py::test_name` or `tests/path.py::test_name[case]`
    """

    name: str
    file: str
    old: str
    new: str
    what: str
    tests: tuple[str, ...]


def faults(table: Path = TABLE) -> dict[str, Fault]:
    """All faults, by name; ValueError if two have the same name."""
    rows = tomllib.loads(table.read_text("utf-8"))["fault"]
    known = {row["name"]: Fault(**{**row, "tests": tuple(row["tests"])}) for row in rows}
    if len(known) != len(rows):
        raise ValueError("two faults have the same name")
    return known


def planted(fault: Fault, tree: Path) -> tuple[str, str]:
    """Return the file of a tree with the fault in it, and "" or why that cannot be."""
    path = tree / fault.file
    text = path.read_text("utf-8") if path.is_file() else ""
    if (times := text.count(fault.old)) != 1:
        return text, f"its old lines stand {times} times in {fault.file}"
    broken = text.replace(fault.old, fault.new)
    try:  # a file that cannot be imported would be "caught" by every test
        if path.suffix == ".py":
            compile(broken, fault.file, "exec", ast.PyCF_ONLY_AST)
    except SyntaxError as error:
        return text, f"with it, line {error.lineno} of {fault.file} is no Python"
    return broken, ""


def missing_tests(fault: Fault, tree: Path) -> list[str]:
    """The tests of a row that are not in the tree."""

    def there(test: str) -> bool:
        path, _, function = test.partition("::")
        return function.partition("[")[0] in functions(tree).get(path, ())

    return [test for test in fault.tests if not there(test)]


@cache
def functions(tree: Path) -> dict[str, tuple[str, ...]]:
    """The test functions of each test file."""
    found = sorted((tree / "tests").rglob("test_*.py"))
    texts = {path.relative_to(tree).as_posix(): path.read_text("utf-8") for path in found}
    return {path: tuple(re.findall(r"^def (test_\w+)", text, re.M)) for path, text in texts.items()}


# --- rows that a move broke ---------------------------------------------------------------------


def mended(fault: Fault, tree: Path) -> Fault | None:
    """The row, with its lines and tests where they stand now; None if they are not found."""
    if planted(fault, tree)[1]:
        moved = _elsewhere(fault, tree)
        if moved is None:
            return None
        fault = moved
    tests = tuple(test for old in fault.tests if (test := _test_now(old, tree)))
    return replace(fault, tests=tests) if len(tests) == len(fault.tests) else None


def _elsewhere(fault: Fault, tree: Path) -> Fault | None:
    places = [path for path, text in _sources(tree).items() if fault.old in text]
    found = [replace(fault, file=path) for path in places]
    return found[0] if len(found) == 1 and not planted(found[0], tree)[1] else None


@cache
def _sources(tree: Path) -> dict[str, str]:
    paths = sorted(path for name in PRODUCT for path in (tree / name).rglob("*.py"))
    return {path.relative_to(tree).as_posix(): path.read_text("utf-8") for path in paths}


def _test_now(test: str, tree: Path) -> str | None:
    """A test, under the file that it is in now."""
    path, _, function = test.partition("::")
    if function in functions(tree).get(path, ()):
        return test
    places = [path for path, names in functions(tree).items() if function in names]
    return f"{places[0]}::{function}" if len(places) == 1 else None


def write(rows: Sequence[Fault], table: Path = TABLE) -> None:
    """Write the table anew, below the comment that it begins with."""
    head = table.read_text("utf-8").partition("[[fault]]")[0]
    table.write_text(head + "\n".join("".join(block(row)) for row in rows), "utf-8")


def block(row: Fault) -> Iterator[str]:
    yield "[[fault]]\n"
    for key in ("name", "file", "old", "new", "what"):
        yield f"{key} = {_string(getattr(row, key))}\n"
    yield "tests = [\n" + "".join(f"  {_string(test)},\n" for test in row.tests) + "]\n"


def _string(text: str) -> str:
    """A string of TOML, as literal as it can be."""
    if "\n" in text and "'''" not in text and not text.endswith("'"):
        return f"'''\n{text}'''"
    if '"' in text and "'" not in text and "\n" not in text:
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False)
