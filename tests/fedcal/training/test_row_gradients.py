"""Gradients of single rows: those of plain PyTorch; bounded, exact, of nobody else.

A module of the user's own is left as it is, and a name imports nothing.
"""

import sys
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from refusals import each_is_refused
from torch import nn

from fedcal.clients.questions.training import Gradients
from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats, Integers
from fedcal.training import networks
from fedcal.training.networks import Clipping, network_named, register_network, row_gradients
from fedcal.training.row_gradients import CHUNK, _expanded, one_thread, set_weights, weights_of

CLASSES, GRID = 4, 2.0**-36


class Odd(nn.Module):
    """What hooks on layers would miss: weights used twice, and a parameter of no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.LazyLinear(4)
        self.scale = nn.Parameter(torch.full((6,), 0.5))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.linear(self.first(x).relu(), self.first.weight) * self.scale
        logits: torch.Tensor = self.last(self.dropout(x))
        return logits


class Images(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            *(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4)),
            *(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 4 * 4, 4)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = super().forward(x.float() / 255)
        return logits


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(256, 3), nn.Linear(15, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(self.embedding(x.long()).flatten(1))
        return logits


SHAPES: dict[str, tuple[int, ...]] = {
    "softmax": (6,),
    "mlp": (6,),
    "mlp:7x65": (6,),
    register_network(Odd): (6,),
    register_network(Images): (8, 8),
    register_network(Tokens): (5,),
}
COUNTED = list(SHAPES)[-2:]


def rows_of(network: str, n: int, seed: int = 0) -> tuple[NDArray[Any], Integers, Floats]:
    """Return rows, labels, and weights that are not those of the start."""
    rng, shape = np.random.default_rng(seed), SHAPES[network]
    x = rng.normal(size=(n, *shape))
    if network in COUNTED:
        x = rng.integers(0, 256, (n, *shape), dtype=np.uint8)
    one = network_named(network)
    w = one.initial(shape, CLASSES, 1) + rng.normal(0, 0.2, one.size(shape, CLASSES))
    return x, rng.integers(0, CLASSES, n), w


def steps(
    network: str, w: Floats, x: Any, y: Integers, clipping: Clipping, *cuts: int, **how: bool
) -> Integers:
    rows = row_gradients(network_named(network), x.shape[1:], CLASSES)
    return rows.steps(w, x, y, np.array(cuts or (0, len(y))), clipping, GRID, **how)


def plain_gradients(network: str, w: Floats, x: NDArray[Any], y: Integers) -> Floats:
    """Row after row, by PyTorch alone: (n, size)."""
    model = network_named(network).module(SHAPES[network], CLASSES, 0)
    set_weights(model, w)
    found = []
    for i in range(len(y)):
        model.zero_grad()
        rows = network_named(network).tensor(x[i : i + 1])
        nn.functional.cross_entropy(model(rows), torch.from_numpy(y[i : i + 1])).backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        found.append(np.concatenate([g.numpy().ravel() for g in grads]))
    return np.array(found, np.float64)


@pytest.mark.parametrize("network", SHAPES)
@pytest.mark.parametrize("rule", ["row", "global", "none"])
def test_sums_are_those_of_rows_that_pytorch_gives_one_by_one(network, rule):
    x, y, w = rows_of(network, 5)
    raw = plain_gradients(network, w, x, y)
    norms = np.linalg.norm(raw, axis=1)
    reach = float(np.median(norms)) * 1.001  # no row is on the edge
    factors = {
        "row": np.minimum(1, 0.5 / norms),
        "global": np.where(norms <= reach, 0.5 / reach, 0.0),
        "none": np.ones(5),
    }[rule]
    expected = (raw * factors[:, None]).sum(axis=0)
    for factored in (False, True):
        ours = steps(network, w, x, y, Clipping(0.5, rule, reach), factored=factored)[0] * GRID
        assert np.linalg.norm(ours - expected) < 1e-4 * np.linalg.norm(expected)


@pytest.mark.parametrize("network", SHAPES)
def test_neighbours_differ_by_what_one_row_adds_and_no_more(network):
    """A row leaves an empty row in its slot: all others add the same integers."""
    x, y, w = rows_of(network, CHUNK)
    one, clipping = row_gradients(network_named(network), SHAPES[network], CLASSES), Clipping(0.5)
    one.check(x)
    set_weights(one._module, w)

    def integers(rows: NDArray[Any]) -> Integers:
        inputs = network_named(network).tensor(rows)
        with one_thread():
            raw = one._gradients(inputs, torch.from_numpy(y))
            parts = one._rows(raw, len(y), clipping, GRID)
        return np.concatenate([_expanded(*part)[2] for part in parts], axis=1).astype(np.int64)

    first, added = integers(x), steps(network, w, x, y, clipping, factored=True)[0]
    np.testing.assert_array_equal(added, first.sum(axis=0))
    for row in (3, CHUNK - 1):
        for value in (0, 1, 255 if network in COUNTED else 1e30):
            changed = x.copy()
            changed[row] = value
            found = integers(changed)
            assert sum(int(v) ** 2 for v in found[row]) <= (0.5 / GRID) ** 2
            np.testing.assert_array_equal(np.delete(found, row, 0), np.delete(first, row, 0))


@pytest.mark.parametrize("network", SHAPES)
def test_a_client_adds_the_same_whoever_is_beside_it(network):
    n = CHUNK + 5
    x, y, w = rows_of(network, n)
    both = steps(network, w, x, y, Clipping(0.5), 0, 2, 2, n)
    assert not both[1].any()
    for k, rows in ((0, slice(0, 2)), (2, slice(2, n))):
        alone = steps(network, w, x[rows], y[rows], Clipping(0.5))[0]
        np.testing.assert_array_equal(both[k], alone)


@pytest.mark.parametrize("network", ["softmax", "mlp"])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1e3, 1e30, np.inf, np.nan])
def test_no_row_adds_more_than_the_clip(network, scale):
    x, y, w = rows_of(network, 9)
    x[7] *= scale
    for clip in (1e-6, 0.3, 100.0):
        grid = float(2.0 ** np.floor(np.log2(clip))) * GRID
        rows = row_gradients(network_named(network), x.shape[1:], CLASSES)
        each = rows.steps(w, x, y, np.arange(10), Clipping(clip), grid, factored=True)
        exact = [sum(int(v) ** 2 for v in row) for row in each]  # Python's: no rounding
        assert max(exact) <= (clip / grid) ** 2
        assert np.isfinite(scale) or not each[7].any()
        if clip == 1e-6:
            assert min(e for i, e in enumerate(exact) if i != 7) > 0.99 * (clip / grid) ** 2


def test_a_grid_that_does_not_fit_and_sums_without_a_bound_are_refused():
    x, y, w = rows_of("mlp", 2)
    rows = row_gradients(network_named("mlp"), x.shape[1:], CLASSES)
    table = [(2.0**-17, "must be in .*, got 131072"), (2.0**-50, "got 1125899906842624")]
    each_is_refused(table, lambda grid: rows.steps(w, x, y, np.array([0, 2]), Clipping(1.0), grid))
    with pytest.raises(Exception, match="too large: scale the features"):
        steps("softmax", rows_of("softmax", 2)[2], x * 1e9, y, Clipping(0.0, "none"))


class Doing(nn.Module):
    """A linear layer that does something to its rows first."""

    def __init__(self, what: Any) -> None:
        super().__init__()
        self.layer, self.what = nn.Linear(5, 3), what

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layer(self.what(x))
        return logits


class Remembers:
    last = torch.zeros(5)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        found, self.last = x + self.last, x[-1].detach()
        return found


class Shrinks(Doing):
    """It writes to its own weights, by the row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.layer.weight.mul_(1 - 1e-4 * x.abs().max().clamp(max=1))
        return super().forward(x)


