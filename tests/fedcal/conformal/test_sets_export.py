"""Exported prediction sets are those of `predict_set`, on real rows."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedcal import datasets, export
from fedcal.calibrators import BBQ, TemperatureScaling, TopLabelBinning
from fedcal.calibrators.base import text_of
from fedcal.conformal import Conformity, PredictionSets
from fedcal.core.numerics import FLOOR, Floats
from fedcal.datasets import Dataset

CONFORMITIES = [
    Conformity("lac"),
    Conformity("aps"),
    Conformity("raps", penalty=0.02, free=3),
]


@cache
def data(name: str) -> Dataset:
    return datasets.load(name).split(0)


def fitted(conformity: Conformity, name: str, by: str = "none") -> PredictionSets:
    """Sets of the rows' own thresholds, without privacy."""
    rows = data(name)
    scores = conformity.of_labels(rows.logits, rows.labels)
    parts = [rows.labels == k for k in range(rows.classes)] if by == "class" else [slice(None)]
    level = {"mmlu-llama": 0.7, "densenet-cifar100": 0.9}[name]
    thresholds = [np.quantile(scores[part], level, method="higher") for part in parts]
    return PredictionSets(conformity, np.array(thresholds), rows.classes, 0.1, by, input=rows.input)


def rows_to_judge(name: str) -> Floats:
    scores = data(name).test_scores
    return scores[:2000]


def run_onnx(model: Any, scores: Floats) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString())
    (given,), (made,) = session.get_inputs(), session.get_outputs()
    assert (made.name, made.type) == ("sets", "tensor(bool)")
    return np.asarray(session.run(None, {given.name: scores})[0])


def run_torch(sets: PredictionSets, scores: Floats) -> np.ndarray:
    torch = pytest.importorskip("torch")
    return np.asarray(export.to_torch(sets)(torch.from_numpy(scores)))


@pytest.mark.parametrize("conformity", CONFORMITIES, ids=lambda c: c.name)
@pytest.mark.parametrize(("name", "by"), [("densenet-cifar100", "none"), ("mmlu-llama", "class")])
def test_the_sets_are_those_of_predict_set(name, conformity, by):
    sets, scores = fitted(conformity, name, by), rows_to_judge(name)
    expected = sets.predict_set(scores)
    assert 0.01 < expected.mean() < 0.9
    assert_array_equal(run_torch(sets, scores), expected)
    pytest.importorskip("onnx")
    assert_array_equal(run_onnx(export.to_onnx(sets, dtype="float64"), scores), expected)
    single = scores.astype(np.float32)
    assert_array_equal(run_onnx(export.to_onnx(sets), single), sets.predict_set(single))


@pytest.mark.parametrize("conformity", CONFORMITIES, ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ties_are_decided_alike(conformity, dtype, tmp_path):
    torch = pytest.importorskip("torch")
    # probabilities of one decimal: many are equal, and many are 0
    scores = np.random.default_rng(0).multinomial(10, np.full(10, 0.1), 1000) / 10
    labels = np.random.default_rng(1).integers(0, 10, len(scores))
    own = conformity.of_labels(np.log(np.maximum(scores, FLOOR)), labels)
    given = scores.astype(dtype)
    for level in (0.2, 0.5, 0.9):  # each threshold is the score of many labels
        threshold = np.quantile(own, level, method="higher", keepdims=True)
        sets = PredictionSets(conformity, threshold, 10, 0.1, input="probs")
        expected = sets.predict_set(given)
        assert_array_equal(run_torch(sets, given), expected)
        pytest.importorskip("onnx")
        model = export.to_onnx(sets, dtype=dtype)
        assert_array_equal(run_onnx(model, given), expected)
    export.save(sets, tmp_path / "sets.pt2", dtype=dtype)
    program = torch.export.load(tmp_path / "sets.pt2").module()
    assert_array_equal(program(torch.from_numpy(given)), expected)


@pytest.mark.parametrize("calibrator", [TemperatureScaling(), BBQ(), TopLabelBinning()])
def test_calibrated_sets(calibrator, tmp_path):
    rows = data("densenet-cifar100")
    calibrator.fit(rows.logits, rows.labels).save(tmp_path / "c.npz")
    conformity = Conformity("aps", calibrator=text_of(tmp_path / "c.npz", 100))
    sets, scores = fitted(conformity, "densenet-cifar100"), rows_to_judge("densenet-cifar100")
    expected = sets.predict_set(scores)
    assert near(run_torch(sets, scores), expected)
    pytest.importorskip("onnx")
    assert near(run_onnx(export.to_onnx(sets, dtype="float64"), scores), expected)


def near(found: np.ndarray, expected: np.ndarray) -> bool:
    """Two classes whose calibrated probabilities differ in the last bit may change places."""
    differ = (found != expected).sum(axis=1)
    return bool((differ > 0).sum() <= 2 and (found.sum(axis=1) == expected.sum(axis=1)).all())
