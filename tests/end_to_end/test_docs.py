"""What the pages under docs/ say must exist, be so, and build; test_docs_blocks.py runs them."""

from __future__ import annotations

import ast
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from fedcal.experiments import simulate
from fedcal.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
NAMES = [str(p.relative_to(DOCS)) for p in PAGES]


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


def test_the_reference_lists_each_method_once() -> None:
    page = (ROOT / "docs" / "reference" / "strategies.md").read_text("utf-8")
    cells = re.findall(r"^\| (`[^|]*`) \|", page, re.M)
    listed = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert sorted(listed) == sorted(STRATEGIES)
