"""`make demo`: one comparison with every column, one run with all its files, and the figures."""

import json

import pytest

from experiments import demo

LABELS = ("FedNewton", "FedOneShot", "FedBBQ (weighting=all)")


@pytest.mark.slow
def test_the_demo_of_two_seeds_and_three_methods(tmp_path, monkeypatch):
    methods = ("fednewton", "fedoneshot", "fedbbq[weighting=all]")
    monkeypatch.setattr(demo, "SEEDS", 2)
    monkeypatch.setattr(demo, "METHODS", methods)
    out = tmp_path / "deep" / "out"
    demo.main(["--out", str(out)])
    for name in ("reliability.png", "reliability-dark.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    assert "FedOneShot" in (out / "report.html").read_text("utf-8")
    result = json.loads((out / demo.ONE_RUN / "result.json").read_text("utf-8"))
    assert (result["method"], result["config"]["epsilon"]) == ("fednewton", 1.0)

    lines = (out / "table.md").read_text("utf-8").split("\n\n")[1].splitlines()
    header, _, *body = ([c.strip() for c in line.strip("|").split("|")] for line in lines)
    rows = [dict(zip(header, cells, strict=True)) for cells in body]
    assert [(row["method"], row["epsilon"]) for row in rows] == [
        *((name, "") for name in ("uncalibrated", "pooled temperature", "pooled BBQ")),
        *((name, "inf") for name in LABELS),
        *((name, "1") for name in LABELS),
    ]
    uncalibrated, pooled = rows[:2]
    assert (uncalibrated["accuracy %"], uncalibrated["ECE %"]) == ("93.56", "4.75")
    assert float(pooled["ECE %"]) == pytest.approx(1.13, abs=0.01)
    assert float(pooled["cwECE %"]) == pytest.approx(0.434, abs=0.01)
