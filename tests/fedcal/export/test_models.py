"""Trained models for other runtimes: the same logits there, and what has no export."""

import numpy as np
import pytest

from fedcal.export import model_to_torch, save_model
from fedcal.training.networks import NETWORKS, TrainedModel, load_model

torch = pytest.importorskip("torch")


def trained(network: str, shape: tuple[int, ...] = (5,), classes: int = 3) -> TrainedModel:
    size = NETWORKS[network].size(shape, classes)
    return TrainedModel(network, shape, classes, np.random.default_rng(1).normal(0, 0.4, size))


def rows(n: int = 20) -> np.ndarray:
    return np.random.default_rng(2).normal(size=(n, 5)).astype(np.float32)


@pytest.mark.parametrize("network", ["softmax", "mlp"])
def test_logits_are_those_of_the_model(network, tmp_path):
    model = trained(network)
    model.write(tmp_path, "model")
    want = load_model(tmp_path / "model.npz").predict(rows())
    found = {"torch": model_to_torch(model)(torch.from_numpy(rows())).numpy()}
    save_model(model, tmp_path / "m.pt2")
    program = torch.export.load(tmp_path / "m.pt2").module()
    found["program"] = program(torch.from_numpy(rows(7))).numpy()
    assert len(found["program"]) == 7
    onnxruntime = pytest.importorskip("onnxruntime")
    save_model(model, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (found["onnx"],) = session.run(["logits"], {"inputs": rows()})
    for name, logits in found.items():
        np.testing.assert_allclose(logits, want[: len(logits)], atol=2e-4, rtol=1e-4, err_msg=name)
    assert session.get_modelmeta().custom_metadata_map["kind"] == network
