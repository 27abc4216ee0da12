"""Docstrings as this project writes them, turned into what Sphinx reads.

They are numpy's sections, but with the description after the colon (types stand in the
signature), and with single backticks around code:

    Parameters
    ----------
    clients : enrolled clients K
    delta : failure probability; must be > 0 for
        Gaussian noise
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.inspect import TypeAliasForwardRef

NAMED = ("Parameters", "Attributes")
"""Sections whose entries are `name : description`."""

_NAME = r"\*{0,2}[\w.]+"
_ENTRY = re.compile(rf"(?P<names>{_NAME}(?:, {_NAME})*)(?: : (?P<text>.*))?")
_CASE = re.compile(r"(?P<names>`[^`]+`) : (?P<text>.*)")
_CODE = re.compile(r"(``.*?``|`[^`]*`)")


def sections(lines: list[str]) -> list[str]:
    """The docstring with each `Title` over a line of dashes as a field of a field list."""
    out: list[str] = []
    title, code = "", False
    lines = _with_code_blocks(_with_whole_names(lines))
    underlined = {i for i, (a, b) in enumerate(pairwise(lines)) if _is_heading(a, b)}
    for i, line in enumerate(lines):
        code = line.startswith("    ") or not line if code else line.endswith("::")
        if i in underlined:
            title = line.strip()
            out += ["", f":{title}:"]
        elif i - 1 not in underlined:
            margin = "    " if title else ""
            texts = [line] if code else _entry(line, title)
            out += [f"{margin}{text}" if text else "" for text in texts]
    return [*out, ""]


def _with_whole_names(lines: list[str]) -> list[str]:
    """Names of one entry that go over several lines, in one line."""
    out: list[str] = []
    for line in lines:
        if out and re.fullmatch(r"(\w+, )*\w+,", out[-1]):
            out[-1] = f"{out[-1]} {line}"
        else:
            out.append(line)
    return out


def _with_code_blocks(lines: list[str]) -> list[str]:
    """`like this:` over an indented block that is no list makes it code."""
    out = list(lines)
    for i in range(len(lines) - 2):
        line, gap, block = lines[i : i + 3]
        deeper = block.startswith(" " * (len(line) - len(line.lstrip()) + 4))
        if line.endswith(":") and not gap and deeper and block.lstrip()[0] not in "*-":
            out[i] += "" if line.endswith("::") else ":"
    return out


def _is_heading(line: str, below: str) -> bool:
    return bool(re.fullmatch(r"[A-Z][\w ]+", line)) and set(below) == {"-"} and len(below) > 2


def _entry(line: str, title: str) -> list[str]:
    found = _ENTRY.fullmatch(line) if title in NAMED else _CASE.fullmatch(line)
    if found is None:
        return [literal_bars(line)]
    names = ", ".join(f"``{name.strip('`')}``" for name in found["names"].split(", "))
    return [names, *([f"    {literal_bars(found['text'])}"] if found["text"] else [])]


def literal_bars(line: str) -> str:
    """`|x|` and `**options` outside of code are what they look like, not markup."""
    parts = _CODE.split(line)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(
            r"\||(?<![\w*])\*\*(?=\w)", lambda m: "".join(f"\\{c}" for c in m[0]), parts[i]
        )
    return "".join(parts)


def _process(_: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = sections(lines)


def _without_private(
    _: Sphinx,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """A dataclass's signature without the fields that nobody is to give."""
    return signature and re.sub(r", _\w+: .*? = <factory>", "", signature), returns


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    # `Floats | None` would be shown as TypeAliasForwardRef('Floats') | None.
    TypeAliasForwardRef.__repr__ = lambda self: self.name  # type: ignore[method-assign]
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _without_private)
    return {"parallel_read_safe": True}
