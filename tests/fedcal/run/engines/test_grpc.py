"""The engine grpc: real SuperNodes on this machine, the bits of inline, and nothing left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from procfs import descendants, listening, processes, until
from refusals import each_is_refused

from fedcal import SimulationResult, simulate

ROWS = 240


def rows(classes: int = 3) -> dict[str, Any]:
    rng = np.random.Generator(np.random.Philox(key=5))
    labels = rng.integers(0, classes, 2 * ROWS)
    logits = 3 * (rng.normal(size=(2 * ROWS, classes)) + np.eye(classes)[labels])
    test = {"test_logits": logits[ROWS:], "test_labels": labels[ROWS:]}
    return {"logits": logits[:ROWS], "labels": labels[:ROWS], **test}


def run(engine: str, **options: Any) -> SimulationResult:
    return simulate(rows(), clients=3, partition="iid", engine=engine, **options)


def bits(result: SimulationResult) -> Any:
    return result.rounds, result.before, result.after, result.test_probs.tobytes()


@pytest.fixture
def nothing_stays(monkeypatch):
    folders, make = [], tempfile.mkdtemp

    def noted(*arguments: Any, **options: Any) -> str:
        folders.append(make(*arguments, **options))
        return folders[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", noted)
    yield
    assert descendants(os.getpid()) == set()
    assert [folder for folder in folders if Path(folder).exists()] == []


def test_what_real_sites_or_their_number_rule_out_is_one_line():
    table: list[tuple[dict[str, Any], str]] = [
        (
            {"data": rows(), "clients": None},
            r"inline takes any\) must be a whole number in \[1, 64\], got 100",
        ),
        (
            {"engine": "inline", "timeout": 5.0},
            "timeout has no effect here: the engine is not grpc",
        ),
        ({"timeout": 0.0}, "timeout must be"),
        ({"engine": "study"}, "is started by fedcal study run"),
        ({"engine": "study", "method": "none"}, "real sites keep theirs"),
        ({"engine": "study", "dropout": 0.1}, "real sites are not simulated"),
    ]
    each_is_refused(table, lambda given: simulate(**{"engine": "grpc", "clients": 3, **given}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"method": "fedoneshot", "epsilon": 2.0, "unit": "example", "set": {"rows_per_client": 80}},
        {"method": "fednewton", "rounds": 2, "secure_aggregation": "masks"},
        {"method": "fedbbq", "epsilon": 8.0, "unit": "example", "trust": "local"},
    ],
    ids=lambda options: options["method"],
)
def test_same_bits_as_inline_over_tls_on_loopback_alone(options, nothing_stays):
    seen: set[str] = set()

    def look(done: int, planned: int) -> None:
        seen.update(listening(descendants(os.getpid())))

    grpc = simulate(rows(), clients=3, partition="iid", engine="grpc", progress=look, **options)
    assert bits(grpc) == bits(run("inline", **options))
    assert seen == {"127.0.0.1"}


@pytest.mark.slow
def test_a_node_that_is_killed_in_mid_round_is_a_dropout(nothing_stays):
    """The others' answers are released; it does not come back, for nobody starts it again."""

    def kill(done: int, planned: int) -> None:
        if done == 1:
            for process in descendants(os.getpid()):
                words = Path(f"/proc/{process}/cmdline").read_bytes()
                if b"flower-supernode" in words and b"site-1.key" in words:
                    os.kill(process, signal.SIGKILL)

    options: dict[str, Any] = {"epsilon": 8.0, "unit": "example", "rounds": 3}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = simulate(
            rows(), clients=3, partition="iid", engine="grpc", progress=kill, **options
        )
    assert any("2 of 3 clients answered" in str(one.message) for one in told)
    want = run("inline", **options)
    assert found.rounds[0] == want.rounds[0]
    assert found.rounds[1]["values"] != want.rounds[1]["values"]
    assert len(found.rounds) == 3


@pytest.mark.slow
def test_ctrl_c_ends_every_process(nothing_stays, tmp_path):
    np.savez(tmp_path / "rows.npz", **rows())
    words = [
        *(sys.executable, "-m", "fedcal", "simulate", "--data", "rows.npz", "--engine", "grpc"),
        *("--clients", "2", "--out", "out"),
    ]
    command = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert until(lambda: len(descendants(command.pid)) >= 8)
    started = descendants(command.pid)
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert command.returncode == 130
    assert said.splitlines()[-1] == "fedcal: interrupted; nothing was written"
    assert until(lambda: not started & processes().keys(), 20)
    assert not (tmp_path / "out").exists()
