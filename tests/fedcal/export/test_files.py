"""Exported files: whole or not at all, chosen by suffix, and they say what they are."""

import numpy as np
import pytest
from refusals import refused

from fedcal import export
from fedcal.calibrators import (
    BBQ,
    MatrixScaling,
    OrderPreservingMLP,
    OrderPreservingVector,
    TemperatureScaling,
    VectorScaling,
)

LOGITS = np.random.default_rng(1).normal(scale=3, size=(50, 3))
TABLE = np.random.default_rng(0).uniform(0.1, 0.9, (3, 8))
WEIGHTS = np.random.default_rng(2).normal(size=12)


def test_a_file_runs_without_fedcal_in_it(tmp_path):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "calibrator.onnx"
    for calibrator, dtype in (
        (TemperatureScaling(2.0, 3), "float32"),
        (TemperatureScaling(2.0, 3), "float64"),
        (BBQ(TABLE, 3), "float32"),
        (VectorScaling(WEIGHTS[:6], 3), "float64"),
        (MatrixScaling(WEIGHTS, 3), "float32"),
        (OrderPreservingVector(WEIGHTS[:6], 3), "float64"),
        (OrderPreservingMLP(np.resize(WEIGHTS, OrderPreservingMLP.size(3)) / 4, 3), "float32"),
    ):
        export.to_onnx(calibrator, path, dtype=dtype)
        assert [p.name for p in tmp_path.iterdir()] == [path.name]
        session = onnxruntime.InferenceSession(path)
        for n in (0, 1, 50):
            z = LOGITS[:n].astype(dtype)
            got = session.run(None, {session.get_inputs()[0].name: z})[0]
            assert got.dtype == dtype
            np.testing.assert_allclose(got, calibrator.predict_proba(z), rtol=0, atol=1e-6)


def test_a_failed_export_leaves_what_was_there(tmp_path):
    pytest.importorskip("onnx")
    scaling = TemperatureScaling(2.0, 3)
    refused("cannot write", export.to_onnx, scaling, tmp_path / "no" / "c.onnx")
    refused("suffix of a file to export to", export.to_onnx, scaling, tmp_path / "c.pt2")
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "c.onnx"
    path.write_text("earlier")
    refused("is not fitted", export.to_onnx, TemperatureScaling(), path)
    assert path.read_text() == "earlier"
