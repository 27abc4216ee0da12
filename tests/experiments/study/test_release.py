"""A release is asked for by a person who knows that sites may have no new rows."""

import io
from datetime import UTC, datetime

import pytest
from hospitals import Hospitals
from quarters import quarter

from fedcal.experiments.study.run import question_before
from fedcal.secure_aggregation.keys import read_key

pytestmark = pytest.mark.usefixtures("quick_figures")


def test_a_second_release_in_one_month_is_asked_about(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    there = Hospitals(tmp_path)
    there.joined()
    of = there.seal().study
    key = read_key(tmp_path / "sepsis-coordinator" / "coordinator.pem")
    today = datetime.now(UTC)
    quarter(tmp_path / "rehearsal", of, key, date=f"{today:%Y-%m}-01", rehearsal=True)
    quarter(tmp_path / "old", of, key, date="2020-01-01")
    for file in (there.file, there.sealed):
        assert question_before(file, "second") == ""
    quarter(tmp_path / "first", of, key, date=f"{today:%Y-%m}-01")
    asked = "first was released this month, and second costs epsilon 1: have the sites new rows?"
    for file in (there.file, there.sealed):
        assert question_before(file, "second") == asked
    answers = io.StringIO("no\nyes\n")
    answers.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", answers)
    words = ("study", "run", there.file, "second")
    assert "second was not asked for: a person must type yes" in call(*words, code=2)
    assert "was not asked for" not in call(*words, code=2)  # no server runs here
    (tmp_path / "sepsis-server" / "runs" / "second" / "server").mkdir(parents=True)
    assert question_before(there.file, "second") == ""
