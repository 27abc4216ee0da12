"""Folders of results: refused, or replaced as a whole; a report may come later."""

import json
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from fedcal import simulate
from fedcal.cli.main import exit_code_of
from fedcal.run.folders import COMPARISON, KINDS, RUN, claim

pytestmark = pytest.mark.usefixtures("quick_figures")

ROWS = 90
LABELS = np.arange(ROWS) % 3
RNG = np.random.default_rng(0)
Disk = dict[str, bytes]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with rows of logits and of features."""
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", logits=RNG.normal(size=(ROWS, 3)) + 2 * np.eye(3)[LABELS], labels=LABELS)
    x = (RNG.normal(size=(ROWS, 4)) / 9).astype(np.float32)
    np.savez("features.npz", features=x, labels=LABELS, class_names=np.array(list("abc")))
    return tmp_path


def disk(folder: Path) -> Disk:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


SIMULATE = "simulate --data rows.npz --clients 4 --partition iid"
FEW = "--clients 4 --seeds 1 --jobs 1"
AGAIN: dict[str, tuple[str, str, str]] = {
    "simulate": (SIMULATE, "", "--method evaluate"),  # of another family
    "compare": (f"compare --data rows.npz {FEW} --method", "fedtemp", "fednewton"),
    "train": ("train --data features.npz --method fedsgd --epsilon 2 --rounds", "2", "3"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("command", AGAIN)
def test_results_are_refused_or_replaced_entirely(command, folder, capsys):
    asked, *values = AGAIN[command]
    first, second = (f"{asked} {value}".split() for value in values)
    assert exit_code_of([*first, "--out", "out", "--quiet"]) == 0
    mine = Path("out", "notes.txt")
    mine.write_text("mine")
    before = disk(folder)
    capsys.readouterr()
    assert exit_code_of([*second, "--out", "out", "--quiet"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedcal: error: --out out holds ")
    assert "--overwrite" in line
    assert disk(folder) == before
    assert exit_code_of([*second, "--out", "out", "--quiet", "--overwrite"]) == 0
    assert exit_code_of([*second, "--out", "fresh", "--quiet"]) == 0
    assert mine.read_text() == "mine"
    mine.unlink()
    files = [{p.relative_to(o) for p in o.rglob("*")} for o in (Path("out"), Path("fresh"))]
    assert files[0] == files[1]


def test_a_file_that_is_not_fedcal_s_is_never_replaced(folder):
    out = folder / "theirs"
    out.mkdir()
    ledger = {"ledger": str(folder / "l.db"), "cap": 1.0, "epsilon": 1.0}
    for name in ("result.json", "config.toml", "calibrator.npz"):
        (out / name).write_text(json.dumps({"schema": 1, "result": "of something else"}))
        before = disk(folder)
        for overwrite in (False, True):
            options = {"clients": 4, "out": out, "overwrite": overwrite, **ledger}
            refused(f"holds {name}, unknown files", simulate, "rows.npz", **options)
            assert disk(folder) == before
        (out / name).unlink()


def test_what_another_command_left_is_never_replaced(tmp_path):
    for kind in KINDS:
        mine = COMPARISON if kind == RUN else RUN
        for mark in list(kind.marks.keys() - mine.marks.keys())[:1]:
            (tmp_path / mark).write_text("{}")
            for how in ({}, {"overwrite": True}, {"resume": True}):
                refused(f"holds {mark} of another command", claim, tmp_path, mine, **how)
            (tmp_path / mark).unlink()


BASELINE = "--method pooled-temperature"


@pytest.mark.parametrize("words", ["evaluate", f"compare {BASELINE} --seeds 1 --jobs 1"])
def test_a_report_may_come_later(words, tmp_path, capsys):
    command = [*words.split(), "--data", "imdb-binary", "--quiet", "--out"]
    later = tmp_path / "later"
    assert exit_code_of([*command, str(later), "--no-report"]) == 0
    names = {path.name for path in later.iterdir() if path.name[0] != "."}
    assert not any(name.endswith((".html", ".png", ".svg")) for name in names)
    capsys.readouterr()
    assert exit_code_of(["report", str(later), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(later / "report.html")}
    assert names < {path.name for path in later.iterdir()}
