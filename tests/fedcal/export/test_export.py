"""The contract of exports: every kind of calibrator, on every target, is what it was in numpy."""

from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
from made_up import scored
from refusals import refused

from fedcal import calibrators, export
from fedcal.calibrators.base import kinds
from fedcal.core.numerics import softmax

pytest.importorskip("torch")
from fedcal.export.torch_modules import MODULES

KINDS = [cls.kind for cls in MODULES]


def rows(classes: int, n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return scored(classes, n, [classes, seed])


def weighted(
    base: calibrators.HistogramBinning | calibrators.BBQ, rows: Any
) -> calibrators.WeightedBinning:
    return calibrators.WeightedBinning(base, np.linspace(0.2, 0.9, len(base.table)), rows)


@cache
def fitted(kind: str, classes: int) -> calibrators.Calibrator:
    return kinds()[kind]().fit(*rows(classes))


def of_kind(kind: str) -> Callable[[int], calibrators.Calibrator]:
    return lambda classes: copy(fitted(kind, classes))


MAKE: dict[str, Callable[[int], calibrators.Calibrator]] = {
    kind: of_kind(kind) for kind in KINDS
} | {
    "weighted, all": lambda c: weighted(calibrators.HistogramBinning().fit(*rows(c)), "all"),
    "weighted, changed": lambda c: weighted(calibrators.BBQ().fit(*rows(c)), "changed"),
}
every_kind = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE.keys())

Run = Callable[[np.ndarray], np.ndarray]


def by_torch(calibrator: calibrators.Calibrator, dtype: Any) -> Run:
    import torch

    module = export.to_torch(calibrator)
    return lambda scores: np.asarray(module(torch.from_numpy(scores)).numpy())


def by_onnx(calibrator: calibrators.Calibrator, dtype: Any) -> Run:
    pytest.importorskip("onnx")
    model = export.to_onnx(calibrator, dtype=dtype)
    session = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())
    name = model.graph.input[0].name
    return lambda scores: np.asarray(session.run(["probs"], {name: scores})[0])


TARGETS: dict[str, Callable[..., Run]] = {"torch": by_torch, "onnx": by_onnx}
every_target = pytest.mark.parametrize("target", TARGETS)
TOLERANCE = {"float64": 1e-12, "float32": 1e-6}


def exported(target: str, calibrator: calibrators.Calibrator, dtype: str = "float64") -> Run:
    return TARGETS[target](calibrator, dtype)


def same(run: Run, calibrator: calibrators.Calibrator, scores: np.ndarray, message: object) -> None:
    got, want = run(scores), calibrator.predict_proba(scores)
    assert (got.dtype, got.shape) == (scores.dtype, want.shape), message
    tolerance = TOLERANCE[scores.dtype.name]
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance, err_msg=str(message))


@every_target
@every_kind
def test_an_export_predicts_what_the_calibrator_predicts(target, make):
    for classes, dtype in ((2, "float64"), (40, "float32")):
        calibrator = make(classes)
        run = exported(target, calibrator, dtype)
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
@pytest.mark.parametrize(("scale", "dtype"), [(0.3, "float64"), (30.0, "float32")])
def test_an_order_preserving_export_changes_no_prediction(target, cls, scale, dtype):
    """At the second scale slopes are so flat that scores tie."""
    rng = np.random.default_rng(3)
    calibrator = cls(rng.normal(scale=scale, size=cls.size(10)), 10)
    logits = rows(10, seed=1)[0]
    logits[100:200] = np.round(logits[100:200] / 4)  # ties
    logits[200:] = 1 + np.round(logits[200:]) * np.finfo(dtype).eps  # neighbours in floats
    logits = logits.astype(dtype)
    got = exported(target, calibrator, dtype)(logits)
    np.testing.assert_array_equal(got.argmax(axis=1), logits.argmax(axis=1))
    falling = np.take_along_axis(got, np.argsort(-logits, axis=1, kind="stable"), axis=1)
    assert (np.diff(falling, axis=1) <= 0).all()


@every_target
@every_kind
def test_a_calibrator_of_probabilities_takes_probabilities(target, make):
    calibrator = make(3)
    calibrator.input = "probs"
    for dtype in TOLERANCE:
        probs = softmax(rows(3, seed=1)[0]).astype(dtype)
        probs[0] = [1.0, 0.0, 0.0]
        same(exported(target, calibrator, dtype), calibrator, probs, dtype)


def steps(bins: int, classes: int) -> list[calibrators.Calibrator]:
    """Return calibrators whose neighbouring bins differ."""
    values = np.linspace(0.05, 0.95, bins)[np.random.default_rng(1).permutation(bins)]
    return [
        calibrators.TopLabelBinning(values, classes),
        calibrators.HistogramBinning([values] * (1 if classes == 2 else classes), classes),
    ]


@every_target
@pytest.mark.parametrize(("dtype", "given"), [("float64", "logits"), ("float32", "probs")])
def test_scores_on_edges_fall_into_the_same_bins(target, dtype, given):
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
            same(exported(target, calibrator, dtype), calibrator, scores, calibrator)


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
