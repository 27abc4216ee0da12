"""Training with DP-SGD beside Opacus: an epoch of a CNN, on one thread.

Images are noise: what a step costs does not depend on them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.benchmarks.timing import Case, Contestant, named
from fedcal.core.numerics import Integers
from fedcal.core.shards import Shards
from fedcal.privacy.privacy import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.training import FedSGD
from fedcal.training.networks import enlist, network_named, text_of
from fedcal.units import Example

SHAPE, CLASSES = (28, 28), 10
BATCH, CLIP, LR, EPSILON, DELTA = 256, 1.0, 0.5, 8.0, 1e-5


def _network() -> str:
    """Name the CNN that made the shipped logits of MNIST."""
    from experiments.shipped.mnist_cnn import MnistCNN

    return enlist(MnistCNN)


def our_method(rows: int) -> FedSGD:
    """Return an epoch of SGD in one place."""
    return FedSGD(
        Federation(clients=1, classes=CLASSES, epsilon=EPSILON, delta=DELTA, unit=Example.name),
        network=_network(),
        shape=text_of(SHAPE),
        rows_per_client=float(rows),
        batch=float(BATCH),
        epochs=1.0,
        lr=LR,
        clip=CLIP,
    )


def our_epoch(x: NDArray[np.uint8], y: Integers) -> Callable[[], int]:
    """Plan, sampling, gradients, ring, noise, ledger and steps."""
    n = len(y)
    shards = Shards.from_owner(np.zeros((n, CLASSES)), y, np.zeros(n, np.int64), 1, inputs=x)
    method = our_method(n)

    def run() -> int:
        run_inline(method, shards)
        return method.released

    return run


def opacus_epoch(x: NDArray[np.uint8], y: Integers, multiplier: float) -> Callable[[], int]:
    """Run Opacus's engine with Poisson batches and the same noise, without accounting."""
    import torch
    from opacus import PrivacyEngine

    torch.set_num_threads(1)
    model = network_named(_network()).module(SHAPE, CLASSES, 0).train()
    data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about hooks and random generators
        private, optimiser, batches = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=LR),
            data_loader=torch.utils.data.DataLoader(data, batch_size=BATCH),
            noise_multiplier=multiplier,
            max_grad_norm=CLIP,
        )

    def run() -> int:
        steps = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
    n, rng = (512 if quick else 5120), np.random.default_rng(0)
    x, y = rng.integers(0, 256, (n, *SHAPE), dtype=np.uint8), rng.integers(0, CLASSES, n)
    multiplier = our_method(n).plan.multiplier
    return Case(
        f"an epoch of {n:,} rows, batch {BATCH}, MNIST CNN, epsilon {EPSILON:g}",
        None,
        [
            Contestant("fedcal", partial(our_epoch, x, y), named("steps")),
            Contestant("Opacus", partial(opacus_epoch, x, y, multiplier), named("steps")),
        ],
    )


CASES: dict[str, Callable[[bool], Case]] = {"dp-epoch": epoch}
