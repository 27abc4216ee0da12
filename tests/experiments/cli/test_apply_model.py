"""`fedcal apply` and `fedcal export` with a trained model."""

import json

import numpy as np
import pytest

from fedcal import datasets
from fedcal.experiments.cli.main import _run
from fedcal.training.networks import TrainedModel, load_model

X = np.random.default_rng(0).normal(0, 0.4, (30, 4)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, 30)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    w = np.random.default_rng(2).normal(size=15)
    TrainedModel("softmax", (4,), 3, w).write(tmp_path, "model")
    np.savez("rows.npz", features=X[:20], labels=Y[:20], test_features=X[20:], test_labels=Y[20:])
    np.savez("plain.npz", features=X)
    return tmp_path


def applied(data: str, out: str, *more: str) -> int:
    return _run(["apply", "--calibrator", "model.npz", "--data", data, "--out", out, *more])


def test_logits_are_a_data_file(folder, capsys):
    assert applied("rows.npz", "logits.npz", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    want = load_model(folder / "model.npz").predict(X)
    found = datasets.load("logits.npz")
    assert found.test_logits is not None
    np.testing.assert_allclose(np.concatenate([found.logits, found.test_logits]), want, rtol=1e-5)
    assert told["rows"] == 30
    assert told["metrics"]["accuracy"] == (want[20:].argmax(axis=1) == Y[20:]).mean()
    assert applied("rows.npz", "logits.csv", "--quiet") == 0
    assert len(datasets.load("logits.csv").labels) == 30
    assert applied("plain.npz", "logits.npy") == 0  # labels are not needed
    assert capsys.readouterr().out.startswith("30 rows read by the network softmax, written to")
    np.testing.assert_allclose(np.load("logits.npy"), want, rtol=1e-5)


def test_what_does_not_fit_is_one_line(folder, capsys):
    np.savez("wide.npz", features=np.ones((3, 5)))
    np.savez("four.npz", features=X[:4], labels=np.arange(4))
    np.savez("bad.npz", features=np.full((3, 4), np.inf))
    for data, said in (
        ("wide.npz", "'wide.npz': the shape of the model's inputs must be (4,), got (5,)"),
        ("four.npz", "labels: 3 at row 3; allowed: 0, 1, 2"),
        ("bad.npz", "'bad.npz': features: all values must be finite"),
        ("rows.npz --alpha 0.1", "alpha has no effect here: a model has no sets"),
        ("nowhere.npz", "no such .npz file"),
    ):
        name, *more = data.split()
        assert applied(name, "out.npz", *more) == 2, data
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
        assert not (folder / "out.npz").exists()


def test_a_models_file_is_not_exported(folder, capsys):
    assert _run(["export", "--calibrator", f"{folder / 'model.npz'}", "--out", "m.onnx"]) == 2
    assert "exporting a model.npz was removed in 0.3" in capsys.readouterr().err
