"""A small network, trained in one place on clean images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.optional import need
from fedcal.streams import Purpose, stream

BATCH = 64
RATE = 0.05
"""Largest learning rate of SGD with momentum 0.9: it rises to it and falls to 0 again."""

_AT_A_TIME = 1000


def normalised_cnn(height: int, width: int, channels: int, classes: int) -> Any:
    """Two convolutions and two dense layers, each with its activations normalised.

    conv 5x5 (16) - pool - conv 5x5 (32) - pool - dense (128) - dense (classes). Normalised
    activations do not fade with the contrast of the image, nor do the logits: under domain shift
    such networks stay sure of themselves, as the wide ResNets of Luo et al. do. Without it the
    logits of dim images shrink, and the network becomes underconfident. It takes (n, channels, h,
    w) floats in [-1, 1] and gives (n, classes) logits.
    """
    nn = need("torch.nn", "train", "training a network")
    return nn.Sequential(
        *(nn.Conv2d(channels, 16, 5, padding=2), nn.GroupNorm(2, 16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5, padding=2), nn.GroupNorm(2, 32), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        *(nn.Linear(32 * (height // 4) * (width // 4), 128), nn.LayerNorm(128), nn.ReLU()),
        nn.Linear(128, classes),
    )


def trained(
    x: NDArray[np.uint8], y: NDArray[np.int64], classes: int, epochs: int, seed: int
) -> Any:
    """A network trained by cross-entropy, without augmentation and without decay of weights.

    Parameters
    ----------
    x : (n, h, w) or (n, h, w, channels) images
    y : (n,) classes
    epochs : passes over the rows, in an order drawn by `seed`
    seed : of the weights and the order; one machine and number of threads gives the same bits
    """
    torch = need("torch", "train", "training a network")
    from fedcal.experiments.training.models import as_input, scaled

    height, width, channels = (*x.shape[1:], 1)[:3]
    rng = stream(seed, Purpose.SAMPLING, 0, "shift")
    with torch.random.fork_rng(devices=[]):  # nobody else's random numbers change
        torch.manual_seed(int(rng.integers(2**62)))
        model = normalised_cnn(height, width, channels, classes)
    labels, loss = torch.from_numpy(y), torch.nn.CrossEntropyLoss()
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    steps = epochs * -(-len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x), BATCH):
            rows = order[start : start + BATCH]
            optimiser.zero_grad()
            loss(model(scaled(as_input(x[rows]))), labels[rows]).backward()
            optimiser.step()
            schedule.step()
    return model


def logits_of(model: Any, x: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(n, classes) logits of images, as `trained` takes them."""
    need("torch", "train", "running a network")
    from fedcal.experiments.training import local
    from fedcal.experiments.training.models import as_input, scaled

    found: NDArray[np.float32] = local.logits_of(model, scaled(as_input(x)), _AT_A_TIME).numpy()
    return found
