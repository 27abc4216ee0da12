"""What a quarter says of a release, and its page."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from fedcal.core.errors import InputError
from fedcal.evaluation.histogram import from_each_edge
from fedcal.experiments.study.next_steps import in_words
from fedcal.experiments.study.quarter import present, told_of
from fedcal.experiments.study.quarter_page import write_quarter_page
from tests.support.html_page import page_of
from tests.support.quarters import facts_of, hospitals, quarter, release_of

STUDY = hospitals()
FAULTS = {"shift": {"cedar": 1.2}, "slope": {"elm": 0.35}}


@pytest.fixture(scope="module")
def told():
    return told_of(STUDY, release_of(STUDY, 2, **FAULTS), facts_of(STUDY), {})


def test_faults_are_named_and_what_to_do_is_said(told):
    assert {s: one["named"] for s, one in told["sites"].items() if one["named"]} == {
        "cedar": ["gap"],
        "elm": ["gap", "slope"],
    }
    assert told["headline"].startswith("2 of 5 sites show a fault: cedar predicts ")
    first, *rest = told["next"]
    assert "`fedcal site recalibrate --release 2026Q4/release.npz rows.csv --site cedar`" in first
    assert "alder wait for the next quarter" in rest[0] and str(told["enough"]) in rest[0]
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_without_a_fault_the_model_stays_until_the_budget_is_spent(told):
    clean = told | {"sites": {"dog": told["sites"]["dog"]}, "left": 0.5}
    assert in_words(clean)["next"] == [
        "Keep the model as it is, and ask again next quarter.",
        "This year's budget is spent: the next release is next year's.",
    ]


def test_shares_at_a_threshold_stand_under_their_names(told):
    release = release_of(STUDY, 2, **FAULTS)
    h = release.histograms["model", "dog", ""]
    below, above = from_each_edge(h.counts)[:, int(np.argmin(np.abs(h.edges - 0.2)))]
    found = {name: e["value"] for name, e in told["thresholds"]["0.2"]["dog"].items()}
    negative, positive = h.counts.sum(axis=1)
    assert list(found) == ["recall", "specificity", "precision", "flagged"]
    assert [*found.values()] == pytest.approx(
        [above / positive, 1 - below / negative, above / (above + below), (above + below) / h.rows]
    )


def test_counts_of_an_absent_site_are_noise_and_say_nothing():
    took = ("alder", "cedar", "dog", "elm")
    release = release_of(STUDY, 3, took)
    facts = facts_of(STUDY, took_part=took, absent=("birch",))
    cells = release.counts.copy().reshape(5, -1)
    cells[1] += 1000
    told, moved = (
        told_of(STUDY, r, facts, {}) for r in (release, replace(release, counts=cells.ravel()))
    )
    assert told == moved and "birch" not in told["sites"]
    assert "Call birch: nothing here is of their rows." in told["next"]
    with pytest.raises(InputError, match="does not count zoo apart"):
        present(release, ["zoo"])


@pytest.mark.parametrize(
    ("other", "facts", "why"),
    [
        ({}, {}, ""),
        ({"model": {"version": "3.1"}}, {}, "the model's version was 3.1, now it is 3.2"),
        ({"protect": "person"}, {}, "the study had other terms \\(protect\\)"),
        ({}, {"rehearsal": True}, "one of the two is a rehearsal"),
    ],
)
def test_an_earlier_quarter_is_compared_or_refused_with_the_reason(other, facts, why):
    then, release = hospitals(**other), release_of(STUDY, 4)
    before = release_of(then, 5)
    earlier = before, told_of(then, before, facts_of(then, **facts), {})
    told = told_of(STUDY, release, facts_of(STUDY), {"2026Q3": earlier})
    assert re.match(why, told["since"]["2026Q3"]["why"])
    assert len(told["changes"].get("2026Q3", ())) == (0 if why else 6)
    assert told["tests"] == (5 if why else 11)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"took_part": ("alder", "cedar", "dog", "elm")}, "are not the study's"),
        ({"took_part": ("alder", "dog", "elm"), "absent": ("birch", "cedar")}, "fewer than 4"),
        ({"spent": 2.0}, "is not 4"),
        ({"date": "today"}, "must be a day"),
    ],
)
def test_facts_that_are_not_of_the_study_are_refused(wrong, said):
    with pytest.raises(InputError, match=said):
        told_of(STUDY, release_of(STUDY), facts_of(STUDY, **wrong), {})


def test_the_page_says_what_it_is_of(tmp_path):
    of = hospitals(classes=("a", "b", "c"), groups=("women", "men"), protect="customer")
    folder = tmp_path / "rehearsal"
    _, told = quarter(folder, of, None, rehearsal=True, one_machine=True, ledger={}, faults=FAULTS)
    text = page_of(folder / "report.html").text
    assert text.index("REHEARSAL") < text.index("1 of 5 sites shows a fault: elm overconfident by")
    assert "whoever runs the server chose the committee" in text and "women" in text
    assert "Nothing: this is a rehearsal." in text and "to be published" in text
    assert str(tmp_path) not in "".join(p.read_text("utf-8", "replace") for p in folder.iterdir())
    for items, last in (("TRIPOD+AI", "27c"), ("TRIPOD-Cluster", "19")):
        own = text[text.index(f"Items of {items}") :].partition(f" {last} ")[0]
        assert {int(n) for n in re.findall(r" (\d+)[a-g]? [a-z]", own)} >= set(
            range(1, int(last[:2]))
        )
    many = told["sites"] | {f"z{k}": told["sites"]["dog"] for k in range(9)}
    write_quarter_page(tmp_path, told | {"sites": many})
    assert "And 4 more: table Calibration." in page_of(tmp_path / "report.html").text
