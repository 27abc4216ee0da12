"""A metric of one name is one number in every command and in Python, on the same rows."""

import json
import math

import numpy as np
import pytest
import sklearn.metrics as sk
from numpy.typing import NDArray

from fedcal import evaluation, simulate
from fedcal.cli.main import exit_code_of
from fedcal.core.numerics import FLOOR
from fedcal.metrics import below_floor, names, summary
from fedcal.run.estimator import FederatedCalibrator

BUCKETS = 240


def rows_of(classes: int, rows: int = 600) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(classes)
    z = 2 * rng.normal(size=(rows, classes))
    return z, np.array([rng.choice(classes, p=np.exp(row) / np.exp(row).sum()) for row in z])


def softmax(z: NDArray[np.float64]) -> NDArray[np.float64]:
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("classes", [2, 4])
def test_commands_results_and_estimators_agree(classes, tmp_path, capsys):
    z, y = rows_of(classes)
    data = tmp_path / "rows.npz"
    np.savez(data, logits=z[:300], labels=y[:300], test_logits=z[300:], test_labels=y[300:])
    run = simulate(str(data), method="fedtemp", epsilon=math.inf, clients=5)
    expected = summary(softmax(z[300:]), y[300:])
    run.save(tmp_path / "run", report=False)
    fitted = run.artifact
    after = summary(fitted.predict_proba(z[300:]), y[300:])
    capsys.readouterr()
    calibrator, out = tmp_path / "run/calibrator.npz", tmp_path / "o.npz"
    apply = f"apply --json --calibrator {calibrator} --data {data} --out {out}"
    assert exit_code_of(apply.split()) == 0
    applied = json.loads(capsys.readouterr().out)
    stored = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    for told in (run.judged, applied, stored):
        assert told["before"] == pytest.approx(expected, rel=0, abs=1e-12)
        assert told["after"] == pytest.approx(after, rel=0, abs=1e-12)
        assert told["rows_below_floor"] == {"before": 0, "after": 0}
    estimator = FederatedCalibrator("fedtemp", epsilon=math.inf, clients=5).fit(z[:300], y[:300])
    p = estimator.predict_proba(z[300:])
    assert summary(p, y[300:])["nll"] == pytest.approx(sk.log_loss(y[300:], p), rel=0, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 5])
def test_a_released_metric_of_that_name_is_the_same(classes):
    """Of scores at the middle of their buckets, where a histogram loses nothing."""
    rng = np.random.default_rng(1)
    confidence = (rng.integers(BUCKETS // 2, BUCKETS, 500) + 0.5) / BUCKETS
    p = np.repeat((1 - confidence)[:, None] / (classes - 1), classes, axis=1)
    top = rng.integers(0, classes, 500)
    p[np.arange(500), top] = confidence
    y = np.where(rng.random(500) < confidence, top, (top + 1) % classes)
    scores = {"confidence": (confidence, top == y)} | (
        {"positive": (p[:, 1], y == 1)} if classes == 2 else {}
    )
    expected = summary(p, y)
    for score, (of, outcome) in scores.items():
        at = outcome.astype(int) * BUCKETS + (of * BUCKETS).astype(int)
        counts = np.bincount(at, minlength=2 * BUCKETS).reshape(2, BUCKETS).astype(float)
        h = evaluation.Histogram.exact(np.arange(BUCKETS + 1) / BUCKETS, counts)
        released = {m: one.value for m, one in evaluation.evaluate(h, score).items()}
        same = expected.keys() & released.keys()
        ece = {"positive": "classwise_ece", "confidence": "ece"}[score]
        assert same == {"accuracy", ece} | ({"brier"} if score == "positive" else set())
        assert {m: released[m] for m in same} == pytest.approx(
            {m: expected[m] for m in same}, rel=0, abs=1e-12
        )
        start = "" if score == "positive" else "confidence_"
        loss, brier = sk.log_loss(outcome, of), sk.brier_score_loss(outcome, of)
        assert released[f"{start}log_loss_cut"] == pytest.approx(loss, rel=0, abs=1e-12)
        assert released[f"{start}brier"] == pytest.approx(brier, rel=0, abs=1e-12)
        if classes == 2:  # both are the label's then
            assert (loss, brier) == pytest.approx((expected["nll"], expected["brier"]), abs=1e-12)


def test_no_two_metrics_have_one_heading():
    for score in ("positive", "confidence"):
        headings = [names.heading(metric, score) for metric in names.METRICS]
        assert len(set(headings)) == len(headings)


def test_rows_below_the_floor_are_counted_and_told():
    p = np.array([[1.0, 0.0], [1 - 1e-13, 1e-13], [0.5, 0.5], [0.0, 1.0]])
    assert below_floor(p, [1, 1, 1, 1]) == 2
    assert summary(p, [1, 1, 1, 1])["nll"] == pytest.approx((np.log(2) - 2 * np.log(FLOOR)) / 4)
    assert names.floored({"before": 0, "after": 0}) == ""
    assert names.floored({"before": 2, "after": 0}).endswith("rows below it: 2 before, 0 after.")
