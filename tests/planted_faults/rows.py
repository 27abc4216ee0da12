"""The table of planted faults: its rows, where they stand in the source, and stale rows mended."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TABLE = HERE / "faults.toml"
PRODUCT = ("fedcal", "clients", "strategies", "experiments")
ALIKE = 0.75
"""Least likeness of lines that may be the ones a row meant."""
RIVAL = 0.02
"""Lines of two files that are alike to this much: a person has to choose."""


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
        that catch it, `tests/path.py::test_name`
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
        compile(broken, fault.file, "exec", ast.PyCF_ONLY_AST)
    except SyntaxError as error:
        return text, f"with it, line {error.lineno} of {fault.file} is no Python"
    return broken, ""


def missing_tests(fault: Fault, tree: Path) -> list[str]:
    """The tests of a row that are not in the tree."""

    def there(test: str) -> bool:
        path, _, function = test.partition("::")
        return function in functions(tree).get(path, ())

    return [test for test in fault.tests if not there(test)]


@cache
def functions(tree: Path) -> dict[str, tuple[str, ...]]:
    """The test functions of each test file."""
    found = sorted((tree / "tests").rglob("test_*.py"))
    texts = {path.relative_to(tree).as_posix(): path.read_text("utf-8") for path in found}
    return {path: tuple(re.findall(r"^def (test_\w+)", text, re.M)) for path, text in texts.items()}


# --- rows that a move broke ---------------------------------------------------------------------


def mended(fault: Fault, tree: Path) -> Fault | None:
    """The row, with its lines and tests as they stand now; None if they are not found.

    Old lines are sought as they are in other files, then as the most alike lines of any file; the
    fault is the same change of words in what was found.
    """
    if planted(fault, tree)[1]:
        moved = _elsewhere(fault, tree) or _alike(fault, tree)
        if moved is None:
            return None
        fault = moved
    tests = tuple(test for old in fault.tests if (test := _test_now(old, tree)))
    return replace(fault, tests=tests) if len(tests) == len(fault.tests) else None


def _elsewhere(fault: Fault, tree: Path) -> Fault | None:
    places = [path for path, text in _sources(tree).items() if fault.old in text]
    found = [replace(fault, file=path) for path in places]
    return found[0] if len(found) == 1 and not planted(found[0], tree)[1] else None


def _alike(fault: Fault, tree: Path) -> Fault | None:
    """The row for the lines most like its old ones, if the change of words is still possible."""
    size = len(fault.old.strip("\n").split("\n"))
    words = set(re.findall(r"\w+", fault.old))
    best: list[tuple[float, str, str]] = []
    for path, text in _sources(tree).items():
        lines = text.split("\n")
        # an edit may have broken or joined a line
        for count in {max(1, size - 1), size, size + 1}:
            for start in range(len(lines) - count + 1):
                window = "\n".join(lines[start : start + count])
                if 2 * len(words & set(re.findall(r"\w+", window))) < len(words):
                    continue
                match = SequenceMatcher(None, _tight(fault.old), _tight(window), autojunk=False)
                if match.real_quick_ratio() >= ALIKE and match.quick_ratio() >= ALIKE:
                    best.append((match.ratio(), path, window))
    best = sorted((found for found in best if found[0] >= ALIKE), reverse=True)
    for likeness, path, window in best:
        new = changed_alike(fault.old.strip("\n"), fault.new.strip("\n"), window)
        row = replace(fault, file=path, old=window, new=new or "")
        if new is not None and not planted(row, tree)[1]:
            rivals = (other for other in best if other[1] != path)
            return None if any(other[0] > likeness - RIVAL for other in rivals) else row
    return None


def changed_alike(old: str, new: str, found: str) -> str | None:
    """Make the change from `old` to `new` in `found`; None where `found` itself differs there."""
    base, wanted, there = _words(old), _words(new), _words(found)
    place: dict[int, int] = {}  # of words that `old` and `found` share
    for block in SequenceMatcher(None, base, there, autojunk=False).get_matching_blocks():
        place |= {block.a + k: block.b + k for k in range(block.size)}
    made = list(there)
    edits = SequenceMatcher(None, base, wanted, autojunk=False).get_opcodes()
    for kind, first, last, start, end in reversed(edits):
        if kind == "equal":
            continue
        at = [place.get(k) for k in range(first, last)]
        before, after = place.get(first - 1), place.get(last)
        if kind == "delete" and before is not None and after is not None:
            del made[before + 1 : after]
        elif kind == "insert":
            if after is None and before is None:
                return None
            at_word = after if after is not None else (before or 0) + 1
            made[at_word:at_word] = wanted[start:end]
        elif None in at:
            return None
        else:
            known = [k for k in at if k is not None]
            if known[-1] - known[0] != last - first - 1:  # something came in between
                return None
            made[known[0] : known[-1] + 1] = wanted[start:end]
    return "".join(made)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\n *|.", text)


def _tight(text: str) -> str:
    return " ".join(text.split())


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
    table.write_text(head + "\n".join("".join(_block(row)) for row in rows), "utf-8")


def _block(row: Fault) -> Iterator[str]:
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
