"""What a release says: metrics of views and groups as JSON, and as parts of a page."""

import json
from typing import Any

import numpy as np
import pytest

from fedcal.core.pages import from_json, to_json
from fedcal.evaluation import Histogram
from fedcal.evaluation.findings import Key, findings
from fedcal.evaluation.page import parts

BUCKETS = 60
EDGES = np.arange(BUCKETS + 1) / BUCKETS


def histogram(rows: int, std: float = 0.0, power: float = 1.0, seed: int = 0) -> Histogram:
    """Rows whose share of outcome 1 is their score to a power, counted with noise."""
    rng = np.random.default_rng(seed)
    score = rng.random(rows)
    outcome = rng.random(rows) < score**power
    exact = [np.histogram(score[outcome == k], EDGES)[0] for k in (False, True)]
    counts = np.array(exact, np.float64) + std * rng.standard_normal((2, BUCKETS))
    return Histogram(EDGES, counts, std * np.eye(BUCKETS) if std else np.zeros((BUCKETS, 0)))


def of_groups(**sizes: int) -> dict[Key, Histogram]:
    found: dict[Key, Histogram] = {("model", "", ""): histogram(5000, 3.0)}
    for k, (name, rows) in enumerate(sizes.items()):
        found["model", name, ""] = histogram(rows, 3.0, seed=k)
    return found


def named(shown: list[Any], title: str) -> Any:
    (part,) = (part for part in shown if part.title == title)
    return part


def test_a_small_group_is_named_and_has_no_numbers():
    histograms = of_groups(large=2000, middling=300, small=15)
    found = findings(histograms, "positive")
    told = found.to_json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["groups"]["small"] == {"suppressed": True}
    assert set(told["groups"]["middling"]) == {"metrics"}  # 300 rows, a noise of std 33
    shown = parts(found, histograms)
    table = named(shown, "Groups")
    assert [row[0] for row in table.rows] == ["large", "middling", "small"]
    assert table.rows[-1][1:] == ("too few", "", "", "", "", "")
    tests = told["groups_calibration"]["metrics"]
    assert set(tests["p_values"]) == {"large", "middling"}
    assert table.columns[-1] == "calibrated: p-value"
    assert [row[-1].endswith(": not calibrated") for row in table.rows[:2]] == [
        name in tests["not_calibrated"] for name in ("large", "middling")
    ]
    errors = named(shown, "Groups: errors at threshold 0.5")
    assert errors.columns[:2] == ("group", "rows")
    assert [row[0] for row in errors.rows] == [row[0] for row in table.rows]
    for title in ("Groups", "Accuracy by group", "Calibration in the large by group"):
        assert "Too few rows for any result: small." in named(shown, title).note
    assert from_json(json.loads(json.dumps(to_json(shown)))) == shown


@pytest.mark.parametrize("std", [2.0, 40.0])
def test_two_accuracies_and_their_difference_are_of_the_same_counts(std):
    rng = np.random.default_rng(3)
    histograms = {(view, "", ""): histogram(4000, std, seed=9) for view in ("model", "other")}
    agreement = np.array([2700.0, 100.0, 300.0, 900.0]) + std * rng.standard_normal(4)
    told = findings(histograms, "positive", agreement=agreement, cell_std=std).to_json()
    one, other = (told[key]["accuracy"]["value"] for key in ("metrics", "metrics_other"))
    both, first, second, _ = agreement
    assert one == pytest.approx((both + first) / agreement.sum())
    assert other == pytest.approx((both + second) / agreement.sum())
    for name, change in told["metrics_difference"].items():
        pair = [told[key][name]["value"] for key in ("metrics", "metrics_other")]
        if change["value"] is not None:
            assert change["value"] == pytest.approx(pair[1] - pair[0], abs=1e-12), name
            assert change["low"] <= change["value"] <= change["high"], name
        assert (change["value"] is None) >= (None in pair), name
