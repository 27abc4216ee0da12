"""What a quarter says of a release, and its page."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from quarters import facts_of, hospitals, release_of, release_of_rows
from scipy.special import expit
from scipy.stats import rankdata

from fedcal.core.checks import InputError
from fedcal.evaluation.sites.site_tests import calibration
from fedcal.evaluation.sites.verdicts import _sites, verdicts_of
from fedcal.run.jobs import job_of
from fedcal.sites.quarter import present, quarter_summary
from fedcal.sites.quarter_page import quarter_page

STUDY = hospitals()
FAULTS = {"shift": {"cedar": 1.2}, "slope": {"elm": 0.35}}


@pytest.fixture(scope="module")
def summary():
    return quarter_summary(STUDY, release_of(STUDY, 2, **FAULTS), facts_of(STUDY), {})


def test_faults_are_named_and_what_to_do_is_reported(summary):
    assert {s: one["named"] for s, one in summary["sites"].items() if one["named"]} == {
        "cedar": ["gap"],
        "elm": ["gap", "slope"],
    }
    first, *rest = summary["next"]
    assert "`fedcal site recalibrate --release 2026Q4/release.npz rows.csv --site cedar`" in first
    assert f"{summary['enough']} patients there" in rest[-1]
    assert 300 < summary["enough"] <= 600  # birch, with 600, sees it
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_a_run_s_sentences_are_in_the_study_s_words_but_for_names_and_parts_of_words(summary):
    sentence = "Subjects of the clients: a column `subject`, subjective."
    for protect, plural, word in (("patient", "patients", "Patients"), ("record", "", "Subjects")):
        of = summary | {"terms": summary["terms"] | {"protect": protect}, "plural": plural}
        of |= {"statement": [sentence], "more": [sentence]}
        privacy = quarter_page(of).sections[-1].parts
        for part in privacy[:2]:
            assert part.lines[-1] == f"{word} of the sites: a column `subject`, subjective."


def test_a_site_of_too_few_patients_has_no_metrics():
    of = hospitals(sites="alder=4,birch=600,cedar=1000,dog=2000,elm=3000")
    summary = quarter_summary(of, release_of(of, 2), facts_of(of), {})
    assert summary["metrics"]["alder"]["of"] == summary["thresholds"]["0.2"]["alder"]["of"] == {}
    (row,) = (r for r in quarter_page(summary).sections[0].parts[0].rows if r[0] == "alder")
    assert row[2:6] == ("0 ± 9", "too few", "unknown", "unknown")


def test_counts_of_an_absent_site_are_noise_and_say_nothing():
    took = ("alder", "cedar", "dog", "elm")
    release = release_of(STUDY, 3, took)
    facts = facts_of(STUDY, took_part=took, absent=("birch",))
    cells = release.counts.copy().reshape(5, -1)
    cells[1] += 1000
    summary, moved = (
        quarter_summary(STUDY, r, facts, {})
        for r in (release, replace(release, counts=cells.ravel()))
    )
    assert summary == moved
    assert "birch" not in summary["sites"]
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
    summary = quarter_summary(STUDY, release, facts_of(STUDY), {"2026Q3": earlier})
    assert re.match(why, summary["since"]["2026Q3"]["why"])
    assert len(summary["changes"].get("2026Q3", ())) == (0 if why else 6)
    assert summary["tests"] == (10 if why else 16)


def test_an_earlier_version_s_finer_buckets_are_not_compared():
    before, release = release_of(STUDY, 5), release_of(STUDY, 4)
    content = quarter_summary(STUDY, before, facts_of(STUDY), {})
    other = release_of(hospitals(model={"thresholds": [0.3217]}), 5)
    summary = quarter_summary(STUDY, release, facts_of(STUDY), {"2026Q3": (other, content)})
    assert summary["since"]["2026Q3"]["why"] == "its scores were counted in other buckets"


def test_a_fault_that_is_gone_is_reported_to_be_gone():
    before, release = release_of(STUDY, 5, **FAULTS), release_of(STUDY, 4)
    earlier = before, quarter_summary(STUDY, before, facts_of(STUDY), {})
    summary = quarter_summary(STUDY, release, facts_of(STUDY), {"2026Q3": earlier})
    assert "the fault at cedar and elm is no longer found" in summary["headline"]
    assert "All sites together: predicts " in summary["headline"]


# -- what a hospital would do wrong if it were wrong ------------------------------------------

RNG = np.random.default_rng(0)
LEVEL = 0.0125


def rows_of(n, mean=-1.0, spread=1.5, offset=0.0, slope=1.0):
    """Log odds of the score, and outcomes with `offset` and `slope` upon them."""
    x = RNG.normal(mean, spread, n)
    return x, RNG.random(n) < expit(offset + slope * x)


def summary_of_rows(rows, study=STUDY):
    return quarter_summary(study, release_of_rows(study, rows, RNG), facts_of(study), {})


def exact_auc(x, y):
    hits = y.sum()
    return (rankdata(x)[y].sum() - hits * (hits + 1) / 2) / (hits * (len(y) - hits))


def each(**own):
    return {site: own.get(site) or rows_of(n) for site, n in STUDY.sites.items()}


def test_one_class_is_a_verdict_of_its_own():
    """The truth: nobody at cedar has sepsis, where 32 % are expected to; at alder 2 % are."""
    x, y = rows_of(1000)
    few = RNG.normal(-4.0, 0.8, 300)
    summary = summary_of_rows(each(cedar=(x, False & y), alder=(few, few > 99)))
    cedar, alder = summary["sites"]["cedar"], summary["sites"]["alder"]
    assert (cedar["named"], alder["named"]) == (["one class"], [])
    assert "At alder all outcomes, or nearly, are of one class." in summary["headline"]
    assert any(step.startswith("At alder and cedar find out whether") for step in summary["next"])
    assert summary["left_out"] == ["cedar"]


def test_a_site_that_ranks_inversely_stays_out_of_sentences_about_all():
    rows = each(dog=rows_of(2000, slope=-1.0))
    summary, kept = summary_of_rows(rows), [pair for site, pair in rows.items() if site != "dog"]
    x, y = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    auc = summary["all"]["auc"]
    assert summary["left_out"] == ["dog"]
    assert auc["value"] == pytest.approx(exact_auc(x, y), abs=0.015)
    assert summary["metrics"]["all sites"]["rows"] == pytest.approx(len(x), abs=60)
    assert summary["next_site"]["sites"] == 4
    assert summary["next"][0].startswith("At dog find out whether labels")


@pytest.mark.parametrize("when", ["since then", "then, too"])
def test_a_site_with_swapped_labels_is_no_change_of_all_sites(when):
    turned = rows_of(3000, slope=-1.0)
    before = each(elm=turned) if when == "then, too" else each()
    rows = [release_of_rows(STUDY, own, RNG) for own in (before, each(elm=turned))]
    found = verdicts_of(rows[1], {"2026Q3": rows[0]}, level=LEVEL)["changes"]["2026Q3"]
    assert found[""]["words"] == "no change since 2026Q3 found"
    assert bool(found["elm"]["named"]) == (when == "since then")


@pytest.mark.parametrize(("spread", "word"), [(0.2, "is not shown to"), (0.6, "does not")])
def test_a_model_that_does_not_discriminate_is_not_reported_to_have_no_fault(spread, word):
    """The truth: AUC .5 everywhere; the smaller spread gives scores of 20 to 34 % in two ranges."""
    rows = {}
    for site, n in STUDY.sites.items():
        x = RNG.normal(-1.0, spread, n)
        rows[site] = x, RNG.random(n) < expit(x).mean()
    summary = summary_of_rows(rows)
    x, y = (np.concatenate(parts) for parts in zip(*rows.values(), strict=True))
    assert summary["all"]["auc"]["low"] < exact_auc(x, y) < summary["all"]["auc"]["high"] < 0.66
    assert summary["headline"].startswith(f"The model {word} discriminate: AUC ")
    assert not any("Keep the model" in step for step in summary["next"])


def test_what_buckets_hide_is_not_blamed_on_noise():
    """The truth: 5,000 patients, calibrated, all with a score between 13 and 19 %."""
    study = hospitals(sites="alder=5000,birch=600,cedar=1000")
    x = np.clip(RNG.normal(-1.7, 0.08, 5000), -1.9, -1.5)
    rows = {"alder": (x, RNG.random(5000) < expit(x)), "birch": rows_of(600)}
    summary = summary_of_rows(rows | {"cedar": rows_of(1000)}, study)
    one = summary["sites"]["alder"]
    assert one["hides"] == "range"
    assert "% of scores lie between 0.12 and 0.2, which hides any fault below" in one["words"]


def test_a_study_s_auc_is_as_sharp_as_that_of_evaluate():
    """The same patients at epsilon = 1; .80 exactly."""
    rows = each()
    x, y = (np.concatenate(parts) for parts in zip(*rows.values(), strict=True))
    ours = summary_of_rows(rows)["all"]["auc"]
    job = job_of(replace(STUDY.config(), set={}), None)
    empty = job.strategy().result()
    asked, std = empty.question, float(job.plan.std_of_sum(5)[0])
    at = np.searchsorted(asked.bucket_edges[1:-1], expit(x), "right")
    exact = np.bincount(y * asked.buckets + at, minlength=2 * asked.buckets)
    noise = asked.decode(RNG.laplace(0, std / 2**0.5, 2 * len(asked.matrix)))
    release = replace(empty, counts=exact + noise, std=std, known=True)
    theirs = release.found.metrics["model"]["roc_auc"]
    assert ours["low"] < exact_auc(x, y) < ours["high"]
    assert ours["high"] - ours["low"] < 1.05 * (theirs.high - theirs.low)


def test_a_ratio_of_17_to_10_is_never_no_fault():
    """The truth: 12 % of 1,000 patients with the outcome, and a mean score of 7 %."""
    for _ in range(3):
        rows = {site: rows_of(1000, -2.85, 0.7, 0.64) for site in STUDY.sites}
        found = verdicts_of(release_of_rows(STUDY, rows, RNG), {}, level=LEVEL)["sites"]
        assert not any(one["words"].startswith("no fault") for one in found.values())


@pytest.mark.parametrize(("before", "after"), [((0.0, 0.5), (0.0, 2.36)), ((0, 1), (1.5, 0.88))])
def test_the_change_of_a_slope_is_the_difference_of_both(before, after):
    """Once read as +.64 for +1.86, and as +2.71 for -.12."""
    study, truth = hospitals(sites="alder=3000,birch=3000,cedar=3000"), after[1] - before[1]
    releases = [
        release_of_rows(study, {s: rows_of(3000, -1, 1.5, *one) for s in study.sites}, RNG)
        for one in (before, after)
    ]
    found = verdicts_of(releases[1], {"q": releases[0]}, level=LEVEL)["changes"]["q"]
    values = [change["slope_change"]["value"] for change in found.values()]
    assert np.mean(values) == pytest.approx(truth, abs=0.35)


def test_a_calibrated_points_score_is_named_as_often_as_the_level_says():
    """Six values, 1,200 patients; the truth is 1.5 % at a level of 1.25 %."""
    rng = np.random.default_rng(0)
    values, share = [0.02, 0.05, 0.11, 0.24, 0.42, 0.68], [0.25, 0.25, 0.2, 0.15, 0.1, 0.05]
    named = {}
    for points in ((), tuple(values)):
        names = ",".join(f"s{k}=1200" for k in range(1000))
        study, rows = hospitals(sites=names, model={"points": points}), {}
        for site in study.sites:
            p = rng.choice(values, 1200, p=share)
            rows[site] = np.log(p / (1 - p)), rng.random(1200) < p
        _, sites = _sites(release_of_rows(study, rows, rng), "the release")
        named[points] = (calibration(sites)[0] <= LEVEL).mean()
    assert named[tuple(values)] < LEVEL + 2.6 * (LEVEL / 1000) ** 0.5
    assert named[()] > named[tuple(values)]
