"""Check that the commands and code in README.md, its neighbours, docs/ and the help do run.

A fenced block is run, in the order of its page, if it is `python` or `console`; shell has no other
name. A comment above it says otherwise, with the reason in the open:

    <!-- not run: why -->      it must still parse, and the options of fedcal's commands exist
    <!-- slow: why -->         the same, but the slow tests run it
    <!-- needs: torch -->      it is run where these packages are installed
    <!-- fails: 2 -->          the command's exit code
"""

import ast
import json
import math
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np
import pytest

import experiments.__main__
from fedcal.cli import main as cli
from fedcal.core import fitting
from fedcal.privacy.ledger import Ledger

pytestmark = pytest.mark.usefixtures("quick_figures")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOTEBOOKS = [*DOCS.glob("notebooks/*.ipynb"), *ROOT.glob("examples/*.ipynb")]
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)

README = ROOT / "README.md"
ALONE = [*sorted(ROOT.glob("*.md")), *ROOT.glob("docker/*.md"), *ROOT.glob("fedcal/*/*.md")]

MARKS = ("not run", "slow", "needs", "fails")
GENERATED = "generated"  # tests/experiments/studies/test_grid.py


@dataclass
class Block:
    """A fenced block, and what the comments above it say."""

    language: str
    line: int
    argument: str = ""
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
        if open_block is None and re.match(r"\s*(~~~|`{4}|\s```)", line):
            raise AssertionError(f"line {number}: a fence is three backticks at the margin")
        if open_block is not None:
            if line.strip() == "```":
                found.append(open_block)
                open_block, marks = None, {}
            else:
                open_block.lines.append(line)
        elif fence := re.fullmatch(r"```(\S*) *(.*)", line):
            open_block = Block(fence[1], number, fence[2], marks=marks)
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
    output: list[str] = []
    for line in block.lines:
        if line.startswith("$ "):
            if words is not None:
                yield words, output
            words, output = shlex.split(line[2:], comments=True), []
        else:
            output.append(line)
        if words is None:
            raise AssertionError(f"line {block.line}: a block of shell begins with `$ `")
    if words is not None:
        yield words, output


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def cases() -> Iterator[Any]:
    """Pages with code, and what is not run of them; with slow blocks, once more as slow tests."""
    for page in (*ALONE, *PAGES):
        found = blocks(page.read_text("utf-8"))
        if {"python", "console"} & {b.language for b in found}:
            yield pytest.param(page, ("not run", "slow"), id=name_of(page))
        if any("slow" in b.marks for b in found):
            slow = pytest.mark.slow
            yield pytest.param(page, ("not run",), id=f"{name_of(page)}, all", marks=slow)


@pytest.mark.parametrize(("page", "skipped"), list(cases()))
def test_blocks_run_in_the_order_of_their_page(page, skipped, tmp_path, monkeypatch, capsys):
    run_page(page, skipped, tmp_path, monkeypatch, capsys)


def run_page(
    page: Path,
    skipped: tuple[str, ...],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(fitting, "usable_cores", lambda: 1)  # in this process
    module = ModuleType("__main__")  # where classes of the page look their annotations up
    monkeypatch.setitem(sys.modules, "__main__", module)
    names = vars(module)
    if page == README:
        names |= the_reader_s_rows(folder)
    for block in blocks(page.read_text("utf-8")):
        if block.language == "{literalinclude}" and not block.marks:
            exec(
                compile((page.parent / block.argument).read_text("utf-8"), block.argument, "exec"),
                names,
            )
        if block.language not in ("python", "console"):
            continue
        missing = [n for n in block.marks.get("needs", "").split(", ") if n and not find_spec(n)]
        if missing or block.marks.keys() & {*skipped}:
            check_without_running(block)
        elif block.language == "console":
            for words, output in commands(block):
                run(words, output, int(block.marks.get("fails", 0)), capsys)
        else:
            exec(compile(block.text, f"{page.name}:{block.line}", "exec"), names)


def the_reader_s_rows(folder: Path) -> dict[str, Any]:
    """Write `my.npz` and `new.npz`; return the arrays that README takes for granted."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 2000)
    logits = 3 * (rng.normal(size=(2000, 3)) + np.eye(3)[labels])
    np.savez(folder / "my.npz", logits=logits, labels=labels)
    np.savez(folder / "new.npz", logits=logits[:50])
    new = {"new_logits": logits[1000:], "new_labels": labels[1000:]}
    return {"logits": logits[:1000], "labels": labels[:1000], **new}


def check_without_running(block: Block) -> None:
    """A block that is not run must still parse, and so must fedcal's commands in it."""
    if block.language == "python":
        ast.parse(block.text)
        return
    for words, _ in commands(block):
        if words[0] == "fedcal":
            parse_fedcal(words[1:])
        elif words[:3] == ["python", "-m", "experiments"]:
            command = cli.made_of(experiments.__main__.command, words[2], "")
            command.make_context(words[2], words[3:])


def parse_fedcal(words: list[str]) -> None:
    """The words are those of a command of `fedcal` that is built, but for the recipe's own."""
    if words[0] == "peek":  # which runs where the recipe is followed
        return
    assert words[0] in cli.COMMANDS, words
    name, command, rest = cli.app.resolve_command(click.Context(cli.app), words)
    command.make_context(name, rest)


def run(words: list[str], output: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    main, rest = cli.main, words[1:]
    if words[:3] == ["python", "-m", "experiments"]:
        main, rest = experiments.__main__.main, words[3:]
    else:
        assert words[0] == "fedcal", f"{words[0]} is not run here: mark the block as not run"
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main(rest)
    out, err = capsys.readouterr()
    assert left.value.code == code, err
    assert_says(out.splitlines(), output)


def assert_says(printed: list[str], output: list[str]) -> None:
    """Each line of the page is printed, in that order; `...` stands for any lines."""
    lines = iter([tokens(line) for line in printed])
    for expected in map(tokens, output):
        if expected and expected != ["..."]:
            assert any(alike(expected, line) for line in lines), " ".join(expected)


def tokens(line: str) -> list[str]:
    """Words without the strokes of tables."""
    return re.sub(r"[\u2500-\u257f|]", " ", line).split()


def alike(expected: list[str], printed: list[str]) -> bool:
    """Equal words, and numbers that may differ as `exp` does between machines."""
    if len(expected) != len(printed):
        return False
    for a, b in zip(expected, printed, strict=True):
        try:
            if not math.isclose(float(a), float(b), rel_tol=1e-2):
                return False
        except ValueError:
            if a != b:
                return False
    return True


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_examples_of_the_help_are_taken(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "160")
    assert cli.exit_code_of([*name.split(), "--help"]) == 0
    output = capsys.readouterr().out.splitlines()
    examples = [line for line in output if line.startswith(" fedcal ")]
    assert examples
    for example in examples:
        parse_fedcal(shlex.split(example)[1:])


# -- what pages, notebooks and the example say ---------------------------------------------------


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)


def test_links_lead_somewhere():
    """Sphinx looks at the anchors, and at pages that nobody leads to."""
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose(page)):
            assert (page.parent / target).exists(), f"{page}: {target}"
        for module in re.findall(r"^\.\. automodule:: (\S+)", page.read_text("utf-8"), re.M):
            assert find_spec(module), f"{page}: {module}"


