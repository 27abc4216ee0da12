"""What a quarter says of a release, and its page."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from quarters import facts_of, hospitals, release_of

from fedcal.core.checks import InputError
from fedcal.metrics.histogram import from_each_edge
from fedcal.sites.quarter import present, quarter_summary
from fedcal.sites.quarter_page import parts, quarter_page

STUDY = hospitals()
FAULTS = {"shift": {"cedar": 1.2}, "slope": {"elm": 0.35}}


@pytest.fixture(scope="module")
def told():
    return quarter_summary(STUDY, release_of(STUDY, 2, **FAULTS), facts_of(STUDY), {})


def test_faults_are_named_and_what_to_do_is_said(told):
    assert {s: one["named"] for s, one in told["sites"].items() if one["named"]} == {
        "cedar": ["gap"],
        "elm": ["gap", "slope"],
    }
    assert told["headline"].startswith("2 of 5 sites show a fault of calibration: cedar ")
    first, *rest = told["next"]
    assert "`fedcal site recalibrate --release 2026Q4/release.npz rows.csv --site cedar`" in first
    assert "wait for the next quarter, or look at the site's own exact page" in rest[-1]
    assert f"{told['enough']} patients there" in rest[-1]
    assert 300 < told["enough"] <= 600  # birch, with 600, sees it
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_each_number_stands_under_its_name():
    of = hospitals(groups=("women", "men"))
    release = release_of(of, 2, **FAULTS)
    told = quarter_summary(of, release, facts_of(of), {})
    tables = {t.title: t for t in (quarter_page(told).sections[0].parts[0], *parts(told))}

    def cell(title, column, *row):
        table = tables[title]
        (line,) = (line for line in table.rows if line[: len(row)] == row)
        return float(re.match(r"-?[\d.,]+", line[table.columns.index(column)])[0].replace(",", ""))

    h = release.histograms["model", "dog", ""]
    negative, positive = h.counts.sum(axis=1)
    below, above = from_each_edge(h.counts)[:, int(np.argmin(np.abs(h.edges - 0.2)))]
    shares = {
        "sensitivity, %": above / positive,
        "specificity, %": 1 - below / negative,
        "precision, %": above / (above + below),
        "flagged, %": (above + below) / h.rows,
    }
    for name, share in shares.items():
        assert cell("Threshold 0.2 of the probability of sepsis", name, "dog") == pytest.approx(
            100 * share, abs=0.6
        )
    assert cell("", "patients", "dog") == pytest.approx(h.rows, abs=0.6)
    assert cell("", "prevalence, %", "dog") == pytest.approx(100 * positive / h.rows, abs=0.6)
    one = release.within["cedar", "men"]
    gap = (one.middles * one.counts.sum(axis=0)).sum() / one.rows - one.counts[1].sum() / one.rows
    assert cell("Groups", "gap, points", "cedar", "men") == pytest.approx(100 * gap, abs=1.5)
    assert cell("Groups", "patients", "cedar", "men") == pytest.approx(one.rows, abs=0.6)
    assert cell("Calibration", "slope", "elm") == pytest.approx(0.35, abs=0.1)
    assert cell("Calibration", "gap, points", "cedar") == pytest.approx(-17, abs=3)


def test_a_site_of_too_few_patients_has_no_metrics():
    of = hospitals(sites="alder=4,birch=600,cedar=1000,dog=2000,elm=3000")
    told = quarter_summary(of, release_of(of, 2), facts_of(of), {})
    assert told["metrics"]["alder"]["of"] == told["thresholds"]["0.2"]["alder"]["of"] == {}
    (row,) = (r for r in quarter_page(told).sections[0].parts[0].rows if r[0] == "alder")
    assert row[2:6] == ("0 ± 9", "too few", "unknown", "unknown")
    (table,) = (t for t in parts(told) if t.title == "Calibration")
    assert table.rows[[r[0] for r in table.rows].index("alder")][-1] == "too few"


def test_counts_of_an_absent_site_are_noise_and_say_nothing():
    took = ("alder", "cedar", "dog", "elm")
    release = release_of(STUDY, 3, took)
    facts = facts_of(STUDY, took_part=took, absent=("birch",))
    cells = release.counts.copy().reshape(5, -1)
    cells[1] += 1000
    told, moved = (
        quarter_summary(STUDY, r, facts, {})
        for r in (release, replace(release, counts=cells.ravel()))
    )
    assert told == moved
    assert "birch" not in told["sites"]
    assert "Call birch, absent: this report has nothing of their rows." in told["next"]
    with pytest.raises(InputError, match="does not count zoo apart"):
        present(release, ["zoo"])


@pytest.mark.parametrize(
    ("other", "facts", "why"),
    [
        ({}, {}, ""),
        ({"model": {"version": "3.1"}}, {}, "model.version was 3.1, now it is 3.2"),
        ({"protect": "person"}, {}, "protect was person, now it is patient"),
        ({}, {"rehearsal": True}, "one of the two is a rehearsal"),
    ],
)
def test_an_earlier_quarter_is_compared_or_refused_with_the_reason(other, facts, why):
    then, release = hospitals(**other), release_of(STUDY, 4)
    before = release_of(then, 5)
    earlier = before, quarter_summary(then, before, facts_of(then, **facts), {})
    told = quarter_summary(STUDY, release, facts_of(STUDY), {"2026Q3": earlier})
    assert re.match(why, told["since"]["2026Q3"]["why"])
    assert len(told["changes"].get("2026Q3", ())) == (0 if why else 6)
    assert told["tests"] == (10 if why else 16)


def test_a_fault_that_is_gone_is_said_to_be_gone():
    before, release = release_of(STUDY, 5, **FAULTS), release_of(STUDY, 4)
    earlier = before, quarter_summary(STUDY, before, facts_of(STUDY), {})
    told = quarter_summary(STUDY, release, facts_of(STUDY), {"2026Q3": earlier})
    assert "the fault at cedar and elm is no longer found" in told["headline"]
    assert "All sites together: predicts " in told["headline"]
    assert re.search("predicts .* higher", told["changes"]["2026Q3"][""]["words"])
    assert not any("Find out what changed" in step for step in told["next"])
