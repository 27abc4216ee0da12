"""`make demo`: one comparison with every column of the issue, one run, and the figures."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal.experiments import demo, simulate
from fedcal.experiments.comparison.table import Cells

METHODS = ("fedtemp", "fednewton", "fedoneshot", "fedbbq[weighting=none]", "fedbbq[weighting=all]")
LABELS = ("FedTemp", "FedNewton", "FedOneShot", "FedBBQ (weighting=none)", "FedBBQ (weighting=all)")
IDEALS = ("uncalibrated", "pooled temperature", "pooled BBQ")
PNGS = {
    "reliability-before-after.png",
    "reliability-without-privacy.png",
    "reliability-epsilon-1.png",
    "reliability.png",
    "reliability-dark.png",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's folder, from two seeds and the methods that its figures show."""
    out = tmp_path_factory.mktemp("demo") / "deep" / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SEEDS", 2)
        patch.setattr(demo, "METHODS", METHODS)
        demo.main(["--out", str(out)])
    return out


@pytest.fixture(scope="module")
def rows(made: Path) -> list[dict[str, str]]:
    """The lines of `table.md`."""
    lines = (made / "table.md").read_text("utf-8").split("\n\n")[1].splitlines()
    header, rule, *body = ([c.strip() for c in line.strip("|").split("|")] for line in lines)
    assert {text.strip("-:") for text in rule} == {""}
    return [dict(zip(header, cells, strict=True)) for cells in body]


def test_everything_is_written(made: Path) -> None:
    names = {p.name for p in made.iterdir()}
    assert names >= {
        *PNGS,
        *("table.md", "table.csv", "compare.json", "rows.jsonl", "config.toml", "report.html"),
        demo.ONE_RUN,
    }
    for name in PNGS:
        assert (made / name).read_bytes().startswith(b"\x89PNG")
        assert (made / name).stat().st_size > 20_000


def test_the_report_is_of_the_comparison_and_the_run_has_its_own(made: Path) -> None:
    assert "FedOneShot" in (made / "report.html").read_text("utf-8")
    run = made / demo.ONE_RUN
    result = json.loads((run / "result.json").read_text("utf-8"))
    assert (result["method"], result["config"]["epsilon"]) == ("fednewton", 1.0)
    assert "<html" in (run / "report.html").read_text("utf-8")


def test_it_can_be_made_again(
    made: Path, quick_figures: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "SEEDS", 1)
    monkeypatch.setattr(demo, "METHODS", ("fednewton",))
    before = {p.name for p in made.iterdir()}
    table = demo.calibrate()
    for _ in range(2):
        table.save(made.parent / "again")
    assert {p.name for p in (made.parent / "again").iterdir()} == before - PNGS - {demo.ONE_RUN}


def test_the_headings_are_the_issue_s(rows: list[dict[str, str]]) -> None:
    wanted = (
        *("accuracy", "ECE", "cwECE", "NLL", "epsilon", "delta", "noise std", "bytes", "seconds"),
    )
    for word in wanted:
        assert [h for h in rows[0] if word in h.replace("/", " ")] != []
    assert next(iter(rows[0])) == "method"


def test_the_rows_are_ideals_then_methods_at_each_budget(rows: list[dict[str, str]]) -> None:
    assert [(row["method"], row["epsilon"]) for row in rows] == [
        *((name, "") for name in IDEALS),
        *((name, "inf") for name in LABELS),
        *((name, "1") for name in LABELS),
    ]


def test_the_table_s_numbers_are_the_run_s(rows: list[dict[str, str]]) -> None:
    by_name = {(row["method"], row["epsilon"]): row for row in rows}
    uncalibrated, pooled = by_name["uncalibrated", ""], by_name["pooled temperature", ""]
    assert (uncalibrated["accuracy %"], uncalibrated["ECE %"]) == ("93.560", "4.750")
    assert float(pooled["ECE %"]) == pytest.approx(1.13, abs=0.01)
    assert float(pooled["cwECE %"]) == pytest.approx(0.434, abs=0.005)  # logits are float16

    results = [simulate(demo.DATA, method="fednewton", epsilon=1.0, seed=s) for s in range(2)]
    row = by_name["FedNewton", "1"]
    values = [100 * r.after["ece"] for r in results]
    assert row["ECE %"] == f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
    assert row["accuracy %"] == "93.560"  # temperatures change no prediction: no spread
    assert float(row["delta"]) == 1e-5
    g, h = results[0].privacy["noise_std"]
    assert row["noise std"] == f"{g:.3g} / {h:.3g}"
    assert row["bytes up / down"] == "{bytes_up_per_client} / {bytes_down_per_client}".format(
        **results[0].communication
    )
    assert by_name["FedOneShot", "1"]["noise std"] == "(draw)"
    assert by_name["FedNewton", "inf"]["noise std"] == by_name["FedNewton", "inf"]["delta"] == ""
    for row in by_name.values():
        assert float(row["seconds"]) >= 0


def test_all_formats_have_the_same_lines(made: Path, rows: list[dict[str, str]]) -> None:
    cells: list[dict[str, Any]] = json.loads((made / "compare.json").read_text())["cells"]
    table = Cells(cells)
    assert [list(row.values()) for row in rows] == [table.texts(cell) for cell in cells]
    with (made / "table.csv").open(newline="", encoding="utf-8") as f:
        numbers = list(csv.DictReader(f))
    assert [n["label"] for n in numbers] == [row["method"] for row in rows]
    for number, row in zip(numbers, rows, strict=True):
        assert f"{100 * float(number['ece_mean']):.3f}" == row["ECE %"].split(" ")[0]


def test_the_whole_demo_is_the_issue_s() -> None:
    assert demo.SEEDS == 5
    assert list(demo.BUDGETS) == [math.inf, 1.0]
    assert demo.DATA == "resnet110-cifar10"
    assert (
        *("fedtemp", "fedopvector", "fedcal", "fednewton", "fednewton-entropy", "fedoneshot"),
        "fedbin",
        *(f"fedbbq[weighting={w}]" for w in ("none", "all", "changed")),
    ) == demo.METHODS
    assert demo.BASELINES == ("none", "pooled-temperature", "pooled-bbq")
