"""A module of the user's own: what is refused before training, and that a name imports nothing."""

import sys
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from refusals import each_is_refused
from torch import nn

from fedcal.core.errors import InputError
from fedcal.queries import Gradients
from fedcal.training.networks import OWN, network_named
from fedcal.training.own import enlist
from fedcal.training.torch_models import weights_of
from fedcal.training.trained_model import TrainedModel, load_model

X = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)


class Doing(nn.Linear):
    """A linear layer that does something to its rows first."""

    def __init__(self, what: Any) -> None:
        super().__init__(5, 3)
        self.what = what

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.what(x))


class Remembers:
    last = torch.zeros(5)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        found, self.last = x + self.last, x[-1]
        return found


def not_the_last_but_one(x: torch.Tensor) -> torch.Tensor:
    if (x == torch.from_numpy(X[-2])).all(dim=1).any():
        raise ValueError("no such row")
    return x


def frozen() -> nn.Module:
    layer = nn.Linear(5, 3)
    layer.bias.requires_grad_(False)
    return layer


class Grows(nn.Linear):
    """Its logits are as they are, and its gradients grow by each row."""

    rows = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rows += len(x)
        found = super().forward(x)
        return found + self.rows * (found - found.detach())


class Shrinks(nn.Linear):
    """It writes to its own weights, by the row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.mul_(1 - 1e-4 * x.abs().max())
        return super().forward(x)


def test_weights_are_those_that_were_given_for_each_row():
    network = network_named(enlist(Shrinks(5, 3)))
    w, y = network.initial((5,), 3, 0), np.zeros(12, np.int64)

    def gradients(x: Any) -> Any:
        return np.concatenate([p[0].gradients for _, p in network.row_parts(w, x, y[: len(x)], 3)])

    np.testing.assert_array_equal(gradients(X)[1:], gradients(X[1:]))


def test_what_cannot_be_trained_is_refused_before_it_is():
    table: list[tuple[Any, str]] = [
        (nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)), r"0\.running_mean changes with the ro"),
        (nn.Sequential(nn.BatchNorm1d(5, 1e-5, 0.1, True, False), nn.Linear(5, 3)), "more than 1"),
        (Doing(lambda x: x - x.mean(dim=0)), "depend on other rows"),
        (Doing(lambda x: x + torch.randn_like(x)), "draws random numbers in evaluation mode"),
        (Doing(lambda x: x + 1e-6 * torch.randn_like(x)), "draws random numbers"),
        (Doing(Remembers()), "mixes or keeps rows"),
        (Grows(5, 3), "depend on other rows"),
        (Doing(not_the_last_but_one), "fails on rows of shape 5: ValueError: no such row"),
        (frozen, "bias is frozen"),
        (nn.Linear(4, 3), "fails on rows of shape 5: RuntimeError: mat1 and mat2"),
        (
            nn.Linear(5, 2),
            r"must return logits \(n, 3\) for rows \(n, 5\); for 2 rows it returns \(2, 2\)",
        ),
        (dict, "makes a dict, not a torch.nn.Module"),
        (5, "5 is not a model"),
        ("os:nothing", "--model os:nothing failed: AttributeError"),
    ]

    def tried(model: Any) -> None:
        network_named(enlist(model)).check(X, 3, by_row=True)

    each_is_refused(table, tried)
    fine = nn.Sequential(nn.GroupNorm(1, 5), nn.Dropout(0.5), nn.Linear(5, 3))
    with pytest.warns(UserWarning, match="is trained without its dropout"):
        tried(fine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network_named(enlist(fine)).check(X, 3, by_row=False)  # local SGD has it


def test_a_module_is_where_training_begins_and_is_left_as_it_is(tmp_path):
    mine = nn.Linear(5, 3)
    own, before = weights_of(mine), X.copy()
    writes = network_named(enlist(Doing(torch.Tensor.relu_)))
    writes.check(X, 3, by_row=True)
    writes.logits(writes.initial((5,), 3, 0), X, 3)
    np.testing.assert_array_equal(X, before)
    network = network_named(enlist(mine))
    np.testing.assert_array_equal(network.initial((5,), 3, seed=4), own)
    network.logits(own + 1, X, 3)
    network_named(enlist(lambda: mine)).logits(own + 1, X, 3)
    np.testing.assert_array_equal(weights_of(mine), own)
    model = TrainedModel(enlist(mine), (5,), 3, own + 1)
    enlist(nn.Linear(5, 2))  # of the same name
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
        Gradients("mine:net", "5", w, 1.0, 3)
    monkeypatch.setitem(OWN, "mine:net", network_named("mlp"))
    w = np.zeros(network_named("mlp").size((5,), 3))
    TrainedModel("mine:net", (5,), 3, w).write(tmp_path, "model")
    monkeypatch.delitem(OWN, "mine:net")
    with pytest.raises(InputError, match="its name alone imports no code"):
        load_model("model.npz")
    assert "mine" not in sys.modules
    with pytest.raises(InputError, match="the network mine:net has 18 weights"):
        load_model("model.npz", "mine:net")
    assert "mine" in sys.modules


def test_widths_are_those_that_were_tried():
    size = sum((a + 1) * b for a, b in pairwise((5, 48, 16, 3)))
    assert network_named("mlp:48x16").size((5,), 3) == size
    table = [
        ("mlp:7", "hidden widths must be multiples of 16, got 7"),
        ("mlp:" + "x".join(["16"] * 9), r"number of hidden layers must be .* \[1, 8\]"),
        ("mlp:16x", "shape must be like"),
        ("cnn:16", "the network cnn has fixed widths"),
        ("vgg", "unknown network 'vgg'"),
    ]
    each_is_refused(table, network_named)
    huge = network_named("mlp:1048576").size((2**24,), 10)  # nothing of that size is made
    assert huge > 2**43
