"""`fedcal compare`: what it prints and writes, interrupted and resumed as people do it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import CLASS_ROWS, numbers_in

from fedcal import compare, datasets
from fedcal.partition import deal
from fedcal.run.sweep import digest_of
from fedcal.strategies import FederatedStrategy

pytestmark = pytest.mark.usefixtures("quick_figures")

CONSOLE_SCRIPT = Path(sys.executable).with_name("fedcal")
FILES = {
    *("config.toml", "rows.jsonl", "compare.json", "table.csv", "table.md", "report.html"),
    ".inputs.json",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a data set in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 3, 240)
    logits = 3 * (rng.normal(size=(240, 3)) + np.eye(3)[labels])
    np.savez("data.npz", logits=logits, labels=labels, test_logits=logits, test_labels=labels)
    return tmp_path


def rows(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found]


FIGURES = {f"{name}.{suffix}" for name in ("epsilon", "bytes") for suffix in ("png", "svg")}
FIGURES |= {"column.pdf", "column.svg"}
OURS = ".inputs.json"
"""Digests of the data, for its owner alone."""


def test_files_of_a_private_comparison_hold_nothing_exact(tmp_path, monkeypatch):
    labels = np.repeat(np.arange(3), CLASS_ROWS)
    logits = np.linspace(-0.5, 0.5, 3) + 2.0 * np.eye(3)[labels]
    logits[::7] = np.roll(logits[::7], 1, axis=1)
    test = np.random.default_rng(0).normal(size=(97, 3))
    parts = {"test_logits": test, "test_labels": test.argmax(axis=1)}
    np.savez(tmp_path / "d.npz", logits=logits, labels=labels, **parts)
    sums: list[np.ndarray] = []
    close = FederatedStrategy.close_round

    def spy(self: FederatedStrategy, asked: Any, total: Any) -> Any:
        sums.append(np.ravel(total).copy())
        return close(self, asked, total)

    monkeypatch.setattr(FederatedStrategy, "close_round", spy)
    out = tmp_path / "o"
    methods = "fedtemp,fednewton[rows_per_client=11],fedoneshot[rows_per_client=11],fedbin,fedbbq"
    options = {"method": methods, "epsilon": 1, "clients": 307, "seeds": 2}
    compare(tmp_path / "d.npz", jobs=1, out=out, **options)

    assert {str(p.relative_to(out)) for p in out.rglob("*")} == FILES | FIGURES
    assert (out / OURS).stat().st_mode & 0o777 == 0o600
    data = datasets.load(tmp_path / "d.npz")
    texts = [p.read_text("utf-8") for p in out.iterdir() if p.suffix != ".png" and p.name != OURS]
    assert digest_of(data) not in "".join(texts)
    shards, there = deal(data, "dirichlet:0.1", 307, 0), numbers_in(out, OURS)
    counts = [*CLASS_ROWS, len(labels), len(labels) / 307, np.count_nonzero(shards.rows)]
    of_clients = [n for n in shards.rows if n > 100]  # small counts are everywhere
    exact = [float(n) for n in np.concatenate(sums) if abs(n) > 100 or n != round(n)]
    assert len(sums) > 10
    secrets = [*map(float, counts), *map(float, of_clients), *exact]
    assert [n for n in secrets if np.isclose(there, n, rtol=1e-9, atol=0).any()] == []


def test_data_that_differ_in_subjects_alone_are_others():
    rows = {"logits": np.zeros((8, 2)), "labels": np.arange(8) % 2}
    plain, named = (datasets.from_arrays(**rows, subject=s) for s in (None, np.arange(8) // 4))
    assert digest_of(plain) != digest_of(named)


LONG = (
    *("compare", "--data", "data.npz", "--method", "none,fedtemp,fednewton"),
    *("--clients", "60", "--epsilon", "inf,1", "--seeds", "4", "--jobs", "2"),
)
RUNS = 1 + 2 * 2 * 4


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(CONSOLE_SCRIPT), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_rows(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    while process.poll() is None:
        if (folder / "rows.jsonl").exists() and len(rows(folder)) >= count:
            return
        time.sleep(0.01)
    pytest.fail(f"it ended before: {process.communicate()}")


def without_too_little(error: str) -> list[str]:
    """Lines on stderr, but for progress and the warning that fedtemp's few rows each deserve."""
    usual = ("lines with too little", "fedcal: comparing:")
    return [line for line in error.splitlines() if not any(text in line for text in usual)]


def descendants_are_gone(session: int) -> bool:
    """Whether no worker of ours is left; they have sessions of their own, so by their parent."""
    listed = subprocess.run(["ps", "-eo", "ppid="], capture_output=True, text=True, check=True)
    return str(session) not in listed.stdout.split()


@pytest.mark.skipif(os.name != "posix", reason="signals of a terminal")
@pytest.mark.parametrize("by", ["SIGINT", pytest.param("SIGKILL", marks=pytest.mark.slow)])
def test_stopped_and_resumed(folder, by):
    out = folder / "o"
    process = started(*LONG, "--out", "o")
    wait_for_rows(out, 5, process)
    os.killpg(process.pid, getattr(signal, by))  # as Ctrl-C does: to all of the terminal's
    output, error = process.communicate(timeout=60)
    kept = len(rows(out))
    assert 5 <= kept < RUNS
    assert output == ""
    if by == "SIGINT":
        assert process.returncode == 130
        where = f"{kept} of {RUNS} runs are kept in o; continue with --resume"
        assert without_too_little(error) == [f"fedcal: interrupted: {where}"]
        assert descendants_are_gone(process.pid)
    assert {p.name for p in out.iterdir()} == {"config.toml", "rows.jsonl", ".inputs.json"}

    with (out / "rows.jsonl").open("ab") as f:
        f.write(b'{"run": {"data": "torn')
    process = started("compare", "--resume", "--out", "o", "--json")
    output, error = process.communicate(timeout=120)
    assert (process.returncode, without_too_little(error)) == (0, [])
    found = rows(out)
    assert len(found) == RUNS
    assert len({json.dumps(row["run"], sort_keys=True) for row in found}) == RUNS
    assert json.loads(output) == json.loads((out / "compare.json").read_text())

    full = compare(config=out / "config.toml", jobs=1).rows
    assert [{k: v for k, v in row.items() if k != "seconds"} for row in full] == found
