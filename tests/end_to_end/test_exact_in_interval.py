"""Without privacy each interval holds the exact value; with it the log loss is unbiased.

Exact values are of the rows themselves: log loss with a floor of 1e-12, log odds up to that floor.
"""

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn import metrics as sk
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import cross_val_predict
from sklearn.tree import DecisionTreeClassifier

from fedcal import datasets, evaluate, evaluation
from fedcal.core.numerics import Floats, Integers
from fedcal.core.scores import rows_by_owner
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.metrics import bin_index
from fedcal.privacy import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.evaluate import FedEvaluate

FLOOR = 1e-12
STORED = Path(__file__).parent / "stored" / "release.npz"
Scored = tuple[Floats, Integers]
"""Probabilities (n, c) and labels."""


def two(p: Floats, labels: Any) -> Scored:
    return np.stack([1 - p, p], axis=1), np.asarray(labels, np.int64)


def sure(times: float, rows: int = 4000, mean: float = 0.0, seed: int = 3) -> Scored:
    """Calibrated log odds of the standard deviation 1, made `times` as large."""
    rng = np.random.default_rng(seed)
    z = rng.normal(mean, 1, rows)
    labels = rng.random(rows) < expit(z)
    return np.stack([expit(-times * z), expit(times * z)], axis=1), labels.astype(np.int64)


def classes(times: float, c: int, rows: int = 3000) -> Scored:
    rng = np.random.default_rng(c)
    z = rng.normal(0, 1.5, (rows, c))
    odds = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    labels = (rng.random((rows, 1)) > np.cumsum(odds, axis=1)).sum(axis=1)
    z = times * (z - z.max(axis=1, keepdims=True))
    return np.exp(z) / np.exp(z).sum(axis=1, keepdims=True), labels


def learnt(load: Any, model: Any, folds: int = 3) -> Scored:
    x, y = load(return_X_y=True)
    return cross_val_predict(model, x, y, cv=folds, method="predict_proba"), y


def narrow(scored: Scored, kind: Any) -> Scored:
    with np.errstate(over="ignore"):
        p = scored[0][:, 1].astype(kind).astype(np.float64)
    return two(p, scored[1])


def hard(scored: Scored, near: float = 0.0) -> Scored:
    return two(np.where(scored[0][:, 1] > 0.5, 1 - near, near), scored[1])


def shipped(name: str) -> Scored:
    data = datasets.load(name)
    return data.probs[:20_000], data.labels[:20_000]


SETS: dict[str, Callable[[], Scored]] = {
    **{f"{k:g} times too sure": lambda k=k: sure(k) for k in (0.5, 1, 10, 50)},
    "10 times, shifted": lambda: sure(10, 2000, 1.5, 8),
    **{f"{k:g} times, 4 classes": lambda k=k: classes(k, 4) for k in (1, 30)},
    "12 times, 20 classes": lambda: classes(12, 20),
    "rare": lambda: sure(1.5, 20_000, -8, 5),
    "float32": lambda: narrow(sure(10), np.float32),
    "6 decimals": lambda: two(np.round(sure(8)[0][:, 1], 6), sure(8)[1]),
    "0 and 1": lambda: hard(sure(1)),
    "1e-12": lambda: hard(sure(1), 1e-12),
    "at the node": lambda: hard(sure(1), 0.5**7 / 240),
    "tree, cancer": lambda: learnt(load_breast_cancer, DecisionTreeClassifier(random_state=0)),
    "adult-income": lambda: shipped("adult-income"),
}


@cache
def rows_of(name: str) -> Scored:
    return SETS[name]()


def log_odds(scored: Scored) -> tuple[Floats, Floats]:
    """Log odds of the score, and the outcome; each class has the floor at least."""
    p, y = np.maximum(scored[0], FLOOR), scored[1]
    if p.shape[1] == 2:
        one, rest, outcome = p[:, 1], p[:, 0], y
    else:
        top = p.argmax(axis=1)
        one, outcome = p.max(axis=1), top == y
        others = p.copy()
        others[np.arange(len(p)), top] = 0
        rest = others.sum(axis=1)
    x = np.log(np.clip(one, FLOOR, None)) - np.log(np.clip(rest, FLOOR, None))
    return np.clip(x, np.log(FLOOR), -np.log(FLOOR)), outcome.astype(np.float64)


