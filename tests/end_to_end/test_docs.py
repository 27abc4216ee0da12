"""Pages under docs/, notebooks and the example say what is so; test_docs_blocks.py runs pages."""

import json
import re
import runpy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fedcal.privacy.ledger import Ledger

pytestmark = pytest.mark.usefixtures("quick_figures")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
NOTEBOOKS = [*DOCS.glob("notebooks/*.ipynb"), *ROOT.glob("examples/*.ipynb")]


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)


def test_links_lead_somewhere():
    """Sphinx looks at the anchors, and at pages that nobody leads to."""
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose(page)):
            assert (page.parent / target).exists(), f"{page}: {target}"
        for module in re.findall(r"^\.\. automodule:: (\S+)", page.read_text("utf-8"), re.M):
            assert find_spec(module), f"{page}: {module}"


def test_every_test_that_the_pitfalls_name_exists():
    text = (DOCS / "pitfalls.md").read_text("utf-8")
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
