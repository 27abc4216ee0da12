"""What the commands show: percentages for people, progress on a terminal, files of rows."""

import io
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedcal import calibrators, datasets
from fedcal.errors import InputError
from fedcal.experiments.cli import _run
from fedcal.experiments.commands import apply
from fedcal.experiments.commands.simulate import simulate_command
from fedcal.experiments.terminal import SHOWN, progress, shown
from fedcal.metrics import summary

pytestmark = pytest.mark.usefixtures("quick_figures")


def labels_and_logits(n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(n) % 3
    return labels, np.random.default_rng(1).normal(size=(n, 3)) + 2 * np.eye(3)[labels]


def test_every_metric_of_a_result_is_shown_percentages_for_people():
    values = {"accuracy": 0.9356, "ece": 0.0475, "classwise_ece": 0.00434, "mce": 1.0}
    found = [shown(k, v) for k, v in (values | {"nll": 0.20889, "brier": 0.09766}).items()]
    assert found == ["93.560", "4.750", "0.434", "100.000", "0.2089", "0.0977"]
    assert {k for k, text in SHOWN.items() if text.endswith("%")} == set(SHOWN) - {"nll", "brier"}
    labels, logits = labels_and_logits()
    probs = calibrators.Identity().fit(logits, labels).predict_proba(logits)
    assert set(SHOWN) == set(summary(probs, labels))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for stderr, quiet in ((Terminal(), False), (Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stderr)
        with progress("calibrating", quiet=quiet) as steps:
            steps(4, 4)
        shows = isinstance(stderr, Terminal) and not quiet
        assert ("calibrating" in stderr.getvalue()) is shows
        assert ("4/4" in stderr.getvalue()) is shows
        assert bool(stderr.getvalue()) <= isinstance(stderr, Terminal)


@pytest.mark.parametrize("quiet", [True, False])
def test_without_a_terminal_long_work_says_a_line_every_few_seconds(monkeypatch, capsys, quiet):
    monkeypatch.setattr("fedcal.experiments.terminal._QUIET_SECONDS", 0.05)
    monkeypatch.setattr("fedcal.experiments.terminal._SECONDS_BETWEEN", 0.05)
    said: list[str] = []

    def wait_for(line: str) -> None:
        deadline = time.monotonic() + (0.2 if quiet else 30.0)
        while line not in said and time.monotonic() < deadline:
            time.sleep(0.01)
            said.extend(capsys.readouterr().err.splitlines())

    with progress("calibrating", quiet=quiet) as steps:
        wait_for("fedcal: calibrating")  # before the first step ends, and while one takes long
        for done in (1, 3):
            steps(done, 8)
            wait_for(f"fedcal: calibrating: {done} of 8")
    lines = ["fedcal: calibrating", *(f"fedcal: calibrating: {k} of 8" for k in (1, 3))]
    assert list(dict.fromkeys(said)) == ([] if quiet else lines)


def test_quiet_hides_the_progress_bar_on_a_terminal(monkeypatch, capsys):
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    simulate_command(data="imdb-binary", method="fednewton", quiet=True, json=False)
    assert "fednewton" not in stderr.getvalue()
    assert capsys.readouterr().out == ""


def test_an_impossible_folder_is_refused_before_the_data_are_read(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "compared").mkdir()
    (tmp_path / "compared" / "rows.jsonl").touch()
    monkeypatch.setattr(datasets, "load", lambda *_, **__: pytest.fail("the data were read"))
    for out, said in (("file", "is a file"), ("compared", r"holds rows\.jsonl of another command")):
        with pytest.raises(InputError, match=said):
            simulate_command(data="imdb-binary", out=tmp_path / out, quiet=True, json=False)


@pytest.fixture
def fitted(tmp_path: Path) -> Path:
    labels, logits = labels_and_logits()
    calibrators.BBQ().fit(logits, labels).save(tmp_path / "bbq.npz")
    return tmp_path / "bbq.npz"


def test_the_test_part_is_applied_after_the_fit_part(fitted, tmp_path):
    labels, logits = labels_and_logits(50)
    out = tmp_path / "p.npz"
    out.write_bytes(b"x" * 100_000)  # an earlier file is replaced whole
    half = {"test_logits": logits[30:], "test_labels": labels[30:]}
    for more, told in ({"labels": labels[:30]}, {"probs", "labels"}), ({}, {"probs"}):
        np.savez(tmp_path / "d.npz", logits=logits[:30], **half, **more)
        apply.apply_command(
            fitted, str(tmp_path / "d.npz"), out, overwrite=True, quiet=True, json=False
        )
        with np.load(out) as arrays:
            assert {*arrays} == told  # no labels where those of a part are missing
            assert np.array_equal(arrays["probs"], calibrators.load(fitted).predict_proba(logits))
            assert "labels" not in told or np.array_equal(arrays["labels"], labels)
    assert sorted(os.listdir(tmp_path)) == ["bbq.npz", "d.npz", "p.npz"]


BASELINE = "--method pooled-temperature"


@pytest.mark.parametrize(
    "words", [f"simulate {BASELINE}", "evaluate", f"compare {BASELINE} --seeds 1 --jobs 1"]
)
def test_a_report_may_come_later(words, tmp_path, capsys):
    asked = [*words.split(), "--data", "imdb-binary", "--quiet", "--out"]
    later = tmp_path / "later"
    assert _run([*asked, str(later), "--no-report"]) == 0
    names = {path.name for path in later.iterdir() if path.name[0] != "."}
    assert not any(name.endswith((".html", ".png", ".svg")) for name in names)
    capsys.readouterr()
    assert _run(["report", str(later), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(later / "report.html")}
    assert _run([*asked, str(tmp_path / "now")]) == 0
    now = {path.name for path in (tmp_path / "now").iterdir()}
    assert names < {path.name for path in later.iterdir()} == now
