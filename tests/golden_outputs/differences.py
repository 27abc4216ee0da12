"""Compare the files of two folders: values of JSON and arrays, text of the rest."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from html.parser import HTMLParser
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
            yield from of_texts(base.read_text(), head.read_text())
        else:
            yield from of_values(then, now, "")
    elif kind == ".html":
        yield from of_texts(*(visible(p.read_text("utf-8")) for p in (base, head)))
    else:
        yield from of_texts(*(p.read_text("utf-8", "replace") for p in (base, head)))


def _values(path: Path) -> Any:
    text = path.read_text("utf-8")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


def of_texts(base: str, head: str) -> Iterator[str]:
    """A unified diff."""
    if base != head:
        lines = difflib.unified_diff(base.splitlines(), head.splitlines(), n=1, lineterm="")
        found = [line for line in lines if not line.startswith(("---", "+++"))]
        yield from found or ["- the end of the last line"]


def of_values(base: Any, head: Any, path: str) -> Iterator[str]:
    """A line for each path at which values differ, exactly; the order of keys is nothing."""
    if isinstance(base, Mapping) and isinstance(head, Mapping):
        for key in [*base, *(k for k in head if k not in base)]:
            here = f"{path}.{key}" if path else str(key)
            if key not in head:
                yield f"- {here}: {_short(base[key])}"
            elif key not in base:
                yield f"+ {here}: {_short(head[key])}"
            elif key not in MEASURED:
                yield from of_values(base[key], head[key], here)
    elif isinstance(base, list) and isinstance(head, list):
        for k, (then, now) in enumerate(zip(base, head, strict=False)):
            yield from of_values(then, now, f"{path}[{k}]")
        if len(base) != len(head):
            yield f"! {path}: {len(base)} entries -> {len(head)}"
    elif type(base) is not type(head) or json.dumps(base) != json.dumps(head):
        yield f"! {path}: {_short(base)} -> {_short(head)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


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


class _Text(HTMLParser):
    """Text that a reader sees."""

    hidden = ("style", "script", "svg", "title")
    blocks = (
        *("p", "div", "tr", "li", "h1", "h2", "h3", "h4", "table", "section", "figure", "pre"),
        *("figcaption", "summary", "details", "dt", "dd", "header", "footer", "br", "main"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: Sequence[Any]) -> None:
        self.depth += tag in self.hidden
        self.words.append("\n" if tag in self.blocks else " " if tag in ("td", "th") else "")

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag in self.hidden

    def handle_data(self, data: str) -> None:
        if not self.depth:
            self.words.append(re.sub(r"\s+", " ", data))


def visible(html: str) -> str:
    """Lines of visible text."""
    reader = _Text()
    reader.feed(html)
    lines = "".join(reader.words).splitlines()
    return "\n".join(words for line in lines if (words := " ".join(line.split())))
