"""A module of the user's own: it is left as it is, and a name imports nothing."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from fedcal.clients.questions.training import Gradients
from fedcal.core.checks import InputError
from fedcal.training.networks import OWN, TrainedModel, load_model, network_named, register_network
from fedcal.training.row_gradients import weights_of

X = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)


class Writes(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.relu_())


def test_a_module_is_where_training_begins_and_is_left_as_it_is(tmp_path):
    mine = nn.Linear(5, 3)
    own, before = weights_of(mine), X.copy()
    writes = network_named(register_network(Writes(5, 3)))
    writes.logits(writes.initial((5,), 3, 0), X, 3)
    np.testing.assert_array_equal(X, before)
    network = network_named(register_network(mine))
    np.testing.assert_array_equal(network.initial((5,), 3, seed=4), own)
    network.logits(own + 1, X, 3)
    network_named(register_network(lambda: mine)).logits(own + 1, X, 3)
    np.testing.assert_array_equal(weights_of(mine), own)
    model = TrainedModel(register_network(mine), (5,), 3, own + 1)
    register_network(nn.Linear(5, 2))  # of the same name
    np.testing.assert_allclose(model.predict(X), network.logits(own + 1, X, 3))
    model.write_state_dict(tmp_path / "model.pt")
    mine.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    np.testing.assert_allclose(weights_of(mine), own + 1, rtol=1e-6)


def test_a_name_brings_in_no_code(tmp_path, monkeypatch):
    """A question comes from a server, and a model's file from anybody."""
    (tmp_path / "mine.py").write_text("from torch import nn\ndef net(): return nn.Linear(5, 3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    w = np.zeros(18)
    with pytest.raises(InputError, match="its name alone imports no code"):
        Gradients("mine:net", "5", w, 1.0, classes=3)
    monkeypatch.setitem(OWN, "mine:net", network_named("mlp"))
    w = np.zeros(network_named("mlp").size((5,), 3))
    TrainedModel("mine:net", (5,), 3, w).write(tmp_path, "model")
    monkeypatch.delitem(OWN, "mine:net")
    with pytest.raises(InputError, match="its name alone imports no code"):
        load_model("model.npz")
    assert "mine" not in sys.modules
    with pytest.raises(InputError, match="shape of the weights of mine:net"):
        load_model("model.npz", "mine:net")
    assert "mine" in sys.modules
