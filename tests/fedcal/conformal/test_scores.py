"""Conformity scores: by hand, the same bits by every way; exported sets are those of real rows."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedcal import datasets, export
from fedcal.calibrators import BBQ, TopLabelBinning
from fedcal.calibrators.base import text_of
from fedcal.calibrators.conformity import all_scores, settled, uniform_of
from fedcal.conformal import Conformity, PredictionSets
from fedcal.core import fitting
from fedcal.core.numerics import FLOOR, Floats
from fedcal.datasets import Dataset

CASES = [
    Conformity("lac"),
    Conformity("aps"),
    Conformity("aps", randomised=True),
    Conformity("raps", penalty=0.1, free=2),
    Conformity("raps", randomised=True),
]


def rows(n: int, c: int, seed: int = 0) -> Floats:
    """Logits of which many are tied, and some rows are all but certain."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, c)) * rng.choice([0.1, 3.0, 200.0], (n, 1))
    logits[::3] = np.round(logits[::3])
    logits[0] = 0.0
    return logits


@pytest.mark.parametrize(
    ("name", "u", "expected"),
    [
        ("lac", None, [[0.9, 0.5, 0.85, 0.75], [0.75] * 4]),
        ("aps", None, [[1.0, 0.5, 0.9, 0.75], [0.25, 0.5, 0.75, 1.0]]),
        ("aps", [0.2, 0.5], [[0.98, 0.4, 0.87, 0.7], [0.125, 0.375, 0.625, 0.875]]),
        # penalty 0.5 after the first: 0, 0.5, 1, 1.5 are added, and all is divided by 2.5
        ("raps", None, [[1.0, 0.2, 0.76, 0.5], [0.1, 0.4, 0.7, 1.0]]),
    ],
)
def test_by_hand(name, u, expected):
    p = np.array([[0.1, 0.5, 0.15, 0.25], [0.25, 0.25, 0.25, 0.25]])
    parts = None if u is None else np.array(u)
    found = all_scores(name != "lac", p, (parts, 0.5 * (name == "raps"), 1))
    np.testing.assert_allclose(found, expected, atol=1e-15)


@pytest.mark.parametrize(("conformity", "c"), list(zip(CASES, (40, 2, 3, 40, 2), strict=True)))
def test_all_ways_give_the_same_bits(conformity, c, monkeypatch):
    """Also in blocks, by several threads."""
    logits = rows(300, c)
    scores = conformity.of_all(logits)
    monkeypatch.setattr(fitting, "BLOCK", 64)
    monkeypatch.setattr(fitting, "MANY", 1)
    monkeypatch.setattr(fitting, "usable_cores", lambda: 3)
    assert_array_equal(conformity.of_all(logits), scores)
    assert scores.min() >= 0.0
    assert scores.max() <= 1.0
    for label in range(0, c, max(1, c // 4)):
        of_labels = conformity.of_labels(logits, np.full(300, label))
        assert_array_equal(of_labels, scores[:, label])
    assert_array_equal(conformity.of_all(logits[50:60]), scores[50:60])


def test_parts_are_uniform_and_of_the_row_alone():
    logits = np.random.default_rng(0).normal(size=(200_000, 3))
    u = uniform_of(logits)
    assert_array_equal(u[7:9], uniform_of(logits[7:9]))
    assert 0.0 <= u.min() < u.max() < 1.0
    cells = np.bincount((u * 100).astype(int), minlength=100)
    assert ((cells - 2000) ** 2 / 2000).sum() < 99 + 4 * np.sqrt(198)  # chi square
    for other in (uniform_of(logits[:, ::-1]), logits[:, 0], u[1:]):
        n = len(other)
        assert abs(np.corrcoef(u[:n], other)[0, 1]) < 4 / np.sqrt(n)
    assert uniform_of(np.array([[-0.0, 1.0]])) == uniform_of(np.array([[0.0, 1.0]]))
    assert uniform_of(logits.astype(np.float32)).shape == (200_000,)


def test_probabilities_that_differ_in_their_last_bits_are_equal():
    """But for one in 2**13 that lies where they are rounded."""
    p = np.random.default_rng(0).dirichlet(np.ones(4), 5000)
    assert (settled(np.nextafter(p, 1.0)) == settled(p)).mean() > 0.998
    np.testing.assert_allclose(settled(p), p, rtol=2.0**-40)


# -- exported sets --------------------------------------------------------------------------------

CONFORMITIES = [Conformity("lac"), Conformity("aps"), Conformity("raps", penalty=0.02, free=3)]


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


def run_onnx(model: Any, scores: Floats) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString())
    (given,), (made,) = session.get_inputs(), session.get_outputs()
    assert (made.name, made.type) == ("sets", "tensor(bool)")
    return np.asarray(session.run(None, {given.name: scores})[0])


def run_torch(sets: PredictionSets, scores: Floats) -> np.ndarray:
    torch = pytest.importorskip("torch")
    return np.asarray(export.to_torch(sets)(torch.from_numpy(scores)))


@pytest.mark.parametrize(
    ("name", "by", "number", "calibrator"),
    [
        ("densenet-cifar100", "none", 1, BBQ()),
        ("densenet-cifar100", "none", 1, TopLabelBinning()),
        ("mmlu-llama", "class", 2, None),
    ],
)
def test_exported_sets_are_those_of_predict_set(name, by, number, calibrator, tmp_path):
    """Two classes whose calibrated probabilities differ in the last bit may change places."""
    rows, conformity = data(name), CONFORMITIES[number]
    if calibrator is not None:
        calibrator.fit(rows.logits, rows.labels).save(tmp_path / "c.npz")
        text = text_of(tmp_path / "c.npz", rows.classes)
        conformity = replace(conformity, calibrator=text)
    sets, scores = fitted(conformity, name, by), rows.test_scores[:2000]
    expected = sets.predict_set(scores)
    assert 0.01 < expected.mean() < 0.9
    found = [run_torch(sets, scores)]
    pytest.importorskip("onnx")
    for one in (*found, run_onnx(export.to_onnx(sets, dtype="float64"), scores)):
        assert (one != expected).any(axis=1).sum() <= 2 * (calibrator is not None)
        assert_array_equal(one.sum(axis=1), expected.sum(axis=1))
    if calibrator is None:
        single = scores.astype(np.float32)
        assert_array_equal(run_onnx(export.to_onnx(sets), single), sets.predict_set(single))


@pytest.mark.parametrize("conformity", CONFORMITIES, ids=lambda c: c.name)
def test_exported_sets_decide_ties_alike(conformity):
    pytest.importorskip("torch")
    # probabilities of one decimal: many are equal, and many are 0
    scores = np.random.default_rng(0).multinomial(10, np.full(10, 0.1), 1000) / 10
    labels = np.random.default_rng(1).integers(0, 10, len(scores))
    own = conformity.of_labels(np.log(np.maximum(scores, FLOOR)), labels)
    for level, dtype in ((0.2, "float32"), (0.5, "float64"), (0.9, "float32")):
        given = scores.astype(dtype)  # each threshold is the score of many labels
        threshold = np.quantile(own, level, method="higher", keepdims=True)
        sets = PredictionSets(conformity, threshold, 10, 0.1, input="probs")
        expected = sets.predict_set(given)
        assert_array_equal(run_torch(sets, given), expected)
        pytest.importorskip("onnx")
        assert_array_equal(run_onnx(export.to_onnx(sets, dtype=dtype), given), expected)