class Elsewhere(Doing):
    """A weight used outside of its layer, which Opacus's hooks on layers do not see."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x @ self.layer.weight.T


def frozen() -> nn.Module:
    layer = nn.Linear(5, 3)
    layer.bias.requires_grad_(False)
    return layer


X = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)


def test_what_mixes_rows_or_has_no_gradients_of_them_is_refused():
    table: list[tuple[Any, str]] = [
        (nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3)), r"0\.running_mean .* changes wit"),
        (nn.Sequential(nn.BatchNorm1d(5, 1e-5, 0.1, True, False), nn.Linear(5, 3)), "BatchNorm"),
        (Doing(lambda x: x - x.mean(dim=0)), "depends on other rows"),
        (Doing(lambda x: x + 1e-6 * x.mean(dim=0)), "depends on other rows"),
        (Doing(lambda x: x + torch.randn_like(x)), "draws random numbers"),
        (Doing(Remembers()), "mixes or keeps rows"),
        (Shrinks(nn.Identity()), "changes its own state"),
        (Elsewhere(nn.Identity()), "a weight is used outside of its layer"),
        (frozen, "bias is frozen"),
        (nn.Linear(4, 3), "on rows of shape 5, fails: RuntimeError: mat1 and mat2"),
        (nn.Linear(5, 2), r"shape of logits of two rows .* must be \(2, 3\), got \(2, 2\)"),
        (dict, "AttributeError: 'dict' object has no attribute 'to'"),
        (5, "5 is not a model"),
        ("os:nothing", "--model os:nothing failed: AttributeError"),
    ]

    def tried(model: Any) -> None:
        row_gradients(network_named(register_network(model)), X.shape[1:], 3).check(X)

    each_is_refused(table, tried)
    tried(nn.Sequential(nn.GroupNorm(1, 5), nn.Dropout(0.5), nn.Linear(5, 3)))


def test_a_kernel_that_mixes_rows_by_a_bit_is_refused(monkeypatch):
    """As where a matrix product's last bits depend on what is beside a row."""
    network = network_named(register_network(nn.Sequential(nn.Linear(5, 3))))
    real = torch.nn.functional.linear

    def mixed(x: torch.Tensor, *more: Any) -> torch.Tensor:
        found = real(x, *more)
        return torch.where(x[:1, :1] == 0, torch.nextafter(found, found + 1), found)

    monkeypatch.setattr(torch.nn.functional, "linear", mixed)
    with pytest.raises(InputError, match="depends on other rows on this machine"):
        row_gradients(network, X.shape[1:], 3).check(X)


# -- modules of the user's own ---------------------------------------------------------------------


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
    model = networks.TrainedModel(register_network(mine), (5,), 3, own + 1)
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
    monkeypatch.setitem(networks.OWN, "mine:net", network_named("mlp"))
    w = np.zeros(network_named("mlp").size((5,), 3))
    networks.TrainedModel("mine:net", (5,), 3, w).write(tmp_path, "model")
    monkeypatch.delitem(networks.OWN, "mine:net")
    with pytest.raises(InputError, match="its name alone imports no code"):
        networks.load_model("model.npz")
    assert "mine" not in sys.modules
    with pytest.raises(InputError, match="shape of the weights of mine:net"):
        networks.load_model("model.npz", "mine:net")
    assert "mine" in sys.modules
