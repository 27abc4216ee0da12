"""A release is asked for by a person who knows that sites may have no new rows."""

import io
from datetime import UTC, datetime

import pytest
from hospitals import Hospitals, write_rows
from quarters import quarter
from refusals import refused

from fedcal.secure_aggregation.keys import read_key
from fedcal.sites.release import RECORD
from fedcal.sites.run import question_before, rehearse
from fedcal.sites.sealed import write_signature
from fedcal.sites.verify import verify

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


@pytest.mark.parametrize("method", ["fednewton", "conformal"])
def test_a_rehearsal_of_any_question_is_verified(tmp_path, method):
    there = Hospitals(tmp_path)
    there.kits(question={"method": method})
    rehearse(there.file, "try", str(write_rows(tmp_path / "rows.csv")))
    said = verify(tmp_path / "try")
    assert "A rehearsal" in said[0]
    assert "Not checked: that the numbers and pages of the result follow" in said[-1]
    record = tmp_path / "try" / "result.json"
    text = record.read_text("utf-8")
    record.write_text(text.replace('"unit": "subject"', '"unit": "example"'), "utf-8")
    refused("unit of the release must be 'subject'", verify, tmp_path / "try")


def test_a_quarter_is_verified_as_one_whatever_else_lies_there(tmp_path, monkeypatch):
    """The coordinator adds a record whose numbers nobody makes again, and signs."""
    monkeypatch.chdir(tmp_path)
    there = Hospitals(tmp_path)
    there.joined()
    of = there.seal().study
    key = read_key(tmp_path / "sepsis-coordinator" / "coordinator.pem")
    quarter(tmp_path / "q", of, key, signer=key)
    summary = (tmp_path / "q" / "study.json").read_text("utf-8")
    (tmp_path / "q" / RECORD).write_text(summary, "utf-8")
    write_signature(tmp_path / "q", key)
    refused("has release.json: a release by this question has study.json", verify, tmp_path / "q")
