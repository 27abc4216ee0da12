"""Advice of a quarter beside exact figures: what a hospital would do wrong if it were wrong."""

from dataclasses import replace

import numpy as np
import pytest
from quarters import facts_of, hospitals, release_of, release_of_rows
from scipy.special import expit
from scipy.stats import rankdata

from fedcal.evaluation.sites.site_tests import calibration
from fedcal.evaluation.sites.verdicts import _sites, verdicts_of
from fedcal.run.jobs import job_of
from fedcal.sites.quarter import quarter_summary
from fedcal.sites.quarter_page import quarter_page

STUDY, RNG = hospitals(), np.random.default_rng(0)
LEVEL = 0.0125


def rows_of(n, mean=-1.0, spread=1.5, offset=0.0, slope=1.0):
    """Log odds of the score, and outcomes with `offset` and `slope` upon them."""
    x = RNG.normal(mean, spread, n)
    return x, RNG.random(n) < expit(offset + slope * x)


def told_of(rows, study=STUDY):
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
    told = told_of(each(cedar=(x, False & y), alder=(few, few > 99)))
    cedar, alder = told["sites"]["cedar"], told["sites"]["alder"]
    assert (cedar["named"], alder["named"]) == (["one class"], [])
    for one in (cedar, alder):
        assert one["words"].startswith("has one class only, or nearly: ")
        assert one["words"].endswith(" have sepsis")
    assert "At alder all outcomes, or nearly, are of one class." in told["headline"]
    assert "noise hides" not in told["headline"].partition("alder")[2]
    (step,) = (step for step in told["next"] if "cedar" in step)
    assert step.startswith("At alder and cedar find out whether the outcome of all patients is")
    assert told["left_out"] == ["cedar"]


def test_a_site_that_ranks_the_wrong_way_round_stays_out_of_what_is_said_of_all():
    rows = each(dog=rows_of(2000, slope=-1.0))
    told, kept = told_of(rows), [pair for site, pair in rows.items() if site != "dog"]
    x, y = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    auc = told["all"]["auc"]
    assert told["left_out"] == ["dog"]
    assert auc["value"] == pytest.approx(exact_auc(x, y), abs=0.015)
    assert (
        f"AUC {auc['value']:.2f} ({auc['low']:.2f} to {auc['high']:.2f}) without dog"
        in (told["headline"])
    )
    assert told["metrics"]["all sites"]["rows"] == pytest.approx(len(x), abs=60)
    assert told["next_site"]["sites"] == 4
    assert told["next_site"]["metrics"]["roc_auc"]["low"] > 0.7
    assert told["next"][0].startswith("At dog find out whether labels")


@pytest.mark.parametrize("when", ["since then", "then, too"])
def test_a_site_with_swapped_labels_is_no_change_of_all_sites(when):
    turned = rows_of(3000, slope=-1.0)
    before = each(elm=turned) if when == "then, too" else each()
    rows = [release_of_rows(STUDY, own, RNG) for own in (before, each(elm=turned))]
    found = verdicts_of(rows[1], {"2026Q3": rows[0]}, level=LEVEL)["changes"]["2026Q3"]
    assert found[""]["words"] == "no change since 2026Q3 found"
    assert abs(found[""]["slope_change"]["value"]) < 0.3
    assert bool(found["elm"]["named"]) == (when == "since then")


@pytest.mark.parametrize(("spread", "word"), [(0.2, "is not shown to"), (0.6, "does not")])
def test_a_model_that_does_not_discriminate_is_not_said_to_have_no_fault(spread, word):
    """The truth: AUC .5 everywhere; the smaller spread gives scores of 20 to 34 % in two ranges."""
    rows = {}
    for site, n in STUDY.sites.items():
        x = RNG.normal(-1.0, spread, n)
        rows[site] = x, RNG.random(n) < expit(x).mean()
    told = told_of(rows)
    x, y = (np.concatenate(parts) for parts in zip(*rows.values(), strict=True))
    auc = told["all"]["auc"]
    assert exact_auc(x, y) == pytest.approx(0.5, abs=0.02)
    assert auc["low"] < exact_auc(x, y) < auc["high"] < 0.66
    assert told["headline"].startswith(
        f"The model {word} discriminate: AUC {auc['value']:.2f} ({auc['low']:.2f} to "
    )
    assert ("Calibration: no site of 5 shows a fault" in told["headline"]) == (spread == 0.2)
    assert "same patients" in told["next"][0]
    assert not any("Keep the model" in step for step in told["next"])


