"""Compare the files of two folders: values of JSON and arrays, text of the rest."""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

PICTURES = (".png", ".svg", ".pdf", ".pt", ".pt2", ".onnx")
"""Of these only that they are there; what an exported model gives is in a file of its own."""
MEASURED = ("seconds", "versions", "commit")
"""Keys of JSON whose values are not compared."""


@dataclass
class Meant:
    """A difference that is wanted: lines that match, in files of cells that match."""

    reason: str
    cell: str = "*"
    file: str = "*"
    line: str = ".*"
    used: int = field(default=0)

    def covers(self, cell: str, file: str, line: str) -> bool:
        """Whether it says so of this line."""
        found = fnmatch(cell, self.cell) and fnmatch(file, self.file)
        return found and re.search(self.line, line) is not None


def read_meant(path: Path) -> list[Meant]:
    """The entries of a file."""
    return [Meant(**entry) for entry in tomllib.loads(path.read_text("utf-8")).get("meant", [])]


def of_cells(base: Path, head: Path) -> dict[str, dict[str, list[str]]]:
    """Cell -> file -> lines that say what differs; empty for a cell that is equal."""
    found: dict[str, dict[str, list[str]]] = {}
    cells = {f"{p.parent.name}/{p.name}" for side in (base, head) for p in side.glob("*/*/")}
    for cell in sorted(cells):
        found[cell] = of_folders(base / cell, head / cell)
    return found


def of_folders(base: Path, head: Path) -> dict[str, list[str]]:
    """File -> lines."""
    if not (base.is_dir() and head.is_dir()):
        return {".": ["- the cell is gone" if base.is_dir() else "+ the cell is new"]}
    files = [{str(p.relative_to(f)) for p in f.rglob("*") if p.is_file()} for f in (base, head)]
    found = {name: ["- the file is gone"] for name in files[0] - files[1]}
    found |= {name: ["+ the file is new"] for name in files[1] - files[0]}
    for name in files[0] & files[1]:
        if lines := list(of_files(base / name, head / name)):
            found[name] = lines
    return dict(sorted(found.items()))


def of_files(base: Path, head: Path) -> Iterator[str]:
    """Lines, by the type of file."""
    kind = base.suffix
    if kind in PICTURES:
        return
    if kind in (".npz", ".npy"):
        yield from of_arrays(base, head)
    elif kind in (".json", ".jsonl", ".toml"):
        try:
            then, now = (_values(p) for p in (base, head))
        except ValueError:
            then, now = base.read_text(), head.read_text()
        yield from of_texts(then, now)
    elif kind == ".html":
        yield from of_texts(*(visible(p.read_text("utf-8")) for p in (base, head)))
    else:
        yield from of_texts(*(p.read_text("utf-8", "replace") for p in (base, head)))


def _values(path: Path) -> str:
    """A line for each value that is not measured, exactly; the order of keys is nothing."""
    text = path.read_text("utf-8")
    if path.suffix == ".toml":
        found: Any = tomllib.loads(text)
    elif path.suffix == ".jsonl":
        found = [json.loads(line) for line in text.splitlines()]
    else:
        found = json.loads(text)
    return json.dumps(_compared(found), indent=1, sort_keys=True, default=str)


def _compared(value: Any) -> Any:
    if isinstance(value, list):
        return [_compared(one) for one in value]
    if isinstance(value, dict):
        return {k: _compared(one) for k, one in value.items() if k not in MEASURED}
    return value


def of_texts(base: str, head: str) -> Iterator[str]:
    """A unified diff."""
    if base != head:
        lines = difflib.unified_diff(base.splitlines(), head.splitlines(), n=1, lineterm="")
        found = [line for line in lines if not line.startswith(("---", "+++"))]
        yield from found or ["- the end of the last line"]


def of_arrays(base: Path, head: Path) -> Iterator[str]:
    """A line for each array whose type, shape or bits differ."""
    try:
        then, now = (_arrays(p) for p in (base, head))
    except ValueError:
        if base.read_bytes() != head.read_bytes():
            yield "! bytes differ"
        return
    for name in sorted(then.keys() | now.keys()):
        a, b = then.get(name), now.get(name)
        if a is None or b is None:
            yield f"{'+' if a is None else '-'} {name}"
        elif (a.dtype, a.shape) != (b.dtype, b.shape):
            yield f"! {name}: {a.dtype} {a.shape} -> {b.dtype} {b.shape}"
        elif a.tobytes() != b.tobytes():
            where = np.flatnonzero(a.ravel() != b.ravel())
            first = int(where[0]) if len(where) else 0
            said = f"{len(where)} of {a.size} entries, the first {a.ravel()[first]!r}"
            yield f"! {name}: {said} -> {b.ravel()[first]!r}"


def _arrays(path: Path) -> dict[str, np.ndarray]:
    found = np.load(path, allow_pickle=False)
    return {"": found} if isinstance(found, np.ndarray) else dict(found)


def visible(html: str) -> str:
    """Lines of visible text."""
    hidden = re.sub(r"(?s)<(style|script|svg|title)\b.*?</\1>", "", html)
    lines = re.sub(r"<[^>]*>", "\n", hidden).splitlines()
    return "\n".join(words for line in lines if (words := " ".join(line.split())))