def numbers(text: str) -> set[str]:
    """Numbers outside generated blocks, tags and the targets of links."""
    outside = re.sub(
        r"<!-- generated.*?<!-- /generated -->|<[^>]*>|\]\([^)]*\)", "", text, flags=re.S
    )
    return set(re.findall(r"\d+(?:\.\d+)?", outside))


def test_the_numbers_of_readme_are_printed_or_stored(tmp_path, monkeypatch, capsys):
    """Its commands print the headline and the verdicts; generated blocks have a test elsewhere."""
    monkeypatch.chdir(tmp_path)
    text = README.read_text("utf-8")
    headline = r"`(fedcal simulate .*?)`.*ECE is ([\d.]+) % \(seed 0\)"
    command, seed_0 = re.search(headline, text, re.S).groups()
    assert cli.exit_code_of(shlex.split(command)[1:]) == 0
    printed = map(tokens, capsys.readouterr().out.splitlines())
    assert seed_0 in next(row for row in printed if row[:1] == ["after"])
    study, verdicts = (b for b in blocks(text) if b.language == "text" or "study init" in b.text)
    exec(blocks((DOCS / "guide/study.md").read_text("utf-8"))[0].text, {})  # makes all.csv
    assert [cli.exit_code_of(words[1:]) for words, _ in commands(study)] == [0, 0]
    assert_says(capsys.readouterr().out.splitlines(), verdicts.lines)
    facts = ("pyproject.toml", "experiments/studies/own.toml", "fedcal/datasets/README.md")
    known = set().union(*(numbers((ROOT / file).read_text("utf-8")) for file in facts))
    assert numbers(prose(README)) <= known | {"1", "2", "6"}  # A.6, Algorithm 2, 1/T


def test_every_test_that_the_pitfalls_name_exists():
    text = (DOCS / "contributing/index.md").read_text("utf-8")
    named = re.findall(r"^  `(tests/\S+\.py)::(test_\w+)`$", text, re.MULTILINE)
    assert len(named) == text.count("\n- ") >= 25  # one for each
    for file, name in named:
        assert f"\ndef {name}(" in (ROOT / file).read_text("utf-8"), f"{file}::{name}"


def printed(notebook: Any) -> str:
    outputs = [o for c in notebook["cells"] if c["cell_type"] == "code" for o in c["outputs"]]
    return "".join("".join(o["text"]) for o in outputs if o["output_type"] == "stream")


@pytest.mark.slow
@pytest.mark.filterwarnings("default::DeprecationWarning", "default::ResourceWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_prints_what_it_is_stored_with(path):
    """About 6 s each. What differs is stored anew by `python docs/run_notebook.py`."""
    for package in ("nbclient", "ipykernel", "nbformat"):
        pytest.importorskip(package)
    execute = runpy.run_path(str(DOCS / "run_notebook.py"))["execute"]
    old, new = printed(json.loads(path.read_text("utf-8"))), printed(execute(path))
    words, numbers = r"[A-Za-z_]{2,}", r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
    assert re.findall(words, old) == re.findall(words, new)
    # `exp` differs between machines, in the last bits
    then, now = ([float(n) for n in re.findall(numbers, text)] for text in (old, new))
    assert then == pytest.approx(now, rel=1e-2)


def test_one_ledger_is_charged_for_training_and_all_that_follows(tmp_path, capsys):
    runpy.run_path(str(ROOT / "examples/train_calibrate_evaluate.py"))["main"](tmp_path)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        entries, cap = ledger.entries(), ledger.cap
    assert [entry.epsilon for entry in entries] == [5.0, 1.0, 1.0, 1.0]  # the fifth is refused
    assert sum(entry.epsilon for entry in entries) == cap
    assert all(entry.charged == tuple(range(1, entry.releases + 1)) for entry in entries)
    output = capsys.readouterr().out
    assert re.search(r"^once more\? .* epsilon 8 of 8 is spent", output, re.M)
    numbers = r"rows: ([\d.]+), calibrated ([\d.]+)$[^$]*released: [\d.]+ \(([\d.]+) to ([\d.]+)\)"
    model, calibrated, low, high = map(float, re.search(numbers, output, re.M).groups())
    assert low <= calibrated <= high < model
