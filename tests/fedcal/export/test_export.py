"""The contract of exports: every kind of calibrator, on every target, is what it was in numpy.

So are prediction sets, of real rows and where scores tie.
"""

import math
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from made_up import scored
from numpy.testing import assert_array_equal
from refusals import each_is_refused, refused

from fedcal import calibrators, datasets, export
from fedcal.calibrators.base import kinds, text_of
from fedcal.conformal import Conformity, PredictionSets
from fedcal.core.numerics import FLOOR, softmax

torch = pytest.importorskip("torch")
from fedcal.export.torch_modules import MODULES  # noqa: E402


def rows(classes: int, n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return scored(classes, n, [classes, seed])


@cache
def fitted(kind: str, classes: int) -> calibrators.Calibrator:
    """Of this kind; a weighted one after a comma with its base and its rows."""
    name, _, of_rows = kind.partition(", ")
    found = kinds()[name]().fit(*rows(classes))
    if not of_rows:
        return found
    shape = found.table.shape if name == "bbq" else found.table.shape[:1]  # by bin, or not
    weights = np.linspace(0.2, 0.9, math.prod(shape)).reshape(shape)
    return calibrators.WeightedBinning(found, weights, of_rows)


every_kind = pytest.mark.parametrize(
    "kind", [*(cls.kind for cls in MODULES), "histogram-binning, changed", "bbq, all"]
)

Run = Callable[[np.ndarray], np.ndarray]


def by_torch(calibrator: calibrators.Calibrator | PredictionSets) -> Run:
    module = export.to_torch(calibrator)
    return lambda scores: np.asarray(module(torch.from_numpy(scores)).numpy())


def by_onnx(calibrator: calibrators.Calibrator | PredictionSets, dtype: Any = "float32") -> Run:
    pytest.importorskip("onnx")
    model = export.to_onnx(calibrator, dtype=dtype)
    session = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())
    name = model.graph.input[0].name
    output = "sets" if isinstance(calibrator, PredictionSets) else "probs"
    return lambda scores: np.asarray(session.run([output], {name: scores})[0])


by_onnx_in_double = partial(by_onnx, dtype="float64")


every_target = pytest.mark.parametrize(
    ("exported", "dtype"),
    [
        *((by_torch, "float64"), (by_torch, "float32")),
        *((by_onnx_in_double, "float64"), (by_onnx, "float32")),
    ],
    ids=["torch", "torch in single", "onnx in double", "onnx"],
)
TOLERANCE = {"float64": 1e-12, "float32": 1e-6}


def same(run: Run, calibrator: calibrators.Calibrator, scores: np.ndarray, message: object) -> None:
    got, want = run(scores), calibrator.predict_proba(scores)
    assert (got.dtype, got.shape) == (scores.dtype, want.shape), message
    tolerance = TOLERANCE[scores.dtype.name]
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance, err_msg=str(message))


