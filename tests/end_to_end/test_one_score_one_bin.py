"""A given score has one bin, one value and one prediction, whatever stands beside it."""

import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from fedcal import evaluate, simulate
from fedcal.calibrators import TopLabelBinning
from fedcal.cli import main as cli
from fedcal.conformal import Conformity, PredictionSets
from fedcal.datasets import from_arrays

STEPS = (20, 128)
"""A score is k / step."""

FORMS = ("float64", "float32", "decimals")
"""Of the probabilities; decimals: the scores besides the largest are rounded, so sums differ."""


def drawn(step, classes=4, rows=1200):
    """Numerators, (n, c), each row sums to `step`, and labels that follow them."""
    rng = np.random.default_rng([step, classes])
    numerators = rng.multinomial(step, rng.dirichlet(np.ones(classes), rows))
    labels = (numerators.cumsum(axis=1) > rng.integers(0, step, (rows, 1))).argmax(axis=1)
    return numerators, labels


def given(numerators, step, form):
    """The same probabilities as a file would hold them."""
    probs = numerators / step
    if form == "decimals":
        top = numerators == numerators.max(axis=1, keepdims=True)
        return np.where(
            top,
            probs,
            np.clip(np.round(probs + 8e-3 / probs.shape[1], 4), 0, probs.max(1)[:, None]),
        )
    return probs.astype(form)


def learnt(method, probs, labels, **options):
    data = from_arrays(probs=probs, labels=labels, test_probs=probs, test_labels=labels)
    return simulate(data, method=method, clients=7, partition="iid", **options)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("step", STEPS)
def test_rows_of_one_confidence_have_one_calibrated_confidence(step, form):
    numerators, labels = drawn(step)
    probs = given(numerators, step, form)
    top, hit = numerators.max(axis=1), numerators.argmax(axis=1) == labels
    rate = {k: hit[k == top].mean() for k in np.unique(top)}
    federated = learnt("dp-histogram", probs, labels).calibrator
    pooled = TopLabelBinning().fit(probs, labels, input="probs")
    for calibrator in (federated, pooled):
        after = calibrator.predict_proba(probs).max(axis=1)
        for k in rate:
            assert np.ptp(after[top == k]) < 1e-12, (calibrator, k)
    np.testing.assert_allclose(federated.values, pooled.values, rtol=1e-12)
    cell = np.minimum(top * 15 // step, 14)
    right, rows = np.bincount(cell, hit, 15), np.bincount(cell, minlength=15)
    assert pooled.values[rows > 0] == pytest.approx((right / np.maximum(rows, 1))[rows > 0])


def test_a_release_does_not_depend_on_the_order_of_the_other_classes():
    """Counts by confidence, without privacy, of the same rows with other classes permuted."""
    rng = np.random.default_rng(3)
    numerators, labels = drawn(20, classes=6)
    moved, places = numerators.copy(), labels.copy()
    for row in range(len(moved)):
        order = rng.permutation(6)
        moved[row], places[row] = numerators[row][order], np.argsort(order)[labels[row]]
    found = []
    for x, y in ((numerators, labels), (moved, places)):
        for form in ("float64", "float32"):
            data = from_arrays(probs=given(x, 20, form), labels=y)
            result = evaluate(data, clients=5, partition="iid")
            found.append(result.artifact.histograms["model", "", ""].counts.sum(axis=0))
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


def fedcal(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        cli.main([*map(str, arguments), "--json"])
    assert not left.value.code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("form", FORMS[:2])
def test_each_command_counts_a_tie_alike(form, tmp_path, capsys):
    """Of two classes with 1/2 each the first is predicted, as by numpy and scikit-learn."""
    numerators, labels = drawn(20, classes=2)
    probs = given(numerators, 20, form)
    expected = accuracy_score(labels, probs.argmax(axis=1))
    assert expected != np.mean((numerators[:, 1] >= 10) == labels)
    file, out = tmp_path / "scores.npz", tmp_path / "out"
    np.savez(file, probs=probs, labels=labels, test_probs=probs, test_labels=labels)
    run = ("--data", file, "--clients", 5)
    simulated = fedcal(capsys, "simulate", *run, "--method", "dp-histogram", "--out", out)
    assert simulated["before"]["accuracy"] == pytest.approx(expected)
    assert simulated["after"]["accuracy"] == pytest.approx(expected)
    both = fedcal(capsys, "evaluate", *run, "--set", f"calibrator={out / 'calibrator.npz'}")
    assert both["metrics_after"]["accuracy"]["value"] == pytest.approx(expected)
    applied = fedcal(
        capsys, "apply", "--calibrator", out / "calibrator.npz", "--data", file,
        "--out", tmp_path / "after.npz",
    )  # fmt: skip
    assert applied["before"]["accuracy"] == pytest.approx(expected)


@pytest.mark.parametrize("threshold", [0.8 + 2e-12, 0.12345612, 3.00000004e-7, 0.9, 0.0])
def test_a_threshold_is_shown_rounded_up(threshold):
    sets = PredictionSets(Conformity(), np.array([threshold]), 3, 0.1)
    name, number, words = sets.page()[0].rows[0]
    for shown, digits in ((number, 6), (words.split()[-1], 4)):
        assert threshold <= float(shown) <= threshold * (1 + 10.0 ** (1 - digits)), name
