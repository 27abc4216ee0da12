"""Training with DP-SGD beside Opacus: a step and an epoch of a CNN, ten epochs of a linear probe.

All on one thread. Images and features are noise: what a step costs does not depend on them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.numerics import Floats, Integers
from fedcal.core.shards import Shards
from fedcal.experiments.research.benchmarks.timing import Case, Contestant, Prepare, named
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.privacy.federation import Federation
from fedcal.strategies.methods.training import FedSGD
from fedcal.training.networks import Clipping, enlist, network_named, row_gradients, text_of
from fedcal.units import Example

SHAPE, CLASSES = (28, 28), 10
WIDTH = 512
BATCH, ROWS, QUICK_ROWS = 256, 5120, 512
CLIP, LR, EPSILON, DELTA = 1.0, 0.5, 8.0, 1e-5
GRID = 2.0**-36

Rows = tuple[NDArray[np.uint8], Integers]


def images(n: int) -> Rows:
    """Pixels and labels, drawn."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (n, *SHAPE), dtype=np.uint8), rng.integers(0, CLASSES, n)


def _network() -> str:
    """Name the CNN that made the shipped logits of MNIST."""
    from fedcal.experiments.research.shipped.mnist_cnn import MnistCNN

    return enlist(MnistCNN)


def start() -> Floats:
    """Weights that everybody begins with."""
    return network_named(_network()).initial(SHAPE, CLASSES, 0)


def _model() -> Any:
    """Build the network in PyTorch, on one thread."""
    import torch

    torch.set_num_threads(1)
    return network_named(_network()).module(SHAPE, CLASSES, 0)


def _tensors(rows: Rows) -> tuple[Any, Any]:
    import torch

    return torch.from_numpy(rows[0]), torch.from_numpy(rows[1])


# -- a step -------------------------------------------------------------------------------------


def our_sum(rows: Rows) -> Callable[[], float]:
    """Sum clipped gradients, in whole steps; return the norm."""
    x, y = rows
    w, cuts = start(), np.array([0, len(y)])
    gradients = row_gradients(network_named(_network()), SHAPE, CLASSES)

    def run() -> float:
        sums = gradients.steps(w, x, y, cuts, Clipping(CLIP), GRID)
        return float(np.linalg.norm(sums[0] * GRID))

    return run


def opacus_sum(rows: Rows, *, ghost: bool) -> Callable[[], float]:
    """Sum by Opacus's gradients of each row, or by its norms and a second backward pass."""
    model, (x, y) = _model(), _tensors(rows)
    import torch
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    def norm_of(parameters: Any, name: str) -> float:
        squares = [float(getattr(p, name).double().pow(2).sum()) for p in parameters]
        return math.sqrt(sum(squares))

    summed = torch.nn.CrossEntropyLoss(reduction="sum")
    given: dict[str, Any] = {
        "noise_multiplier": 0.0,
        "max_grad_norm": CLIP,
        "expected_batch_size": BATCH,
        "loss_reduction": "sum",
    }
    if not ghost:
        wrapped = GradSampleModule(model, loss_reduction="sum")
        optimiser = DPOptimizer(torch.optim.SGD(wrapped.parameters(), lr=LR), **given)

        def run() -> float:
            optimiser.zero_grad()
            summed(wrapped(x), y).backward()
            optimiser.clip_and_accumulate()
            return norm_of(wrapped.parameters(), "summed_grad")

        return run
    fast = GradSampleModuleFastGradientClipping(
        model, loss_reduction="sum", max_grad_norm=CLIP, use_ghost_clipping=True
    )
    quick = DPOptimizerFastGradientClipping(torch.optim.SGD(fast.parameters(), lr=LR), **given)
    double = DPLossFastGradientClipping(fast, quick, summed, "sum")

    def twice() -> float:
        quick.zero_grad()
        double(fast(x), y).backward()
        return norm_of(fast.parameters(), "grad")

    return twice


def plain_sum(rows: Rows) -> Callable[[], float]:
    """One gradient of all rows, as without privacy."""
    model, (x, y) = _model(), _tensors(rows)
    import torch

    summed = torch.nn.CrossEntropyLoss(reduction="sum")

    def run() -> float:
        model.zero_grad()
        summed(model(x), y).backward()
        return 0.0

    return run


