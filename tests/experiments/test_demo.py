"""`make demo`: the table with every column of the issue, its numbers, and the figures."""

from __future__ import annotations

import csv
import json
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import demo, simulate

METHODS = ("FedTemp", "FedNewton", "FedOneShot", "FedBBQ", "FedBBQ (weighted: all)")
IDEALS = ("uncalibrated", "pooled temperature", "pooled BBQ")
PNGS = {
    "reliability-before-after.png",
    "reliability-without-privacy.png",
    "reliability-epsilon-1.png",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's folder, from one seed and the methods that its figures show."""
    out = tmp_path_factory.mktemp("demo") / "deep" / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SEEDS", 1)
        patch.setattr(demo, "METHODS", {name: demo.METHODS[name] for name in METHODS})
        demo.main(["--out", str(out)])
    return out


def table(made: Path) -> list[dict[str, str]]:
    with (made / "table.csv").open(newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def test_everything_is_written(made: Path) -> None:
    assert {p.name for p in made.iterdir()} == {"table.md", "table.csv", "results.json", *PNGS}
    for name in PNGS:
        assert (made / name).read_bytes().startswith(b"\x89PNG")
        assert (made / name).stat().st_size > 20_000


def test_the_headings_are_the_issue_s() -> None:
    wanted = (
        "accuracy",
        "ECE",
        "cwECE",
        "NLL",
        "epsilon",
        "delta",
        "noise std",
        "bytes",
        "seconds",
    )
    for word in wanted:
        assert [h for h in demo.HEADINGS if word in h.replace("/", " ")] != []
    assert demo.HEADINGS[0] == "method"


def test_the_rows_are_ideals_then_methods_at_each_budget(made: Path) -> None:
    found = [(row["method"], row["epsilon"]) for row in table(made)]
    assert found == [
        *((name, "") for name in IDEALS),
        *((name, "inf") for name in METHODS),
        *((name, "1") for name in METHODS),
    ]


def test_the_table_s_numbers_are_the_run_s(made: Path) -> None:
    by_name = {(row["method"], row["epsilon"]): row for row in table(made)}
    uncalibrated, pooled = by_name["uncalibrated", ""], by_name["pooled temperature", ""]
    assert (uncalibrated["accuracy %"], uncalibrated["ECE %"]) == ("93.560", "4.750")
    assert float(pooled["ECE %"]) == pytest.approx(1.13, abs=0.01)
    assert float(pooled["cwECE %"]) == pytest.approx(0.434, abs=0.005)  # logits are float16

    result = simulate(demo.DATA, method="fednewton", epsilon=1.0, seed=0)
    row = by_name["FedNewton", "1"]
    assert row["cwECE %"] == f"{100 * result.after['classwise_ece']:.3f}"
    assert row["NLL"] == f"{result.after['nll']:.4f}"
    assert float(row["delta"]) == 1e-5
    g, h = result.privacy["noise_std"]
    assert row["noise std"] == f"{g:.3g} / {h:.3g}"
    assert row["bytes up / down"] == "{bytes_up_per_client} / {bytes_down_per_client}".format(
        **result.communication
    )
    assert by_name["FedOneShot", "1"]["noise std"] == "(draw)"
    assert by_name["FedNewton", "inf"]["noise std"] == by_name["FedNewton", "inf"]["delta"] == ""
    for row in by_name.values():
        assert float(row["seconds"]) >= 0


def test_the_markdown_is_the_same_table(made: Path) -> None:
    header, rule, *lines = (made / "table.md").read_text("utf-8").splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in (header, *lines)]
    assert cells[0] == list(demo.HEADINGS)
    assert cells[1:] == [list(row.values()) for row in table(made)]
    assert set(rule) == set("|-:")
    assert rule.count("|") == header.count("|")


def test_results_json_holds_every_run(made: Path) -> None:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    records = json.loads((made / "results.json").read_text("utf-8"), parse_constant=refuse)
    assert [r["name"] for r in records] == [*IDEALS, *METHODS, *METHODS]
    assert {len(r["results"]) for r in records} == {1}
    assert {r["results"][0]["schema"] for r in records} == {1}


def test_a_row_is_mean_and_spread_over_its_seeds() -> None:
    results = [simulate(demo.DATA, method="fednewton", epsilon=1.0, seed=s) for s in range(3)]
    cells = dict(zip(demo.HEADINGS, demo.Row("x", 1.0, results).cells(), strict=True))
    values = [100 * r.after["ece"] for r in results]
    assert cells["ECE %"] == f"{statistics.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
    assert cells["accuracy %"] == "93.560"  # temperatures change no prediction: no spread


def test_the_whole_demo_is_the_issue_s() -> None:
    assert demo.SEEDS == 5
    assert list(demo.BUDGETS) == [math.inf, 1.0]
    assert demo.DATA == "resnet110-cifar10"
    methods = [(method, settings.get("weighting")) for method, settings in demo.METHODS.values()]
    assert methods == [
        *(("fedtemp", None), ("fednewton", None), ("fedoneshot", None), ("fedbin", None)),
        *(("fedbbq", "none"), ("fedbbq", "all"), ("fedbbq", "changed")),
    ]
    assert list(demo.IDEALS.values()) == ["none", "pooled-temperature", "pooled-bbq"]


def test_the_terminal_shows_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    result = simulate(demo.DATA, method="none")
    rows: list[Any] = [demo.Row("uncalibrated", None, [result]), demo.Row("x", math.inf, [result])]
    Console(width=160).print(demo.as_table(rows))
    said = capsys.readouterr().out
    for heading in demo.HEADINGS:
        assert heading in said
    assert "4.750" in said
