"""Patients or rows: what an evaluation of unit "subject" counts follows from one option alone."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from fedcal import evaluate
from fedcal.core.checks import InputError

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
def truths() -> tuple[float, float]:
    given = arrays()
    right = (given["probs"][:, 1] >= 0.5) == given["labels"]
    each = [right[given["subject"] == s].mean() for s in range(SUBJECTS)]
    return float(np.mean(each)), float(right.mean())


def told(**options: Any) -> dict[str, Any]:
    return evaluate(arrays(), partition="natural", unit="subject", **options).judged


@pytest.mark.parametrize(
    "options",
    [
        {},
        {**CLEAR, "score": "confidence", "by": "group", "set": {**FEWER, "encoding": "flat"}},
        {**CLEAR, "by": "site", "set": {**FEWER, "encoding": "tree", "height": 2}},
        {**CLEAR, "trust": "distributed"},
        {**CLEAR, "mechanism": "gaussian", "set": {"encoding": "prefix"}},
        {**CLEAR, "set": {"edges": "equi-depth", "bins": 16}},
    ],
    ids=str,
)
def test_each_patient_counts_once_whatever_else_is_asked(options):
    patients, rows = truths()
    assert patients - rows > 0.1
    found = told(**options)
    assert found["metrics"]["accuracy"]["value"] == pytest.approx(patients, abs=0.004)
    assert found["counted"]["of"] == "subjects"
    assert found["counted"]["value"] == pytest.approx(SUBJECTS, abs=3)
    assert found["rows"] == {"value": None, "noise": None}
    assert found["weighting"].startswith("each subject counts once")
    assert "clip" not in " ".join(found["intervals_exclude"])


def test_rows_count_where_they_are_asked_for_at_their_price():
    found = told(rows_per_subject=9)
    assert found["metrics"]["accuracy"]["value"] == pytest.approx(truths()[1], abs=0.004)
    assert found["rows"]["value"] == pytest.approx(len(arrays()["labels"]), abs=20)
    assert found["weighting"] == "each row counts once, all rows of one subject as at most 9"
    twice = np.minimum(2, np.bincount(arrays()["subject"])).sum()
    assert told(rows_per_subject=2, **CLEAR)["rows"]["value"] == pytest.approx(twice, abs=5)
    run: dict[str, Any] = {"partition": "natural", "unit": "subject", "epsilon": 2.0}
    plain, rows = (evaluate(arrays(), rows_per_subject=r, **run).privacy for r in (None, 9))
    assert rows["noise_std"] == pytest.approx(9 * plain["noise_std"])
    assert "the noise is 9 times that of counting each subject once" in " ".join(rows["more"])
    assert "rows_per_subject" not in " ".join(plain["more"])
    with pytest.raises(InputError, match="rows_per_subject has no effect here: unit 'user'"):
        evaluate(arrays(), rows_per_subject=2)
    with pytest.raises(InputError, match="rows_per_subject"):
        evaluate(arrays(), rows_per_subject=0, **run)