def step(quick: bool) -> Case:
    """Time the sum of a batch's clipped gradients."""
    rows = images(32 if quick else BATCH)

    values = named("norm of the sum")
    return Case(
        f"clipped gradients of {len(rows[1])} rows, MNIST CNN",
        None,
        [
            Contestant("fedcal", partial(our_sum, rows), values),
            Contestant("Opacus", _quiet(opacus_sum, rows, ghost=False), values),
            Contestant("Opacus, ghost clipping", _quiet(opacus_sum, rows, ghost=True), values),
            Contestant("PyTorch without privacy", partial(plain_sum, rows), lambda norm: {}),
        ],
    )


def _quiet(prepare: Callable[..., Callable[[], Any]], *given: Any, **options: Any) -> Prepare:
    """Without the peer's warnings about hooks and random generators."""

    def quiet(work: Callable[..., Any], *given: Any, **options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work(*given, **options)

    return lambda: partial(quiet, quiet(prepare, *given, **options))


# -- an epoch -----------------------------------------------------------------------------------


def our_method(
    rows: Rows, network: str | None = None, epochs: float = 1.0, epsilon: float = EPSILON
) -> FedSGD:
    """Return some epochs of SGD in one place."""
    x, y = rows
    private: dict[str, Any] = {"clip": CLIP} if math.isfinite(epsilon) else {}
    return FedSGD(
        Federation(clients=1, classes=CLASSES, epsilon=epsilon, delta=DELTA, unit=Example.name),
        network=network or _network(),
        shape=text_of(x.shape[1:]),
        rows_per_client=float(len(y)),
        batch=float(BATCH),
        epochs=epochs,
        lr=LR,
        **private,
    )


def our_epochs(rows: Rows, **how: Any) -> Callable[[], int]:
    """Plan, sampling, gradients, ring, noise, ledger and steps."""
    x, y = rows
    n = len(y)
    shards = Shards.from_owner(np.zeros((n, CLASSES)), y, np.zeros(n, np.int64), 1, inputs=x)
    method = our_method(rows, **how)

    def run() -> int:
        run_inline(method, shards)
        return method.released

    return run


def opacus_epochs(
    rows: Rows, multiplier: float, make: Callable[[], Any], epochs: int = 1
) -> Callable[[], int]:
    """Run Opacus's engine with Poisson batches and the same noise, without accounting."""
    model, (x, y) = make(), _tensors(rows)
    import torch
    from opacus import PrivacyEngine

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=BATCH)
    private, optimiser, batches = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=LR),
        data_loader=loader,
        noise_multiplier=multiplier,
        max_grad_norm=CLIP,
    )

    def run() -> int:
        steps = 0
        for _ in range(epochs):
            for some, labels in batches:
                optimiser.zero_grad()
                loss: Any = torch.nn.functional.cross_entropy(private(some), labels)
                loss.backward()
                optimiser.step()
                steps += 1
        return steps

    return run


def epoch(quick: bool) -> Case:
    """All that a training does in an epoch."""
    rows = images(QUICK_ROWS if quick else ROWS)
    n = len(rows[1])

    values, multiplier = named("steps"), our_method(rows).plan.multiplier
    return Case(
        f"an epoch of {n:,} rows, batch {BATCH}, MNIST CNN, epsilon {EPSILON:g}",
        None,
        [
            Contestant("fedcal", partial(our_epochs, rows), values),
            Contestant("Opacus", _quiet(opacus_epochs, rows, multiplier, _model), values),
        ],
    )


# -- a linear probe -----------------------------------------------------------------------------


def features(n: int) -> Rows:
    """Rows of norm 1 and labels, drawn."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, WIDTH), np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, rng.integers(0, CLASSES, n)  # type: ignore[return-value]


def _head() -> Any:
    import torch

    torch.set_num_threads(1)
    return torch.nn.Linear(WIDTH, CLASSES)


def probe(quick: bool) -> Case:
    """Time a linear head on fixed features, with privacy and without."""
    n, epochs = (1024, 1) if quick else (50_000, 10)
    rows = features(n)
    head: dict[str, Any] = {"network": "softmax", "epochs": float(epochs)}
    values, multiplier = named("steps"), our_method(rows, **head).plan.multiplier
    return Case(
        f"linear probe, {epochs} epochs of {n:,} x {WIDTH}, batch {BATCH}, epsilon {EPSILON:g}",
        5.0,
        [
            Contestant("fedcal", partial(our_epochs, rows, **head), values),
            Contestant(
                "fedcal without privacy",
                partial(our_epochs, rows, epsilon=math.inf, **head),
                values,
            ),
            Contestant("Opacus", _quiet(opacus_epochs, rows, multiplier, _head, epochs), values),
        ],
    )


CASES: dict[str, Callable[[bool], Case]] = {
    "dp-step": step,
    "dp-epoch": epoch,
    "dp-probe": probe,
}
