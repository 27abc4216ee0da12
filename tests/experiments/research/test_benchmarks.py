"""`make bench` in small: what it writes, and that peers get our numbers; no look at a time."""

import importlib.util
import json
from collections.abc import Callable
from typing import Any

import pytest

from fedcal.experiments.research.benchmarks import (
    federated,
    published_sums,
    secure_sums,
    timing,
)
from fedcal.experiments.research.benchmarks.__main__ import BENCH as CASES
from fedcal.experiments.research.benchmarks.__main__ import main
from fedcal.experiments.research.benchmarks.timing import (
    Contestant,
    PeerMissing,
)
from fedcal.secure_aggregation.messages import CONFIRMATION_BYTES

# Those run the command line in fresh processes; one of them has a test of its own.
COMMANDS = {"engine-run-100", "engine-run-500"}
# Searches by value find T to the square root of a rounding error; torchmetrics computes the
# top-label error in single precision.
TOLERANCES = {
    **{"T": 1e-6, "NLL": 1e-10, "cwECE": 1e-9, "ECE": 1e-4},
    **dict.fromkeys(("table crc32", "releases", "released crc32"), 0.0),
    **{"held-out NLL": 0.0, "held-out ECE": 0.0},
    **{"AUC": 0.02},  # ours has noise
    **{"labels in sets": 0.0, "sets crc32": 0.0},
    **{"norm of the sum": 1e-4, "steps": 0.0},
}
NEEDS = {"scikit-learn": ("sklearn",), "torchmetrics": ("torch", "torchmetrics")}
ABSENT = ("netcal", "probmetrics", "MAPIE", "TorchCP", "Flower's loop, Ray")  # in the fixture


def run_of(work: Contestant) -> Callable[[], Any]:
    assert callable(work.prepare)
    return work.prepare()


@pytest.mark.slow
def test_every_work_has_a_row_with_our_time_and_its_peers_agree(tmp_path, monkeypatch):
    names = [name for name in CASES if name not in COMMANDS]
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
    memory = rows["population"]["ours"]["values"]
    assert 0 < memory["MiB before"] <= memory["peak MiB"]
    machine = found["machine"]
    assert set(machine["versions"]) >= {"scikit-learn", "torchmetrics", "fedcal", "ray"}
    assert machine["versions"]["netcal"] is machine["versions"]["probmetrics"] is None


ECE = """
import os
class ECE:
    def __init__(self, bins): self.bins = bins
    def measure(self, probs, labels):
        print("noise", self.bins)
        calls.append(len(labels))
        return self.bins + probs[0, 0] + len(calls)
calls = []
"""


def test_the_command_releases_what_the_engine_does(monkeypatch):
    work = CASES["engine-run-500"](True)
    released = work.contestants[0].values(run_of(work.contestants[0])())
    assert released["releases"] == 1
    monkeypatch.setattr(federated, "find_spec", lambda name: None)
    with pytest.raises(PeerMissing, match=r"fedcal\[simulation\]"):
        run_of(work.contestants[1])


def test_the_bytes_of_our_secure_sums_follow_from_the_messages():
    for sites, members, threshold in ((5, 5, 4), (20, 7, 5)):
        row = secure_sums.measured_row(sites, members, threshold, 50)
        assert 8 * row["contributor up, bytes"] == published_sums.contributor_bits(sites, 50, 64)
        told = row["member down, bytes"] + row["member up, bytes"]
        told += threshold * CONFIRMATION_BYTES
        assert 8 * told == published_sums.member_bits(sites, 50, 64)
