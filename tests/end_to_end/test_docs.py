"""What the pages under docs/ say must run, exist and build.

A fenced block is run, in the order of its page, if it is `python` or `console`. A comment above
it says otherwise, with the reason in the open:

    <!-- not run: why -->      it must still parse, and the commands' options must exist
    <!-- needs: torch -->      it is run where these packages are installed
    <!-- fails: 2 -->          the command's exit code
"""

from __future__ import annotations

import ast
import math
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import typer.main

from clients import answers
from experiments import cli, simulate

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
NAMES = [str(p.relative_to(DOCS)) for p in PAGES]

MARKS = ("not run", "needs", "fails")
GENERATED = "generated"  # tests/experiments/reproduce/test_documents.py


@dataclass
class Block:
    """A fenced block, and what the comments above it say."""

    language: str
    line: int
    lines: list[str] = field(default_factory=list)
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    found: list[Block] = []
    marks: dict[str, str] = {}
    open_block: Block | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if open_block is not None:
            if line.strip() == "```":
                found.append(open_block)
                open_block, marks = None, {}
            else:
                open_block.lines.append(line)
        elif fence := re.fullmatch(r"```(\S*).*", line):
            open_block = Block(fence[1], number, marks=marks)
        elif mark := re.fullmatch(r"<!-- (.*?): (.*) -->", line):
            assert mark[1] in (*MARKS, GENERATED), line
            marks[mark[1]] = mark[2]
        elif line.strip():
            marks = {}
    assert open_block is None, "a block that never ends"
    return found


def commands(block: Block) -> Iterator[tuple[list[str], list[str]]]:
    """(words of a command, lines that it is said to print)."""
    words: list[str] | None = None
    said: list[str] = []
    for line in block.lines:
        if line.startswith("$ "):
            if words is not None:
                yield words, said
            words, said = shlex.split(line[2:], comments=True), []
        else:
            said.append(line)
    if words is not None:
        yield words, said


# --- the blocks run -----------------------------------------------------------------------------


def with_code() -> list[Path]:
    return [p for p in PAGES if {"python", "console"} & {b.language for b in blocks(p.read_text())}]


@pytest.mark.parametrize("page", with_code(), ids=lambda p: str(p.relative_to(DOCS)))
def test_blocks_run_in_the_order_of_their_page(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(answers, "STATISTICS", dict(answers.STATISTICS))  # a page may add its own
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page.read_text("utf-8")):
        if block.language not in ("python", "console"):
            continue
        missing = [n for n in block.marks.get("needs", "").split(", ") if n and not find_spec(n)]
        if missing or "not run" in block.marks:
            check_without_running(block)
        elif block.language == "python":
            exec(compile(block.text, f"{page.name}:{block.line}", "exec"), names)
        else:
            for words, said in commands(block):
                run(words, said, int(block.marks.get("fails", 0)), capsys)


def check_without_running(block: Block) -> None:
    if block.language == "python":
        ast.parse(block.text)
        return
    for words, _ in commands(block):
        if words[0] == "fedcal":
            command(words[1]).make_context(words[1], words[2:])


def command(name: str) -> Any:
    """A command of `fedcal` that is built."""
    group: Any = typer.main.get_command(cli.app)
    assert name in group.commands, name
    assert name not in getattr(cli, "LATER", {}), name
    return group.commands[name]


def run(words: list[str], said: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert set(words[1:]) <= set(targets)
        return
    assert words[0] == "fedcal", f"{words[0]} is not run here: mark the block as not run"
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        cli.main(words[1:])
    out, err = capsys.readouterr()
    assert left.value.code == code, err
    assert_says(out.splitlines(), said)


def assert_says(printed: list[str], said: list[str]) -> None:
    """Each line of the page is printed, in that order; `...` stands for any lines."""
    lines = iter([tokens(line) for line in printed])
    for expected in map(tokens, said):
        if expected and expected != ["..."]:
            assert any(alike(expected, line) for line in lines), " ".join(expected)


def tokens(line: str) -> list[str]:
    """Words without the strokes of tables."""
    return re.sub(r"[\u2500-\u257f|]", " ", line).split()


def alike(said: list[str], printed: list[str]) -> bool:
    """Equal words, and numbers that may differ as `exp` does between machines."""
    if len(said) != len(printed):
        return False
    for a, b in zip(said, printed, strict=True):
        try:
            if not math.isclose(float(a), float(b), rel_tol=1e-2):
                return False
        except ValueError:
            if a != b:
                return False
    return True


def test_a_wrong_output_is_seen() -> None:
    printed = ["┃ before │ 4.750 │", "└────┘", "written to x"]
    assert_says(printed, ["before 4.75", "...", "written to x"])
    for said in (["before 4.9"], ["after 4.75"], ["written to x", "before 4.75"], ["before"]):
        with pytest.raises(AssertionError):
            assert_says(printed, said)


def test_an_unknown_option_of_a_block_that_is_not_run_is_seen() -> None:
    for line in ("$ fedcal simulate --metod fedtemp", "$ fedcal simulat"):
        (block,) = blocks(f"<!-- not run: why -->\n```console\n{line}\n```\n")
        assert block.marks == {"not run": "why"}
        with pytest.raises((AssertionError, click.ClickException)):
            check_without_running(block)


# --- links and names ----------------------------------------------------------------------------


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose(page)):
        assert (page.parent / target).exists(), target


