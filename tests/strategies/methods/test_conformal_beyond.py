"""Prediction sets beyond one share for all rows: by part."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refused

from fedcal import simulate
from fedcal.conformal import PredictionSets, load
from fedcal.datasets import from_arrays

PRIVATE: dict[str, Any] = {"epsilon": 2.0, "unit": "example"}
RUNS: dict[str, dict[str, Any]] = {
    "exact": {},
    "central": PRIVATE,
    "distributed": {**PRIVATE, "trust": "distributed"},
    "local": {**PRIVATE, "trust": "local"},
}
SLACK = 0.02
"""What one run may be below its promise: about 2.5 standard errors of the test rows used here."""


def run(data: Any, options: dict[str, Any], **settings: Any) -> Any:
    return simulate(data, method="conformal", seed=3, set=settings, **options)


@pytest.mark.parametrize("name", RUNS)
def test_each_label_and_each_group_by_itself(name):
    by_label = run("adult-income", RUNS[name], by="class").judged["coverage_by"]["class"]
    assert all(part["coverage"] >= 0.9 - SLACK for part in by_label.values())
    told = run("adult-income", RUNS[name], groups="group").judged
    assert list(told["sets"]["thresholds"])[-1] == "all other groups"
    assert told["sets"]["thresholds"]["all other groups"] == 1.0  # there is no such row
    assert "all other groups" in told["sets"]["all_labels_of"]
    for part in told["coverage_by"]["group"].values():
        assert part["high"] >= 0.9 - SLACK
    if name != "exact":  # 24 rows: too few under noise
        assert {"Female, Amer-Indian-Eskimo", "Female, Other"} & {*told["sets"]["all_labels_of"]}


def test_one_release_serves_every_alpha(tmp_path):
    sets = run("adult-income", RUNS["distributed"], by="class").artifact
    assert isinstance(sets, PredictionSets)
    sets.write(tmp_path, "sets")
    read = load(tmp_path / "sets.npz")
    assert_array_equal(read.at(0.1).thresholds, sets.thresholds)
    assert read.at(0.1).guarantee == sets.guarantee
    strict, loose = read.at(0.02), read.at(0.3)
    assert (strict.thresholds >= sets.thresholds).all()
    assert (loose.thresholds <= sets.thresholds).all()
    assert strict.privacy == read.privacy == sets.privacy
    anew = run("adult-income", RUNS["distributed"], alpha=0.3, by="class").artifact
    assert_array_equal(anew.thresholds, loose.thresholds)  # the same release, bit for bit
    refused(r"alpha must be in \(0, 1\)", read.at, 1.0)


def test_a_rare_label_is_in_every_set_and_no_exact_count_is_told():
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.full(12, 2), rng.integers(0, 2, 988)])
    logits = rng.normal(size=(1000, 3)) + 2 * np.eye(3)[labels]
    data = from_arrays(logits=logits, labels=labels, test_logits=logits, test_labels=labels)
    made = run(data, {"clients": 20}, by="class", alpha=0.05)
    exact, page = made.judged["sets"], made.parts
    told = "its rows, 12, are too few for a threshold, which needs 19"
    assert exact["all_labels_why"] == {"class 2": told}
    assert f"class 2 is in every set: {told}" in str(page)
    assert len(page) > len(made.artifact.page())  # what the test rows tell, below it
    private = run(data, {"clients": 20, **PRIVATE}, by="class", alpha=0.05).judged["sets"]
    assert "by a noisy count, are too few" in private["all_labels_why"]["class 2"]
    assert "12," not in private["all_labels_why"]["class 2"]


def test_no_number_of_rows_is_kept_where_none_is_told():
    """Nor counts, of which another alpha's thresholds could be made."""
    made = run("adult-income", PRIVATE)  # its nominal number of rows is that of the rows
    refused("released thresholds for one alpha", made.artifact.at, 0.2)
    assert made.sets.basis is None
    assert "8141" not in str(made.sets.arrays()["sets"])
