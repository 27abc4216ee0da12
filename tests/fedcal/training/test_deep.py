"""Gradients of single rows: beside plain PyTorch and Opacus; bounded, exact, of nobody else."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from refusals import each_is_refused
from torch import nn

from fedcal.core.types import Floats, Integers
from fedcal.training.deep import MLP
from fedcal.training.network import Clipping
from fedcal.training.networks import NETWORKS, network_named
from fedcal.training.own import enlist
from fedcal.training.row_gradients import BLOCK, RowGradients, row_gradients
from fedcal.training.torch_models import set_weights, weights_of


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


OWN = enlist(Odd)
GRID = 2.0**-36
SHAPES: dict[str, tuple[int, ...]] = {
    "cnn": (8, 9),
    "mlp": (6,),
    "mlp:48x16": (6,),
    OWN: (6,),
    "lstm": (5,),
    "resnet18": (8, 8, 3),
}
SMALL = tuple(name for name in SHAPES if name != "resnet18")
CLASSES = 4


def rows_of(network: str, n: int, seed: int = 0) -> tuple[NDArray[Any], Integers]:
    rng = np.random.default_rng(seed)
    shape = (n, *SHAPES[network])
    if SHAPES[network] == (6,):
        return rng.normal(size=shape), rng.integers(0, CLASSES, n)
    high = CLASSES if network == "lstm" else 256
    return rng.integers(0, high, shape, dtype=np.uint8), rng.integers(0, CLASSES, n)


def plain_gradients(network: str, w: Floats, x: NDArray[Any], y: Integers) -> Floats:
    """Row after row, by PyTorch alone: (n, size)."""
    model = network_named(network).module(SHAPES[network], CLASSES, 0)
    set_weights(model, w)
    found = []
    for i in range(len(y)):
        model.zero_grad()
        loss = nn.functional.cross_entropy(
            model(network_named(network).tensor(x[i : i + 1])), torch.from_numpy(y[i : i + 1])
        )
        loss.backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        found.append(np.concatenate([g.numpy().ravel() for g in grads]))
    return np.array(found, np.float64)


def steps(network: str, w: Floats, x: Any, y: Integers, clipping: Clipping, *cuts: int) -> Integers:
    offsets = np.array(cuts or (0, len(y)))
    return network_named(network).steps(w, x, y, offsets, CLASSES, clipping, GRID)


@pytest.mark.parametrize(
    ("network", "rule"),
    [
        *((network, rule) for network in SMALL for rule in ("row", "global", "none")),
        pytest.param("resnet18", "row", marks=pytest.mark.slow),
    ],
)
def test_sums_are_those_of_rows_that_pytorch_gives_one_by_one(network, rule):
    x, y = rows_of(network, 5)
    w = network_named(network).initial(SHAPES[network], CLASSES, 1)
    raw = plain_gradients(network, w, x, y)
    norms = np.linalg.norm(raw, axis=1)
    reach = float(np.median(norms)) * 1.001  # no row is on the edge
    clipping = Clipping(0.5, rule, reach)
    factors = {
        "row": np.minimum(1, 0.5 / norms),
        "global": np.where(norms <= reach, 0.5 / reach, 0.0),
        "none": np.ones(5),
    }[rule]
    assert rule != "global" or 0 < (factors > 0).sum() < 5
    wanted = (raw * factors[:, None]).sum(axis=0)
    ours = steps(network, w, x, y, clipping)[0] * GRID
    assert np.linalg.norm(ours - wanted) < 1e-4 * np.linalg.norm(wanted)


@pytest.mark.parametrize("network", SMALL)
def test_a_row_adds_the_same_bits_whoever_is_beside_it(network):
    """So that neighbours differ by what the row adds, and nothing else."""
    n = BLOCK + 5
    x, y = rows_of(network, n)
    w = network_named(network).initial(SHAPES[network], CLASSES, 1)
    clipping = Clipping(0.5)
    each = steps(network, w, x, y, clipping, *range(n + 1))
    order = np.random.default_rng(1).permutation(n)
    pooled = steps(network, w, x[order], y[order], clipping, 0, 2, 2, n)
    np.testing.assert_array_equal(pooled.sum(axis=0), each.sum(axis=0))
    assert not pooled[1].any()
    without = steps(network, w, np.delete(x, 3, axis=0), np.delete(y, 3), clipping)
    np.testing.assert_array_equal(pooled.sum(axis=0) - without[0], each[3])
    assert max(np.linalg.norm(row * GRID) for row in each) <= 0.5


@pytest.mark.parametrize("network", [name for name in SMALL if SHAPES[name] == (6,)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e30, np.inf, np.nan])
def test_no_row_adds_more_than_the_clip(network, scale):
    x, y = rows_of(network, 40)
    x[7] *= scale
    w = network_named(network).initial((6,), CLASSES, 1)
    for clip in (1e-6, 0.3, 100.0):
        grid = float(2.0 ** np.floor(np.log2(clip))) * GRID
        each = network_named(network).steps(w, x, y, np.arange(41), CLASSES, Clipping(clip), grid)
        exact = [sum(int(v) ** 2 for v in row) for row in each]  # Python's: no rounding
        assert max(exact) <= (clip / grid) ** 2
        assert np.isfinite(scale) or not each[7].any()
        if clip == 1e-6:
            assert min(e for i, e in enumerate(exact) if i != 7) > 0.99 * (clip / grid) ** 2


def test_what_has_no_gradients_of_single_rows_is_refused():
    mixes = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    unknown = nn.Sequential(nn.Bilinear(2, 2, 2))
    table = [
        (mixes, r"^this network has no gradients of single rows: .*Norm"),
        (unknown, "gradients of the layer Bilinear are not supported"),
    ]
    each_is_refused(table, RowGradients)
    x, y = rows_of("mlp", 2)
    mlp = MLP()
    network = row_gradients(mlp.module, (6,), CLASSES)
    short = r"the model has 1,412 parameters, got .* \(3,\)"
    each_is_refused([(np.zeros(3), short)], lambda w: next(network.blocks(w, x, y)))
    w = NETWORKS["mlp"].initial((6,), CLASSES, 1)
    each_is_refused(
        [(2.0**-23, "too coarse for gradients of the network mlp")],
        lambda grid: NETWORKS["mlp"].steps(w, x, y, np.array([0, 2]), CLASSES, Clipping(1.0), grid),
    )


def test_torch_keeps_its_threads_and_its_randomness():
    before, state = torch.get_num_threads(), torch.random.get_rng_state()
    torch.set_num_threads(2)
    try:
        w = NETWORKS["mlp"].initial((6,), CLASSES, 1)
        steps("mlp", w, *rows_of("mlp", 3), Clipping(1.0))
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.random.get_rng_state(), state)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("network", SHAPES)
def test_weights_and_logits(network):
    w = network_named(network).initial(SHAPES[network], CLASSES, 7)
    assert w.size == network_named(network).size(SHAPES[network], CLASSES)
    model = network_named(network).module(SHAPES[network], CLASSES, 7)
    np.testing.assert_array_equal(w, weights_of(model))
    x, _ = rows_of(network, 3)
    with torch.no_grad():
        wanted = model.eval()(network_named(network).tensor(x)).numpy()
    np.testing.assert_allclose(network_named(network).logits(w, x, CLASSES), wanted, atol=1e-5)