def exact(scored: Scored) -> dict[str, float]:
    x, y = log_odds(scored)
    s = scored[0][:, 1] if scored[0].shape[1] == 2 else scored[0].max(axis=1)
    own = np.where(y == 1, -x, x)
    bins = np.bincount(bin_index(s, 15), y - s, 15)
    value = {
        "gap": float((s - y).mean()),
        "accuracy": float(((s > 0.5) == y).mean()),  # a tie is class 0
    }
    of_two = scored[0].shape[1] == 2
    value["classwise_ece" if of_two else "ece"] = float(np.abs(bins).sum() / len(y))
    start = "" if of_two else "confidence_"
    value[f"{start}log_loss"] = float(np.logaddexp(0, own).mean())
    value[f"{start}brier"] = float(((s - y) ** 2).mean())
    if of_two:
        value |= {"prevalence": float(y.mean()), "roc_auc": float(sk.roc_auc_score(y, s))}
        value["recall"] = float((s > 0.5)[y == 1].mean())
    else:
        value["accuracy"] = float(y.mean())
        value["confidence_auc"] = float(sk.roc_auc_score(y, s))
    lever = np.stack([np.ones_like(x), x / np.abs(x).max()])

    def loss(at: Floats) -> tuple[float, Floats]:
        z = at @ lever
        return float((np.logaddexp(0, z) - y * z).mean()), lever @ (expit(z) - y) / len(y)

    fit = minimize(loss, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-9})
    intercept, slope = float(fit.x[0]), float(fit.x[1] / np.abs(x).max())
    if max(abs(intercept), abs(slope)) < 20:  # else the scores separate the outcomes
        value |= {"calibration_slope": slope, "calibration_intercept": intercept}
    return value


def found(scored: Scored) -> dict[str, Any]:
    given = {"probs": scored[0], "labels": scored[1]}
    evaluated: dict[str, Any] = evaluate(given, clients=7, partition="iid").evaluated
    return evaluated["metrics"]


@pytest.mark.parametrize("name", SETS)
def test_without_privacy_the_exact_value_lies_in_each_interval(name):
    """Nothing but buckets of the score makes the value of these rows uncertain."""
    scored, off = rows_of(name), []
    estimates, want = found(scored), exact(scored)
    for metric, value in want.items():
        e = estimates[metric]
        if e["value"] is not None and abs(value - e["value"]) > e["binning"] + 1e-7:
            off.append((metric, value, e["low"], e["high"]))
    assert not off
    (loss,) = (metric for metric in want if metric.endswith("log_loss"))
    assert abs(estimates[loss]["value"] - want[loss]) < 0.02 + 0.01 * want[loss]


def private(scored: Scored, unit: str, seed: int, epsilon: float = 1.0) -> ScoreRelease:
    p, labels = scored
    owner = np.random.default_rng(0).integers(0, 20, len(p))
    rows = rows_by_owner(
        np.log(np.maximum(p, FLOOR)), labels, owner, 20, "probs", np.arange(len(p)) // 2
    )
    method = FedEvaluate(Federation(20, p.shape[1], epsilon=epsilon, unit=unit, seed=seed))
    method.secure_aggregation = "none"
    run_inline(method, rows)
    return method.result()


def log_loss(release: ScoreRelease) -> evaluation.Estimate:
    h, score = release.histograms["model", "", ""], release.question.score
    name = "log_loss" if score == "positive" else "confidence_log_loss"
    return evaluation.evaluate(h, score, only=(name,))[name]


@pytest.mark.parametrize(
    ("name", "unit", "runs"),
    [
        ("10 times too sure", "example", 60),
        ("6 decimals", "example", 60),
        ("30 times, 4 classes", "subject", 20),
    ],
)
def test_under_noise_the_log_loss_is_unbiased_and_its_interval_right(name, unit, runs):
    """Over draws of the noise and of the nodes."""
    scored = rows_of(name)
    without = log_loss(private(scored, unit, 0, math.inf)).value
    found = [log_loss(private(scored, unit, seed)) for seed in range(runs)]
    errors = np.array([e.value - without for e in found])
    noise, both = (
        np.sqrt(np.mean([e.noise**2 + k * e.sampling**2 for e in found])) for k in (0, 1)
    )
    assert abs(errors.mean()) < 3.5 * errors.std() / np.sqrt(runs)
    assert 0.7 * noise <= np.sqrt((errors**2).mean()) <= 1.3 * both
    held = [e.low + e.binning <= without <= e.high - e.binning for e in found]
    assert np.mean(held) >= 0.88
    rows = len(scored[1]) if unit == "example" else len(scored[1]) / 2
    assert 40 < np.mean([e.noise for e in found]) * rows < 90
