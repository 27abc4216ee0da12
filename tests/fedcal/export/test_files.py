"""Exported files: whole or not at all, chosen by suffix, and they say what they are."""

from pathlib import Path

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
every_suffix = pytest.mark.parametrize("suffix", [".onnx", ".pt2"])


def need(suffix: str) -> None:
    for package in ("onnx", "onnxruntime") if suffix == ".onnx" else ("torch",):
        pytest.importorskip(package)


def run_file(path: Path, scores: np.ndarray) -> np.ndarray:
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        return np.asarray(session.run(None, {session.get_inputs()[0].name: scores})[0])
    import torch

    program = torch.export.load(path).module()
    return np.asarray(program(torch.from_numpy(scores)).numpy())


@every_suffix
def test_a_file_runs_without_fedcal_in_it(suffix, tmp_path):
    need(suffix)
    path = tmp_path / f"calibrator{suffix}"
    for calibrator, dtype in (
        (TemperatureScaling(2.0, 3), "float32"),
        (TemperatureScaling(2.0, 3), "float64"),
        (BBQ(TABLE, 3), "float32"),
        (VectorScaling(WEIGHTS[:6], 3), "float64"),
        (MatrixScaling(WEIGHTS, 3), "float32"),
        (OrderPreservingVector(WEIGHTS[:6], 3), "float64"),
        (OrderPreservingMLP(np.resize(WEIGHTS, OrderPreservingMLP.size(3)) / 4, 3), "float32"),
    ):
        export.save(calibrator, path, dtype=dtype)
        assert [p.name for p in tmp_path.iterdir()] == [path.name]
        for n in (0, 1, 50):
            z = LOGITS[:n].astype(dtype)
            got = run_file(path, z)
            assert got.dtype == dtype
            np.testing.assert_allclose(got, calibrator.predict_proba(z), rtol=0, atol=1e-6)


@every_suffix
def test_a_failed_export_leaves_what_was_there(suffix, tmp_path):
    need(suffix)
    refused("cannot write", export.save, TemperatureScaling(2.0, 3), tmp_path / "no" / f"c{suffix}")
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / f"c{suffix}"
    path.write_text("earlier")
    refused("is not fitted", export.save, TemperatureScaling(), path)
    assert path.read_text() == "earlier"
