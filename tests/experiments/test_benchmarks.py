"""`make bench` in small: what it writes, and that peers get our numbers; no look at a time."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.benchmarks.__main__ import main, time_one
from experiments.benchmarks.timing import (
    Contestant,
    Inside,
    PeerMissing,
    Skipped,
    Timing,
    compare,
)
from experiments.benchmarks.work import WORKS

# Searches by value find T to the square root of a rounding error; torchmetrics computes the
# top-label error in single precision.
TOLERANCES = {"T": 1e-6, "NLL": 1e-10, "cwECE": 1e-9, "ECE": 1e-4, "table crc32": 0.0}
NEEDS = {"scikit-learn": ("sklearn",), "torchmetrics": ("torch", "torchmetrics")}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    out = tmp_path_factory.mktemp("bench")
    main(["--quick", "--out", str(out)])
    return json.loads((out / "bench.json").read_text()), (out / "bench.md").read_text()


def contestant(name: str, run: Callable[[], Any] = lambda: 1.0) -> Contestant:
    return Contestant(name, lambda: run, lambda result: {"value": result})


# -- the command --------------------------------------------------------------------------------


def test_every_work_has_a_row_with_our_time(bench: tuple[dict[str, Any], str]) -> None:
    told, page = bench
    assert [row["name"] for row in told["rows"]] == list(WORKS)
    for row in told["rows"]:
        assert row["target"] is None  # small sizes prove nothing about targets
        assert row["met"] is None
        assert 0 < row["ours"]["min"] <= row["ours"]["median"]
        assert row["ours"]["repetitions"] >= 2
        assert row["ours"]["values"]
        assert row["work"] in page


def test_peers_are_timed_or_say_why_not(bench: tuple[dict[str, Any], str]) -> None:
    for row in bench[0]["rows"]:
        for peer in row["peers"]:
            needs = next((v for k, v in NEEDS.items() if peer["name"].startswith(k)), ())
            if all(importlib.util.find_spec(module) for module in needs):
                assert peer["ratio"] == pytest.approx(peer["median"] / row["ours"]["median"])
            else:
                assert "not installed" in peer["skipped"]


def test_peers_agree_with_us(bench: tuple[dict[str, Any], str]) -> None:
    for row in bench[0]["rows"]:
        for peer in row["peers"]:
            for key, value in peer.get("values", {}).items():
                expected = pytest.approx(row["ours"]["values"][key], rel=TOLERANCES[key])
                assert value == expected, f"{row['name']}: {peer['name']}"


def test_machine_and_versions_are_told(bench: tuple[dict[str, Any], str]) -> None:
    machine = bench[0]["machine"]
    assert machine["cores"] >= 1
    assert machine["versions"]["numpy"]
    assert set(machine["versions"]) >= {"scikit-learn", "torchmetrics", "fedcal"}


def test_population_tells_its_memory(bench: tuple[dict[str, Any], str]) -> None:
    row = next(row for row in bench[0]["rows"] if row["name"] == "population")
    values = row["ours"]["values"]
    assert 0 < values["MiB before"] <= values["peak MiB"]


def test_only_runs_what_is_named(tmp_path: Path) -> None:
    main(["--quick", "--only", "bbq", "--out", str(tmp_path / "new")])
    rows = json.loads((tmp_path / "new" / "bench.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["bbq"]
    with pytest.raises(SystemExit) as refused:
        main(["--only", "nothing"])
    assert refused.value.code == 2


def test_a_peer_that_is_not_installed_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not there
    row = time_one("classwise-ece", quick=True)
    (peer,) = row.peers
    assert isinstance(peer, Skipped)
    assert peer.reason == "torch is not installed"
    assert "skipped" in row.lines()[0]
    assert row.to_json()["peers"] == [{"name": peer.name, "skipped": peer.reason}]


# -- the stopwatch ------------------------------------------------------------------------------


def test_contestants_take_turns_and_are_prepared_afresh() -> None:
    seen: list[str] = []

    def noting(name: str) -> Contestant:
        def prepare() -> Callable[[], float]:
            seen.append(f"{name} prepared")
            return lambda: seen.append(name) or 0.0

        return Contestant(name, prepare, lambda result: {})

    compare([noting("a"), noting("b")], 2)
    turn = ["a prepared", "a", "b prepared", "b"]
    assert seen == turn * 3  # one to warm up, two that count


def test_seconds_of_a_result_that_timed_itself_are_taken() -> None:
    clock = iter([0.5, 0.1, 0.3])  # the first is the warm-up
    ours = Contestant("ours", lambda: lambda: Inside(next(clock), 7.0), lambda v: {"value": v})
    (timing,) = compare([ours], 2)
    assert isinstance(timing, Timing)
    assert timing.seconds == (0.1, 0.3)
    assert timing.least == 0.1
    assert timing.median == pytest.approx(0.2)
    assert timing.values == {"value": 7.0}


def test_slow_work_counts_its_warm_up_and_runs_twice() -> None:
    clock = iter([20.0, 10.0])
    slow = Contestant("slow", lambda: lambda: Inside(next(clock), 7.0), lambda v: {"value": v})
    (timing,) = compare([slow], 7)
    assert isinstance(timing, Timing)
    assert timing.seconds == (20.0, 10.0)


def test_one_missing_peer_does_not_stop_the_others() -> None:
    def missing() -> Callable[[], Any]:
        raise PeerMissing("x is not installed")

    outcome = compare(
        [contestant("ours"), Contestant("x", missing, lambda v: {}), contestant("last")], 2
    )
    assert [type(o) for o in outcome] == [Timing, Skipped, Timing]
    assert outcome[1] == Skipped("x", "x is not installed")
