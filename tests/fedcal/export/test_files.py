"""Exported files: whole or not at all, chosen by suffix, and they say what they are."""

import json
from pathlib import Path

import numpy as np
import pytest
from refusals import each_is_refused, refused

import fedcal
from fedcal import export
from fedcal.calibrators import (
    BBQ,
    HistogramBinning,
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
def test_the_same_calibrator_gives_the_same_program(suffix, tmp_path):
    need(suffix)
    a, b = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    export.save(BBQ(TABLE, 3), a)
    export.save(BBQ(TABLE, 3), str(b))
    if suffix == ".onnx":  # torch's zip holds random ids
        assert a.read_bytes() == b.read_bytes()
    z = LOGITS.astype(np.float32)
    np.testing.assert_array_equal(run_file(a, z), run_file(b, z))


def about(kind: str, given: str) -> dict[str, str]:
    return {"fedcal": fedcal.__version__, "kind": kind, "classes": "3", "input": given}


def test_an_onnx_file_says_what_it_is(tmp_path):
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "c.onnx"
    made = export.to_onnx(HistogramBinning(TABLE, 3), path)
    model = onnx.load(path)
    assert model == made
    onnx.checker.check_model(model, full_check=True)
    assert (model.producer_name, model.producer_version) == ("fedcal", fedcal.__version__)
    assert {p.key: p.value for p in model.metadata_props} == about("histogram-binning", "logits")
    # what every ONNX Runtime since 1.12 (2022) runs
    assert model.ir_version == 8
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 17)]
    (taken,), (given,) = model.graph.input, model.graph.output
    assert (taken.name, given.name) == ("logits", "probs")
    for value in (taken, given):
        dims = value.type.tensor_type.shape.dim
        assert (dims[0].dim_param, dims[1].dim_value) == ("rows", 3)
        assert value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    calibrator = TemperatureScaling(2.0, 3)
    calibrator.input = "probs"
    model = export.to_onnx(calibrator, dtype="float64")
    assert model.graph.input[0].name == "model_probs"
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
    assert {p.key: p.value for p in model.metadata_props}["input"] == "probs"


def test_a_program_says_what_it_is(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "c.pt2"
    export.save(TemperatureScaling(2.0, 3), path, input="probs")
    extra = {"fedcal.json": ""}
    torch.export.load(path, extra_files=extra)
    assert json.loads(extra["fedcal.json"]) == about("temperature", "probs")


def test_another_suffix_or_type_is_refused(tmp_path):
    one = TemperatureScaling(2.0, 3)
    names = ("c.npz", "c.pt", "c", "c.ONNX", "onnx")
    table = [((name, "float32"), r"must end in \.onnx or \.pt2") for name in names]
    half = "unknown dtype 'float16'; .*: float32, float64"
    table += [((name, "float16"), half) for name in ("c.onnx", "c.pt2")]
    each_is_refused(table, lambda given: export.save(one, tmp_path / given[0], dtype=given[1]))
    assert list(tmp_path.iterdir()) == []


@every_suffix
def test_a_failed_export_leaves_what_was_there(suffix, tmp_path):
    need(suffix)
    refused("cannot write", export.save, TemperatureScaling(2.0, 3), tmp_path / "no" / f"c{suffix}")
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / f"c{suffix}"
    path.write_text("earlier")
    refused("is not fitted", export.save, TemperatureScaling(), path)
    assert path.read_text() == "earlier"