def test_what_buckets_hide_is_not_blamed_on_noise():
    """The truth: 5,000 patients, calibrated, all with a score between 13 and 19 %."""
    study = hospitals(sites="alder=5000,birch=600,cedar=1000")
    x = np.clip(RNG.normal(-1.7, 0.08, 5000), -1.9, -1.5)
    rows = {"alder": (x, RNG.random(5000) < expit(x)), "birch": rows_of(600)}
    told = told_of(rows | {"cedar": rows_of(1000)}, study)
    one = told["sites"]["alder"]
    assert one["hides"] == "range"
    assert "% of scores lie between 0.12 and 0.2, which hides any fault below" in one["words"]
    assert "At alder too many scores lie in one range to tell" in told["headline"]
    assert any("At alder name values inside the range" in step for step in told["next"])
    mixed = np.array([0.13, 0.15, 0.17, 0.19])  # and with these as points
    x = np.log(mixed / (1 - mixed))[RNG.integers(0, 4, 5000)]
    finer = replace(study, model=replace(study.model, points=tuple(mixed)))
    rows["alder"] = x, RNG.random(5000) < expit(x)
    told = told_of(rows | {"cedar": rows_of(1000)}, finer)
    assert told["sites"]["alder"]["words"] == "no fault above 3 points found"


def test_a_ratio_of_17_to_10_is_never_no_fault():
    """The truth: 12 % of 1,000 patients with the outcome, and a mean score of 7 %."""
    x = RNG.normal(-2.85, 0.7, 200_000)
    offset = 0.64
    ratio = expit(x + offset).mean() / expit(x).mean()
    assert ratio == pytest.approx(1.7, abs=0.05)
    assert expit(x + offset).mean() == pytest.approx(0.12, abs=0.005)
    inside, words = [], []
    for _ in range(40):
        release = release_of_rows(
            STUDY, {s: rows_of(1000, -2.85, 0.7, offset) for s in STUDY.sites}, RNG
        )
        for one in verdicts_of(release, {}, level=LEVEL)["sites"].values():
            seen = one["observed_expected"]
            inside.append(seen["low"] < ratio < seen["high"])
            words.append(one["words"])
    assert not any(text.startswith("no fault") for text in words)
    assert 0.91 < np.mean(inside) < 0.99


def test_a_study_s_auc_is_as_sharp_as_that_of_evaluate():
    """The same patients at epsilon = 1; .80 exactly."""
    rows = each()
    x, y = (np.concatenate(parts) for parts in zip(*rows.values(), strict=True))
    ours = told_of(rows)["all"]["auc"]
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


@pytest.mark.parametrize(("before", "after"), [((0.0, 0.5), (0.0, 2.36)), ((0, 1), (1.5, 0.88))])
def test_the_change_of_a_slope_is_the_difference_of_both(before, after):
    """Once read as +.64 for +1.86, and as +2.71 for -.12."""
    study, truth = hospitals(sites="alder=3000,birch=3000,cedar=3000"), after[1] - before[1]
    values, inside = [], []
    for _ in range(30):
        releases = [
            release_of_rows(study, {s: rows_of(3000, -1, 1.5, *one) for s in study.sites}, RNG)
            for one in (before, after)
        ]
        found = verdicts_of(releases[1], {"q": releases[0]}, level=LEVEL)["changes"]["q"]
        for one in (change["slope_change"] for change in found.values()):
            values.append(one["value"])
            inside.append(one["low"] <= truth <= one["high"])
    assert np.mean(values) == pytest.approx(truth, abs=0.05)
    assert 0.88 < np.mean(inside) <= 1.0


def test_a_calibrated_points_score_is_named_as_often_as_the_level_says():
    """Six values, 1,200 patients: named in 4 of 30 releases at a level of 1.25 % without points."""
    values, share = (
        np.array([0.02, 0.05, 0.11, 0.24, 0.42, 0.68]),
        [0.25, 0.25, 0.2, 0.15, 0.1, 0.05],
    )
    named = {}
    for points in ((), tuple(values)):
        study = hospitals(
            sites=",".join(f"s{k}=1200" for k in range(1000)), model={"points": points}
        )
        rows = {}
        for site in study.sites:
            p = RNG.choice(values, 1200, p=share)
            rows[site] = np.log(p / (1 - p)), RNG.random(1200) < p
        _, sites = _sites(release_of_rows(study, rows, RNG), "the release")
        named[points] = (calibration(sites)[0] <= LEVEL).mean()
    assert named[tuple(values)] < LEVEL + 2.6 * (LEVEL / 1000) ** 0.5
    assert named[()] > named[tuple(values)]


def test_a_hospital_s_page_has_no_words_of_a_simulation():
    of = hospitals()
    told = quarter_summary(of, release_of(of, 2), facts_of(of), {})
    shown = " ".join(
        text.lower()
        for section in quarter_page(told).sections
        for part in getattr(section, "parts", [section])
        for text in getattr(part, "lines", ())
    )
    assert "each patient" in shown
    assert not any(word in shown for word in ("client", " subject ", "subjects", "site 0"))
