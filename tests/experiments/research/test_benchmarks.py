"""`make bench` in small: what it writes, and that peers get our numbers; no look at a time."""

import ast
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedcal.core.errors import FedcalError
from fedcal.core.shards import Shards
from fedcal.experiments.research.benchmarks import (
    federated,
    peers,
    published_sums,
    samplers,
    secure_sums,
    timing,
)
from fedcal.experiments.research.benchmarks.__main__ import BENCH as CASES
from fedcal.experiments.research.benchmarks.__main__ import main
from fedcal.experiments.research.benchmarks.timing import (
    Contestant,
    Inside,
    PeerMissing,
    apart,
    compare,
)
from fedcal.experiments.runs.engines import run_in_process
from fedcal.secure_aggregation.messages import CONFIRMATION_BYTES
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome, Progress

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


def contestant(name: str, run: Callable[[], Any] = lambda: 1.0, pieces: int = 1) -> Contestant:
    return Contestant(name, lambda: run, lambda result: {"value": result}, pieces)


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


def test_contestants_take_turns_are_prepared_afresh_and_closed_whatever_happens():
    seen: list[str] = []

    @contextmanager
    def process(name: str, run: Callable[[], Any]) -> Iterator[Callable[[], Callable[[], Any]]]:
        def prepare() -> Callable[[], Any]:
            seen.append(f"{name} prepared")
            return lambda: seen.append(name) or run()

        try:
            yield prepare
        finally:
            seen.append(f"{name} closed")

    def noting(name: str, run: Callable[[], Any] = lambda: 1.0) -> Contestant:
        return Contestant(name, process(name, run), lambda result: {})

    compare([noting("a"), noting("b")], 2)
    turn = ["a prepared", "a", "b prepared", "b"]
    assert [name for name in seen if "closed" not in name] == turn * 3  # one to warm up
    assert [name for name in seen if "closed" in name] == ["a closed", "b closed"]
    seen.clear()
    with pytest.raises(ZeroDivisionError):
        compare([noting("c"), noting("d", lambda: 1 / 0)], 2)
    assert {"c closed", "d closed"} < set(seen)


def test_seconds_are_those_of_a_result_that_timed_itself_or_of_one_piece(monkeypatch):
    for inside, asked, median, least, repetitions in (
        ([0.5, 0.1, 0.3], 2, 0.2, 0.1, 2),  # the first is the warm-up
        ([20.0, 10.0, 11.0], 7, 11.0, 10.0, 3),  # which counts where work is slow
    ):
        clock = iter(inside)
        (found,) = compare([contestant("ours", lambda c=clock: Inside(next(c), 7.0))], asked)
        assert found == {
            **{"name": "ours", "median": pytest.approx(median), "min": least},
            **{"repetitions": repetitions, "values": {"value": 7.0}},
        }
    now = iter(range(0, 1000, 20))  # 20 s a run: it is slow by all the time that passes
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    (long,) = compare([contestant("long", lambda: Inside(0.1, 7.0))], 7)
    assert (long["median"], long["repetitions"]) == (0.1, 3)
    (many,) = compare([contestant("many", pieces=100)], 2)
    assert (many["min"], many["median"], many["repetitions"]) == (0.2, 0.2, 2)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Gives the peers' interpreter, our own here, a `netcal.metrics` with this source."""
    package = tmp_path / "netcal"
    package.mkdir()
    (package / "__init__.py").write_text("print('noise at import')\n")
    monkeypatch.setenv(timing.VARIABLE, sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return lambda source: (package / "metrics.py").write_text(source) and None


@pytest.fixture
def top_label():
    arrays = {"probs": np.full((300, 3), 0.25), "labels": np.zeros(300, np.int64)}
    return apart("netcal_top_label", arrays, bins=15)


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


def test_a_peer_apart_has_one_thread_and_answers_turn_after_turn(fake, top_label, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    fake(ECE.replace("self.bins +", 'self.bins + 100 * int(os.environ["OMP_NUM_THREADS"]) +'))
    with top_label as prepare:
        told = [prepare()() for _ in range(2)]
    assert [t.result for t in told] == [117.25, 118.25]  # one process; the first call warmed it up
    assert all(t.seconds > 0 for t in told)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ImportError('no', name='pyro')", "pyro is not installed in "),
        (ECE.replace("return", "raise ValueError('odd') ; return"), "ValueError: odd"),
        (ECE.replace("return", "os._exit(3) ; return"), "its process has ended"),
        (ECE.replace("return", "if len(calls) > 2: os._exit(3)\n        return"), "has ended"),
    ],
)
def test_a_peer_apart_that_fails_is_skipped(fake, top_label, source, reason):
    fake(source)
    peer = Contestant("netcal", top_label, lambda v: {})
    ours, skipped = compare([contestant("ours"), peer], 2)
    assert ours["repetitions"] >= 2
    assert reason in skipped["skipped"]


def test_the_worker_imports_nothing_of_ours():
    tree = ast.parse(Path(peers.__file__).read_text("utf-8"))
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    ours = {"fedcal", "clients", "strategies", "experiments"}
    assert "numpy" in names
    assert {name.partition(".")[0] for name in names} & ours == set()


def test_every_law_is_timed(tmp_path, capsys):
    laws = [law for law in samplers.CASES if "65536" not in law]  # seconds a draw
    only = [f"--only={law}" for law in laws]
    assert main(["samplers", "--quick", *only, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    rows = json.loads((tmp_path / "samplers.json").read_text())["rows"]
    for law, row in zip(laws, rows, strict=True):
        assert f"{law} " in printed
        assert row["ours"]["median"] > 0
        assert [p["name"] for p in row["peers"]][:2] == ["one draw alone", "seeded words"]
        assert all("not installed" in p.get("skipped", "not installed") for p in row["peers"])


def fake_ray(job: Job, shards: Shards, *, told: slice = slice(None), progress: Progress) -> Outcome:
    seen: list[tuple[int, int]] = []
    outcome = job.run(partial(run_in_process, shards=shards), lambda *pair: seen.append(pair))
    for pair in seen[told]:
        progress(*pair)
    return outcome


def test_ray_is_timed_by_its_later_rounds(monkeypatch):
    monkeypatch.setattr(federated, "find_spec", lambda name: True)
    monkeypatch.setattr("fedcal.experiments.runs.engines.flower_simulation.run_flower", fake_ray)
    work = CASES["engine-round-100"](True)
    ours, _, ray = (run_of(c)() for c in work.contestants)
    assert work.contestants[0].values(ours.result)["releases"] == 3
    assert work.contestants[2].values(ray.result) == work.contestants[0].values(ours.result)
    ray.result[1]["values"][0] += 1e-9
    assert work.contestants[2].values(ray.result) != work.contestants[0].values(ours.result)
    monkeypatch.setattr(
        "fedcal.experiments.runs.engines.flower_simulation.run_flower",
        partial(fake_ray, told=slice(2)),
    )
    with pytest.raises(FedcalError, match="2 of 3 rounds"):
        run_of(work.contestants[2])()


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
