"""`make demo`: one comparison with every column of the issue, one run, and the figures."""

import functools
import json
from pathlib import Path

import pytest

from experiments import demo

LABELS = ("FedNewton", "FedOneShot", "FedBBQ (weighting=all)")
IDEALS = ("uncalibrated", "pooled temperature", "pooled BBQ")
FILES = {"table.md", "table.csv", "compare.json", "rows.jsonl", "config.toml", "report.html"}
ENDS = ("", "-dark")
PNGS = {f"reliability{end}.png" for end in ENDS}


def table_of(out: Path) -> list[dict[str, str]]:
    lines = (out / "table.md").read_text("utf-8").split("\n\n")[1].splitlines()
    header, rule, *body = ([c.strip() for c in line.strip("|").split("|")] for line in lines)
    assert {text.strip("-:") for text in rule} == {""}
    return [dict(zip(header, cells, strict=True)) for cells in body]


@pytest.mark.slow
def test_the_demo_of_two_seeds_and_three_methods(tmp_path, monkeypatch):
    asked = demo.options
    methods = ("fednewton", "fedoneshot", "fedbbq[weighting=all]")
    monkeypatch.setattr(demo, "SEEDS", 2)
    monkeypatch.setattr(demo, "METHODS", methods)
    monkeypatch.setattr(demo, "options", lambda: {**asked(), "jobs": 1})
    monkeypatch.setattr(demo, "calibrate", functools.cache(demo.calibrate))
    out = tmp_path / "deep" / "out"
    demo.main(["--out", str(out)])
    names = {p.name for p in out.iterdir()}
    assert names >= {*PNGS, *FILES, demo.ONE_RUN}
    for name in PNGS:
        assert (out / name).read_bytes().startswith(b"\x89PNG")
        assert (out / name).stat().st_size > 20_000
    assert "FedOneShot" in (out / "report.html").read_text("utf-8")
    run = out / demo.ONE_RUN
    result = json.loads((run / "result.json").read_text("utf-8"))
    assert (result["method"], result["config"]["epsilon"]) == ("fednewton", 1.0)
    assert "<html" in (run / "report.html").read_text("utf-8")
    rows = table_of(out)
    demo.calibrate().save(out)  # it can be made again
    assert {p.name for p in out.iterdir()} == names
    assert table_of(out) == rows

    assert [(row["method"], row["epsilon"]) for row in rows] == [
        *((name, "") for name in IDEALS),
        *((name, "inf") for name in LABELS),
        *((name, "1") for name in LABELS),
    ]
    by_name = {(row["method"], row["epsilon"]): row for row in rows}
    uncalibrated, pooled = by_name["uncalibrated", ""], by_name["pooled temperature", ""]
    assert (uncalibrated["accuracy %"], uncalibrated["ECE %"]) == ("93.56", "4.75")
    assert float(pooled["ECE %"]) == pytest.approx(1.13, abs=0.01)
    assert float(pooled["cwECE %"]) == pytest.approx(0.434, abs=0.005)  # logits are float16
