"""Without noise a histogram has scikit-learn's metrics of the rows: exactly or within a bound.

Calibrators of a histogram: right without noise, sensible under it.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk
from sklearn.linear_model import LogisticRegression

from fedcal import datasets, evaluation
from fedcal.calibrators.score_map import calibrator_from, logistic, probability
from fedcal.core.numerics import Floats, Integers
from fedcal.metrics import bin_index, classwise_ece
from fedcal.metrics.score_table import scored
from fedcal.metrics.standard import ece

BUCKETS = 240
SETS = [shipped.name for shipped in datasets.catalogue()]
BINARY = ["imdb-binary", "game-forecasts", "heart-disease"]


def rows(name: str) -> tuple[Floats, Integers]:
    data = datasets.load(name)
    return data.probs, data.labels


def histogram(scores: Floats, outcomes: Integers, buckets: int = BUCKETS) -> evaluation.Histogram:
    at = outcomes.astype(int) * buckets + bin_index(scores, buckets)
    counts = np.bincount(at, minlength=2 * buckets).reshape(2, buckets)
    return evaluation.Histogram.exact(np.arange(buckets + 1) / buckets, counts.astype(float))


def check_probabilities(
    found: dict[str, evaluation.Estimate], scores: Floats, outcomes: Integers, of: str = ""
) -> None:
    cut = np.clip(scores, 1e-4, 1 - 1e-4)
    gaps = np.abs(np.bincount(bin_index(scores, 15), outcomes - scores, 15)).sum() / len(scores)
    expected = {
        f"{of}brier": sk.brier_score_loss(outcomes, scores),
        f"{of}log_loss_cut": sk.log_loss(outcomes, np.stack([1 - cut, cut], axis=1)),
        "gap": float(np.mean(scores - outcomes)),
        "ece" if of else "classwise_ece": gaps,
    }
    for name, value in expected.items():
        assert abs(found[name].value - value) <= found[name].binning + 1e-12, name
        assert found[name].binning < (0.06 if name.endswith("log_loss_cut") else 0.02), name


@pytest.mark.parametrize("name", BINARY)
def test_a_binary_set_at_a_threshold_and_over_all(name):
    probs, y = rows(name)
    scores = probs[:, 1]
    for threshold in (0.5, 0.25, 1 / 15):
        found = evaluation.evaluate(histogram(scores, y), "positive", threshold=threshold)
        output = scores >= threshold
        exact = {
            "accuracy": sk.accuracy_score(y, output),
            "precision": sk.precision_score(y, output),
            "recall": sk.recall_score(y, output),
            "specificity": sk.recall_score(y, output, pos_label=0),
            "prevalence": y.mean(),
        }
        assert {k: found[k].value for k in exact} == pytest.approx(exact, abs=1e-12)
    assert abs(found["roc_auc"].value - sk.roc_auc_score(y, scores)) <= found["roc_auc"].binning
    check_probabilities(found, scores, y)
    logit = np.log(np.clip(scores, 1e-4, 1 - 1e-4) / np.clip(1 - scores, 1e-4, 1 - 1e-4))
    fit = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(logit[:, None], y)
    slope, intercept = found["calibration_slope_cut"], found["calibration_intercept_cut"]
    assert abs(slope.value - fit.coef_[0, 0]) <= slope.binning
    assert abs(intercept.value - fit.intercept_[0]) <= intercept.binning


@pytest.mark.parametrize("name", [name for name in SETS if name not in BINARY])
def test_a_set_of_classes_by_confidence_and_by_class(name):
    probs, y = rows(name)
    classes, top = probs.shape[1], probs.argmax(axis=1)
    confidence, right = probs.max(axis=1), (top == y).astype(int)
    found = evaluation.evaluate(histogram(confidence, right), "confidence")
    assert found["accuracy"].value == pytest.approx(right.mean(), abs=1e-12)
    auc = found["confidence_auc"]
    assert abs(auc.value - sk.roc_auc_score(right, confidence)) <= auc.binning
    check_probabilities(found, confidence, right, "confidence_")
    assert abs(found["ece"].value - ece(probs, y)) <= found["ece"].binning

    found = evaluation.evaluate_classes([histogram(probs[:, j], y == j) for j in range(classes)])
    error = found["classwise_ece"]
    assert abs(error.value - classwise_ece(probs, y)) <= error.binning


def test_curves_are_those_of_the_rows():
    probs, y = rows("game-forecasts")
    scores = bin_index(probs[:, 1], 60) / 60  # a score has no other edge in its bucket
    h = histogram(scores, y, 60)
    x, height, thresholds = sk.roc_curve(y, scores, drop_intermediate=False)
    curve = evaluation.roc_curve(h)
    at = np.rint(thresholds[1:] * 60).astype(int)
    np.testing.assert_allclose(curve.x[at], x[1:], atol=1e-12)
    np.testing.assert_allclose(curve.y[at], height[1:], atol=1e-12)
    assert (curve.low[1:-1] <= curve.y[1:-1]).all()
    assert (curve.y <= curve.high).all()
    precision, recall, thresholds = sk.precision_recall_curve(y, scores)
    curve, at = evaluation.pr_curve(h), np.rint(thresholds * 60).astype(int)
    both = np.stack([curve.x, curve.y])[:, at]
    np.testing.assert_allclose(both, [recall[:-1], precision[:-1]], atol=1e-12)
    diagram = evaluation.reliability(h, 15)
    index = bin_index(scores, 15)
    used = np.bincount(index, minlength=15) > 0
    share = np.bincount(index, y, 15)[used] / np.bincount(index, minlength=15)[used]
    np.testing.assert_allclose(diagram.y[used], share, atol=1e-12)


@pytest.mark.parametrize("buckets", [3, 8, 60])
def test_the_bound_of_the_auc_holds_for_any_scores(buckets):
    """Hypotheses of the proof: ties, and orders within a bucket at their best and worst."""
    rng = np.random.default_rng(0)
    for trial in range(25):
        n = int(rng.integers(3, 60))
        y = (rng.random(n) < rng.uniform(0.1, 0.9)).astype(int)
        y[:2] = 0, 1
        bucket = rng.integers(0, buckets, n)
        within = [np.zeros(n), 1 - y, y, rng.random(n), rng.integers(0, 3, n) / 3][trial % 5]
        scores = (bucket + 0.9 * within) / buckets
        h = histogram(scores, y, buckets)
        metric = evaluation.METRICS["roc_auc"]()
        off = abs(metric.value(h) - sk.roc_auc_score(y, scores))
        assert off <= metric.binning(h) + 1e-12, trial


# -- calibrators ----------------------------------------------------------------------------------


def fit_half(name: str) -> tuple[datasets.Dataset, str, evaluation.Histogram]:
    """The rows of a set for fitting, their score, and its counts."""
    d = datasets.load(name).split(0)
    score = "positive" if d.classes == 2 else "confidence"
    scores, outcomes = scored(d.probs, d.labels, score)
    return d, score, histogram(scores.ravel(), outcomes.ravel())


def test_platt_and_beta_are_maximum_likelihood():
    h = fit_half("imdb-binary")[2]
    x = np.stack([np.log(h.middles), -np.log1p(-h.middles)], axis=1)
    y, weight = np.repeat([0, 1], BUCKETS), h.counts.ravel()

    def fitted(x: np.ndarray) -> np.ndarray:
        model = LogisticRegression(C=1e6, tol=1e-10, max_iter=1000)
        model.fit(np.tile(x, (2, 1)), y, sample_weight=weight)
        return np.append(model.coef_[0], model.intercept_)

    slope, c = fitted(x.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(logistic(h, "platt"), [slope, slope, c], atol=1e-3)
    np.testing.assert_allclose(logistic(h, "beta"), fitted(x), atol=2e-3)
    for curve in ("platt", "beta"):  # a slope that would be negative is none
        a, b, c = logistic(evaluation.Histogram.exact(h.edges, h.counts[::-1]), curve)
        assert a == b == 0
        assert probability(np.array([a, b, c]), h.middles)[0] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "how"),
    [("imdb-binary", "platt"), ("game-forecasts", "beta"), ("resnet110-cifar10", "platt")],
)
def test_fit_counts_pooled_rows_and_makes_the_same(name, how):
    d, score, h = fit_half(name)
    made = calibrator_from(h, score, how, d.classes, d.input)
    fitted = type(made)(how=how).fit(d.scores, d.labels, input=d.input)
    for key, array in made.arrays().items():
        np.testing.assert_array_equal(fitted.arrays()[key], array)


@settings(max_examples=60, deadline=None)
@given(
    buckets=st.integers(1, 40),
    rows=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
    std=st.sampled_from([0.0, 1.0, 100.0]),
    how=st.sampled_from(["platt", "beta"]),
    seed=st.integers(0, 10**6),
)
def test_any_counts_give_a_calibrator(buckets, rows, std, how, seed):
    rng = np.random.default_rng(seed)
    edges = np.linspace(0, 1, buckets + 1)
    counts = np.floor(rng.uniform(0, 1, (2, buckets)) * rows)
    noisy = counts + std * rng.normal(size=(2, buckets))
    h = evaluation.Histogram(edges, noisy, std * np.eye(buckets))
    made = calibrator_from(h, "positive", how, 2, "logits")
    probs = made.predict_proba(np.stack([np.zeros(50), np.linspace(-40, 40, 50)], axis=1))
    assert ((probs >= 0) & (probs <= 1)).all()
    assert (np.diff(probs[:, 1]) >= 0).all()