def test_every_page_is_reachable() -> None:
    listed = {DOCS / "index.md"}
    for page in PAGES:
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            entries = [e for e in tree.splitlines() if e and not e.startswith(":")]
            listed |= {page.parent / f"{e}.md" for e in entries}
    assert set(PAGES) <= listed


def functions_of(file: Path) -> set[str]:
    tree = ast.parse(file.read_text("utf-8"))
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_every_test_that_the_pitfalls_name_exists() -> None:
    text = (DOCS / "pitfalls.md").read_text("utf-8")
    pitfalls = [line for line in text.splitlines() if line.startswith("- ")]
    named = re.findall(r"^  `(tests/\S+\.py)::(test_\w+)`$", text, re.MULTILINE)
    assert len(named) == len(pitfalls) >= 25  # one for each
    for file, name in named:
        assert name in functions_of(ROOT / file), f"{file}::{name}"


def test_the_extras_that_are_named_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    named = [name for name, _ in table_rows("guide/install.md", 2) if name.startswith("`")]
    assert named
    assert {name.strip("`") for name in named} <= set(extras)


# --- numbers ------------------------------------------------------------------------------------


def table_rows(page: str, width: int) -> list[list[str]]:
    lines = (DOCS / page).read_text("utf-8").splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line[:2] == "| "]
    return [row for row in cells if len(row) == width]


def test_the_odds_of_an_epsilon() -> None:
    rows = [r for r in table_rows("guide/privacy.md", 3) if re.fullmatch(r"[\d.]+", r[0])]
    assert len(rows) == 4
    for epsilon, odds, sure in rows:
        factor = math.exp(float(epsilon))
        assert float(odds.replace(",", "")) == pytest.approx(factor, rel=2e-2)
        assert float(sure.removesuffix(" %")) == pytest.approx(
            100 * factor / (1 + factor), abs=0.06
        )


def test_a_measured_cell_is_what_a_run_gives() -> None:
    """Of the table in 'choosing a method', whose text is made from the results that ship."""
    row = next(r for r in table_rows("guide/choosing-a-method.md", 6) if r[:2] == ["100", "1"])
    runs = [
        simulate("resnet110-cifar10", method="fednewton", epsilon=1.0, seed=s) for s in range(5)
    ]
    ece = [100 * r.after["ece"] for r in runs]
    mean, spread = (float(number) for number in row[2].split(" ± "))
    assert mean == pytest.approx(np.mean(ece), abs=0.011)
    assert spread == pytest.approx(np.std(ece, ddof=1), abs=0.011)


# --- docstrings ---------------------------------------------------------------------------------

DOCSTRING = """One line with |x| and `|y|`.

Like this:

    code | code

`.a` : a case

Parameters
----------
x, y : what they are,
    at length
many, names,
and_more : all of them
**rest : others

Returns
-------
(n, c) array
"""

READ = r"""One line with \|x\| and `|y|`.

Like this::

    code | code

``.a``
    a case


:Parameters:
    ``x``, ``y``
        what they are,
        at length
    ``many``, ``names``, ``and_more``
        all of them
    ``**rest``
        others


:Returns:
    (n, c) array
"""


def test_docstrings_become_fields() -> None:
    pytest.importorskip("sphinx")
    spec = spec_from_file_location("docstrings", DOCS / "extensions" / "docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.sections(DOCSTRING.splitlines()) == [*READ.splitlines(), ""]


# --- the build ----------------------------------------------------------------------------------


def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    """About 8 s: the price of knowing that every reference and every docstring is right."""
    for package in ("sphinx", "furo", "myst_nb"):
        pytest.importorskip(package)
    words = ["-m", "sphinx", "-W", "--keep-going", "-q", "-d", "doctrees", str(DOCS), "html"]
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    built = sorted((tmp_path / "html").rglob("*.html"))
    assert len(built) > len(PAGES)
    fetched = re.compile(r'<(?:script|img|iframe)[^>]* src="https?:|<link[^>]*href="https?:')
    assert [p.name for p in built if fetched.search(p.read_text("utf-8"))] == []