@every_target
@every_kind
def test_an_export_predicts_what_the_calibrator_predicts(exported, dtype, kind):
    for classes in (2, 40):
        calibrator = fitted(kind, classes)
        run = exported(calibrator)
        logits = rows(classes, seed=1)[0].astype(dtype)
        for n in (300, 0, 1, 2, 7):
            same(run, calibrator, logits[:n], (classes, dtype, n))
        if not isinstance(calibrator, calibrators.Identity):  # the comparison has something to see
            change = calibrator.predict_proba(logits) - softmax(logits)
            assert np.abs(change).max() > 1e-3
        # 1/2 is the edge of a bin, and with ties argmax must choose as numpy does
        ties = np.zeros((2, classes), dtype)
        ties[1, : classes // 2] = 800.0
        same(run, calibrator, ties, (classes, dtype, "ties"))
        holed = logits[:3].copy()
        holed[1, 0] = np.nan  # gives NaN and never a confident number
        got, want = run(holed), calibrator.predict_proba(logits[:3])
        assert np.isnan(got[1]).all()
        np.testing.assert_allclose(got[[0, 2]], want[[0, 2]], rtol=0, atol=TOLERANCE[dtype])
        if dtype == "float32":  # large logits lose no digits; nor do the largest there are
            same(run, calibrator, logits + np.float32(3000), "large")
            same(run, calibrator, (logits + np.float32(3000)) * np.float32(1e33), "certain")


@every_target
@pytest.mark.parametrize("cls", [calibrators.OrderPreservingVector, calibrators.OrderPreservingMLP])
@pytest.mark.parametrize("scale", [0.3, 30.0])
def test_an_order_preserving_export_changes_no_prediction(exported, dtype, cls, scale):
    """At the second scale slopes are so flat that scores tie."""
    rng = np.random.default_rng(3)
    calibrator = cls(rng.normal(scale=scale, size=cls.size(10)), 10)
    logits = rows(10, seed=1)[0]
    logits[100:200] = np.round(logits[100:200] / 4)  # ties
    logits[200:] = 1 + np.round(logits[200:]) * np.finfo(dtype).eps  # neighbours in floats
    logits = logits.astype(dtype)
    got = exported(calibrator)(logits)
    np.testing.assert_array_equal(got.argmax(axis=1), logits.argmax(axis=1))
    falling = np.take_along_axis(got, np.argsort(-logits, axis=1, kind="stable"), axis=1)
    assert (np.diff(falling, axis=1) <= 0).all()


@every_target
@every_kind
def test_a_calibrator_of_probabilities_takes_probabilities(exported, dtype, kind):
    calibrator = copy(fitted(kind, 3))
    calibrator.input = "probs"
    probs = softmax(rows(3, seed=1)[0]).astype(dtype)
    probs[0] = [1.0, 0.0, 0.0]
    same(exported(calibrator), calibrator, probs, dtype)


def steps(bins: int, classes: int) -> list[calibrators.Calibrator]:
    """Return calibrators whose neighbouring bins differ."""
    values = np.linspace(0.05, 0.95, bins)[np.random.default_rng(1).permutation(bins)]
    return [
        calibrators.TopLabelBinning(values, classes),
        calibrators.HistogramBinning([values] * (1 if classes == 2 else classes), classes),
    ]


@every_target
@pytest.mark.parametrize("given", ["logits", "probs"])
def test_scores_on_edges_fall_into_the_same_bins(exported, dtype, given):
    for bins, classes in ((10, 2), (20, 3)):
        edges = np.arange(1, bins) / bins
        one = edges.astype(dtype)
        near = [np.nextafter(edges, 0), edges, np.nextafter(edges, 1)]
        near += [np.nextafter(one, one.dtype.type(0)), np.nextafter(one, one.dtype.type(1))]
        p = np.concatenate(near)
        scores = np.zeros((len(p), classes))
        scores[:, 0], scores[:, 1] = 1 - p, p
        mixed = np.random.default_rng(0).multinomial(bins, np.full(classes, 1 / classes), 200)
        scores = np.concatenate([scores, mixed / bins]).astype(dtype)
        if given == "logits":
            scores = np.log(np.maximum(scores, scores.dtype.type(1e-12)))
        for calibrator in steps(bins, classes):
            calibrator.input = given
            same(exported(calibrator), calibrator, scores, calibrator)


def test_a_failed_export_leaves_what_was_there(tmp_path):
    pytest.importorskip("onnx")
    scaling = calibrators.TemperatureScaling(2.0, 3)
    refused("cannot write", export.to_onnx, scaling, tmp_path / "no" / "c.onnx")
    refused("suffix of a file to export to", export.to_onnx, scaling, tmp_path / "c.pt2")
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "c.onnx"
    path.write_text("earlier")
    refused("is not fitted", export.to_onnx, calibrators.TemperatureScaling(), path)
    assert path.read_text() == "earlier"


# -- prediction sets -----------------------------------------------------------------------------

SCORES = [Conformity("lac"), Conformity("aps"), Conformity("raps", penalty=0.02, free=3)]


@pytest.mark.parametrize(
    ("name", "by", "conformity", "calibrator"),
    [
        ("densenet-cifar100", "none", SCORES[1], calibrators.BBQ()),
        ("densenet-cifar100", "none", SCORES[1], calibrators.TopLabelBinning()),
        ("mmlu-llama", "class", SCORES[2], None),
    ],
)
def test_exported_sets_are_those_of_predict_set(name, by, conformity, calibrator, tmp_path):
    """Two classes whose calibrated probabilities differ in the last bit may change places."""
    data = datasets.load(name).split(0)
    if calibrator is not None:
        calibrator.fit(data.logits, data.labels).save(tmp_path / "c.npz")
        text = text_of(tmp_path / "c.npz", data.classes)
        conformity = replace(conformity, calibrator=text)
    own = conformity.of_labels(data.logits, data.labels)
    parts = [data.labels == k for k in range(data.classes)] if by == "class" else [slice(None)]
    at = np.array([np.quantile(own[part], 0.8, method="higher") for part in parts])
    sets = PredictionSets(conformity, at, data.classes, 0.1, by, input=data.input)
    scores = data.test_scores[:2000]
    expected = sets.predict_set(scores)
    assert 0.01 < expected.mean() < 0.9
    for run in (by_torch(sets), by_onnx_in_double(sets)):
        found = run(scores)
        assert (found != expected).any(axis=1).sum() <= 2 * (calibrator is not None)
        assert_array_equal(found.sum(axis=1), expected.sum(axis=1))
    if calibrator is None:
        single = scores.astype(np.float32)
        assert_array_equal(by_onnx(sets)(single), sets.predict_set(single))


@pytest.mark.parametrize("conformity", SCORES, ids=lambda c: c.name)
def test_exported_sets_decide_ties_alike(conformity):
    # probabilities of one decimal: many are equal, and many are 0
    scores = np.random.default_rng(0).multinomial(10, np.full(10, 0.1), 1000) / 10
    labels = np.random.default_rng(1).integers(0, 10, len(scores))
    own = conformity.of_labels(np.log(np.maximum(scores, FLOOR)), labels)
    for level, dtype in ((0.2, "float32"), (0.5, "float64"), (0.9, "float32")):
        given = scores.astype(dtype)  # each threshold is the score of many labels
        threshold = np.quantile(own, level, method="higher", keepdims=True)
        sets = PredictionSets(conformity, threshold, 10, 0.1, input="probs")
        for run in (by_torch(sets), by_onnx(sets, dtype)):
            assert_array_equal(run(given), sets.predict_set(given))


def test_sets_that_depend_on_more_than_scores_are_refused_and_types_too():
    table = [
        PredictionSets(Conformity("aps", randomised=True), np.array([0.5]), 3, 0.1),
        PredictionSets(Conformity(), np.array([0.5, 0.6]), 3, 0.1, "group", ("a",)),
    ]
    each_is_refused([(sets, "have no export: they depend") for sets in table], export.to_torch)
    scaling: Any = calibrators.TemperatureScaling(2.0, 3)
    refused("dtype 'float16'", export.to_onnx, scaling, dtype="float16")


# -- a citizen of PyTorch ------------------------------------------------------------------------


@every_kind
def test_a_module_takes_any_rows_and_types_and_a_program_of_it_too(kind):
    """Leading dimensions are free; softer types give float32."""
    calibrator, logits = fitted(kind, 3), torch.from_numpy(rows(3, 50)[0])
    module = export.to_torch(calibrator)
    want = module(logits)
    for shape in [(5, 10, 3), (1, 50, 1, 3)]:
        torch.testing.assert_close(module(logits.reshape(shape)), want.reshape(shape))
    for given in (torch.float16, torch.bfloat16, torch.int64):
        z = logits.to(given)
        torch.testing.assert_close(module(z), module(z.double()).float(), rtol=0, atol=1e-6)
    dynamic = ({0: torch.export.Dim("rows", min=0)},)
    program = torch.export.export(module, (logits[:2],), dynamic_shapes=dynamic).module()
    for n in (0, 1, 50):
        torch.testing.assert_close(program(logits[:n]), want[:n])
    refused("must be 3, got 4", module, torch.zeros(2, 4))


@pytest.mark.parametrize("name", ["vector", "order-preserving-vector", "order-preserving-mlp"])
def test_gradients_reach_the_scores(name):
    z = torch.from_numpy(rows(3, 5)[0]).requires_grad_()
    assert torch.autograd.gradcheck(export.to_torch(fitted(name, 3)), (z,))
