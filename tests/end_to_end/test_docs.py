"""What the pages under docs/ say must exist, be so, and build; test_docs_blocks.py runs them."""

import ast
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal import plan, simulate
from fedcal.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)


def test_links_lead_somewhere_and_every_page_is_reachable():
    listed, anchors = {DOCS / "index.md"}, {page: anchors_of(page) for page in PAGES}
    for page in PAGES:
        for target, _, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#([^)]+))?\)", prose(page)):
            there = (page.parent / target).resolve() if target else page
            assert there.exists(), f"{page}: {target}"
            assert not anchor or anchor in anchors.get(there, [anchor]), f"{page}: #{anchor}"
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            entries = [e for e in tree.splitlines() if e and not e.startswith(":")]
            listed |= {page.parent / f"{e}.md" for e in entries}
        for module in re.findall(r"^\.\. automodule:: (\S+)", page.read_text("utf-8"), re.M):
            assert find_spec(module), f"{page}: {module}"
    assert set(PAGES) <= listed


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of headings, as MyST and as docutils make them, and of `(name)=`."""
    headings = [h.lower() for h in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)]
    found = {re.sub(r"[^\w\- ]", "", h).replace(" ", "-") for h in headings}
    found |= set(re.findall(r"^\(([\w-]+)\)=$", prose(page), re.MULTILINE))
    return found | {re.sub(r"[^a-z0-9]+", "-", h).strip("-") for h in headings}


def functions_of(file: Path) -> set[str]:
    tree = ast.parse(file.read_text("utf-8"))
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_every_test_that_the_pitfalls_name_exists():
    text = (DOCS / "pitfalls.md").read_text("utf-8")
    pitfalls = [line for line in text.splitlines() if line.startswith("- ")]
    named = re.findall(r"^  `(tests/\S+\.py)::(test_\w+)`$", text, re.MULTILINE)
    assert len(named) == len(pitfalls) >= 25  # one for each
    for file, name in named:
        assert name in functions_of(ROOT / file), f"{file}::{name}"


def table_rows(page: str, width: int) -> list[list[str]]:
    lines = (DOCS / page).read_text("utf-8").splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line[:2] == "| "]
    return [row for row in cells if len(row) == width]


def test_a_measured_cell_is_what_a_run_gives():
    """Of the table of results/choosing.md, whose text is made from the results that ship."""
    row = next(r for r in table_rows("results/choosing.md", 6) if r[:2] == ["100", "1"])
    runs = [
        simulate("resnet110-cifar10", method="fednewton", epsilon=1.0, seed=s) for s in range(5)
    ]
    ece = [100 * r.after["ece"] for r in runs]
    mean, spread = (float(number) for number in row[2].split(" ± "))
    assert mean == pytest.approx(np.mean(ece), abs=0.011)
    assert spread == pytest.approx(np.std(ece, ddof=1), abs=0.011)


def recommended() -> list[list[str]]:
    return [r for r in table_rows("guide/methods.md", 2) if r[0].startswith("`--clients")]


@pytest.mark.parametrize("row", recommended(), ids=lambda row: row[0])
def test_a_plan_recommends_what_choosing_a_method_says(row):
    facts, method = row
    words = facts.strip("`").split()
    options: dict[str, Any] = {}
    for name, text in zip(words[::2], words[1::2], strict=True):
        read = {"--unit": str, "--clients": int, "--classes": int}.get(name, float)
        options[name[2:].replace("-", "_")] = read(text)
    assert f"`{plan(**options).recommended}`" == method


@pytest.mark.slow
def test_the_pages_build_without_a_warning(tmp_path):
    """Two minutes: autodoc imports and Sphinx draws every module, beside its marked-up source."""
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


def test_the_reference_lists_each_method_once():
    page = (ROOT / "docs" / "reference" / "strategies.md").read_text("utf-8")
    cells = re.findall(r"^\| (`[^|]*`) \|", page, re.M)
    listed = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(listed) == sorted(STRATEGIES)
