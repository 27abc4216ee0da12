"""What the commands show: percentages for people, progress on a terminal, files of rows."""

import io
import json
import sys
import time

import pytest

from fedcal.experiments.cli.main import _run
from fedcal.experiments.report.terminal import progress

pytestmark = pytest.mark.usefixtures("quick_figures")


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


@pytest.mark.parametrize("quiet", [True, False])
def test_without_a_terminal_long_work_says_a_line_every_few_seconds(monkeypatch, capsys, quiet):
    monkeypatch.setattr("fedcal.experiments.report.terminal._QUIET_SECONDS", 0.05)
    monkeypatch.setattr("fedcal.experiments.report.terminal._SECONDS_BETWEEN", 0.05)
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
