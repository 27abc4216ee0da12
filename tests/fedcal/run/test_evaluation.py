"""Evaluation of sites and of patients: harm behind a pooled gain, and what is counted once."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from fedcal import evaluate
from fedcal.cli.main import exit_code_of
from fedcal.core.checks import InputError

pytestmark = pytest.mark.usefixtures("quick_figures")

SITES = ("Aachen", "Basel", "Celle", "Davos", "Essen")
PRIVATE: dict[str, Any] = {"epsilon": 1.0, "unit": "example", "partition": "natural"}


def hospitals(slope: dict[str, float], intercept: dict[str, float], rows: int) -> dict[str, Any]:
    """Rows of two classes whose log odds are intercept + slope * those of the model."""
    rng = np.random.default_rng(3)
    site = np.repeat(SITES, rows)
    z = rng.normal(0, 2, len(site))
    odds = [intercept.get(s, 0.0) + slope.get(s, 1.0) * x for s, x in zip(site, z, strict=True)]
    labels = (rng.random(len(site)) < expit(odds)).astype(np.int64)
    return {"probs": np.stack([1 - expit(z), expit(z)], axis=1), "labels": labels, "client": site}


def too_low_but_for_one() -> dict[str, Any]:
    return hospitals({}, {site: -0.3 if site == "Davos" else 0.9 for site in SITES}, 2000)


def test_a_slope_of_a_third_is_found_behind_a_mean_gap_of_none(tmp_path):
    given = hospitals({"Celle": 0.35}, {}, 2000)
    record = evaluate(given, by="site", out=tmp_path, **PRIVATE).to_json()
    celle = record["groups"]["Celle"]["metrics"]
    assert celle["gap"]["low"] < 0 < celle["gap"]["high"]
    slope = celle["calibration_slope"]
    assert 0.1 < slope["low"] < 0.35 < slope["high"] < 0.6
    assert celle["classwise_ece"]["low"] > 0.08
    assert record["groups_calibration"]["metrics"]["not_calibrated"] == ["Celle"]
    assert record["tests"]["metrics"]["groups_cox"]["p_value"] < 1e-4
    page = (tmp_path / "report.html").read_text("utf-8")
    line = "1 of 5 groups is not calibrated: Celle (scores too extreme, slope"
    assert f"{line} {slope['value']:.2f}" in page
    assert all(f"Reliability, {site}</h2>" in page for site in SITES)


def test_a_calibrator_of_a_release_is_evaluated_at_each_site(tmp_path):
    given = too_low_but_for_one()
    evaluate(given, by="site", out=tmp_path / "run", report=False, **PRIVATE)
    made, release = tmp_path / "platt.npz", tmp_path / "run" / "release.npz"
    again = ["evaluate", "--release", str(release), "--calibrate", "platt", "--out", str(made)]
    assert exit_code_of([*again, "--quiet"]) == 0
    run = evaluate(given, by="site", calibrator=made, partition="natural").to_json()
    davos = run["groups"]["Davos"]
    assert davos["metrics_after"]["gap"]["value"] > davos["metrics"]["gap"]["high"] > 0.02
    assert abs(run["metrics_after"]["gap"]["value"]) < 0.02
    assert abs(run["metrics"]["gap"]["value"]) > 0.09


SUBJECTS, ROWS_OF = 300, (1, 2, 9)
CLEAR: dict[str, Any] = {"epsilon": 1e4, "delta": 1e-5, "seed": 1}
"""Noise of a hundredth of a subject."""
FEWER = {"bins": 16, "edges": "equal-width"}


@cache
def arrays() -> dict[str, Any]:
    """The model is right about patients of one row, and guesses of those who come often."""
    rng = np.random.default_rng(4)
    often = rng.integers(0, len(ROWS_OF), SUBJECTS)
    subject = np.repeat(np.arange(SUBJECTS), np.array(ROWS_OF)[often])
    labels = rng.integers(0, 2, len(subject))
    says = np.where(rng.random(len(subject)) < 0.9 - 0.2 * often[subject], labels, 1 - labels)
    positive = np.where(
        says == 1, 0.5 + 0.5 * rng.random(len(subject)), 0.5 * rng.random(len(says))
    )
    return {
        "probs": np.stack([1 - positive, positive], axis=1),
        "labels": labels,
        "subject": subject,
        "client": subject % 5,
        "group": np.where(subject % 2, "a", "b"),
    }


@cache
def accuracies() -> tuple[float, float]:
    """Accuracy with equal weight for each patient, and for each row."""
    given = arrays()
    right = (given["probs"][:, 1] >= 0.5) == given["labels"]
    each = [right[given["subject"] == s].mean() for s in range(SUBJECTS)]
    return float(np.mean(each)), float(right.mean())


def evaluated(**options: Any) -> dict[str, Any]:
    return evaluate(arrays(), partition="natural", unit="subject", **options).evaluated


@pytest.mark.parametrize(
    "options",
    [
        {},
        {**CLEAR, "score": "confidence", "by": "group", "set": {**FEWER, "encoding": "flat"}},
        {**CLEAR, "by": "site", "set": {**FEWER, "encoding": "tree", "height": 2}},
        {**CLEAR, "mechanism": "gaussian", "trust": "distributed", "set": {"encoding": "prefix"}},
        {**CLEAR, "set": {"edges": "equi-depth", "bins": 16}},
    ],
    ids=str,
)
def test_each_patient_counts_once_whatever_else_is_asked(options):
    patients, rows = accuracies()
    assert patients - rows > 0.1
    found = evaluated(**options)
    assert found["metrics"]["accuracy"]["value"] == pytest.approx(patients, abs=0.004)
    assert found["counted"]["of"] == "subjects"
    assert found["counted"]["value"] == pytest.approx(SUBJECTS, abs=3)
    assert found["rows"] == {"value": None, "noise": None}
    assert found["weighting"].startswith("each subject counts once")


def test_rows_count_where_they_are_asked_for_at_their_price():
    found = evaluated(rows_per_subject=9)
    assert found["metrics"]["accuracy"]["value"] == pytest.approx(accuracies()[1], abs=0.004)
    assert found["rows"]["value"] == pytest.approx(len(arrays()["labels"]), abs=20)
    assert found["weighting"] == "each row counts once, all rows of one subject as at most 9"
    twice = np.minimum(2, np.bincount(arrays()["subject"])).sum()
    assert evaluated(rows_per_subject=2, **CLEAR)["rows"]["value"] == pytest.approx(twice, abs=5)
    run: dict[str, Any] = {"partition": "natural", "unit": "subject", "epsilon": 2.0}
    plain, rows = (evaluate(arrays(), rows_per_subject=r, **run).privacy for r in (None, 9))
    assert rows["noise_std"] == pytest.approx(9 * plain["noise_std"])
    assert not any("dealt its rows" in line for line in plain["more"])
    with pytest.raises(InputError, match="rows_per_subject has no effect here: unit 'user'"):
        evaluate(arrays(), rows_per_subject=2)
