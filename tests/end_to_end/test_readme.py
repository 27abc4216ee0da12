"""What README and the pages it leads to say must run, and their numbers must be ours."""

import re
from pathlib import Path

import pytest

from experiments import demo
from fedcal import compare, datasets
from fedcal.results.comparison import as_table
from fedcal.results.terminal import plain

pytestmark = pytest.mark.usefixtures("quick_figures")

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def table() -> dict[tuple[str, str], dict[str, str]]:
    page = (ROOT / "docs" / "results" / "demo.md").read_text("utf-8").splitlines()
    lines = [line for line in page if line.startswith("| ")]
    head, *cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = [dict(zip(head, row, strict=True)) for row in cells]
    return {(row["method"], row["epsilon"]): row for row in rows}


def test_the_ten_lines_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = datasets.load("resnet110-cifar10")
    names = {
        "logits": data.logits,
        "labels": data.labels,
        "new_logits": data.test_logits,
        "new_labels": data.test_labels,
    }
    exec(compile(python_blocks()[0], "README.md", "exec"), names)
    assert (tmp_path / "calibrator.npz").exists()
    result = names["result"]
    assert result.after["ece"] < result.before["ece"] / 2


@pytest.mark.parametrize(
    ("method", "epsilon"), [("none", "inf"), ("fednewton", 1.0), ("fedbbq[weighting=all]", 1.0)]
)
def test_the_table_is_what_the_demo_prints(method, epsilon):
    assert method in (*demo.BASELINES, *demo.METHODS)
    found = compare(demo.DATA, method=method, epsilon=epsilon, seeds=demo.SEEDS, jobs=1)
    cells = as_table(found.cells)
    computed = dict(zip(cells.columns, map(plain, cells.rows[0]), strict=True))
    printed = table()[computed["method"], computed["epsilon"]]
    for name in ("accuracy %", "ECE %"):
        expected = pytest.approx(numbers(computed[name]), rel=2e-3, abs=2e-3)
        assert numbers(printed[name]) == expected


def numbers(cell: str) -> list[float]:
    return [float(n.replace(",", "")) for n in re.findall(r"\d[\d,.]*(?:e-\d+)?", cell)]
