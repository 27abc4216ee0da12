"""`make bench` in small: what it writes, and that peers get our numbers; no look at a time."""

import importlib.util
import json

import pytest

from experiments.benchmarks import federated, timing
from experiments.benchmarks.__main__ import CASES, main

# Searches by value find T to the square root of a rounding error; torchmetrics computes the
# top-label error in single precision.
TOLERANCES = {
    **{"T": 1e-6, "NLL": 1e-10, "cwECE": 1e-9, "ECE": 1e-4},
    **dict.fromkeys(("table crc32", "releases", "released crc32"), 0.0),
    **{"held-out NLL": 0.0, "held-out ECE": 0.0},
    **{"AUC": 0.02},  # ours has noise
    **{"steps": 0.0},
}
NEEDS = {"scikit-learn": ("sklearn",), "torchmetrics": ("torch", "torchmetrics")}
ABSENT = ("netcal", "probmetrics", "pfl", "Flower's loop, Ray")


@pytest.mark.slow
def test_every_work_has_a_row_with_our_time_and_its_peers_agree(tmp_path, monkeypatch):
    names = list(CASES)
    monkeypatch.setenv(timing.VARIABLE, str(tmp_path / "no-python"))
    monkeypatch.setattr(federated, "find_spec", lambda name: None)
    monkeypatch.setattr(timing, "SLOW", 0.0)  # so the warm-up counts,
    monkeypatch.setattr(timing, "_SLOW_REPETITIONS", 1)  # and is the only run
    main(["--quick", *(f"--only={name}" for name in names), "--out", str(tmp_path)])
    found, page = json.loads((tmp_path / "bench.json").read_text()), tmp_path / "bench.md"
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == names
    for row in rows.values():
        assert row["target"] is row["met"] is None  # small sizes prove nothing about targets
        ours = row["ours"]
        assert 0 < ours["min"] <= ours["median"]
        assert ours["values"]
        assert row["work"] in page.read_text()
        for peer in row["peers"]:
            needs = next((v for k, v in NEEDS.items() if peer["name"].startswith(k)), ())
            if peer["name"].startswith(ABSENT):
                assert "no environment" in peer["skipped"] or "not installed" in peer["skipped"]
            elif all(importlib.util.find_spec(module) for module in needs):
                assert peer["ratio"] == pytest.approx(peer["median"] / ours["median"])
            else:
                assert "not installed" in peer["skipped"]
            for key, value in peer.get("values", {}).items():
                expected = pytest.approx(ours["values"][key], rel=TOLERANCES[key])
                assert value == expected, f"{row['name']}: {peer['name']}"
    assert {"fedcal", "ray", "netcal"} <= {*found["machine"]["versions"]}
