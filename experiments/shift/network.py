"""A small network, trained in one place on clean images. It needs torch at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from experiments.training.models import as_input
from fedcal.streams import Purpose, stream

BATCH = 64
RATE = 0.05
"""Largest learning rate of SGD with momentum 0.9: it rises to it and falls to 0 again."""

_AT_A_TIME = 1000


class NormalisedCNN(nn.Module):
    """Two convolutions and two dense layers, each with its activations normalised.

    conv 5x5 (16) - pool - conv 5x5 (32) - pool - dense (128) - dense (classes). Normalised
    activations do not fade with the contrast of the image, nor do the logits: under domain shift
    such networks stay sure of themselves, as the wide ResNets of Luo et al. do. Without it the
    logits of dim images shrink, and the network becomes underconfident.
    """

    def __init__(self, height: int, width: int, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 5, padding=2)
        self.norm1 = nn.GroupNorm(2, 16)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2)
        self.norm2 = nn.GroupNorm(2, 32)
        self.dense1 = nn.Linear(32 * (height // 4) * (width // 4), 128)
        self.norm3 = nn.LayerNorm(128)
        self.dense2 = nn.Linear(128, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, channels, h, w) of 0..255 -> (n, classes) logits."""
        x = x.float() / 127.5 - 1
        x = nn.functional.max_pool2d(self.norm1(self.conv1(x)).relu(), 2)
        x = nn.functional.max_pool2d(self.norm2(self.conv2(x)).relu(), 2)
        logits: torch.Tensor = self.dense2(self.norm3(self.dense1(x.flatten(1))).relu())
        return logits


def trained(
    x: NDArray[np.uint8], y: NDArray[np.int64], classes: int, epochs: int, seed: int
) -> NormalisedCNN:
    """A network trained by cross-entropy, without augmentation and without decay of weights.

    Parameters
    ----------
    x : (n, h, w) or (n, h, w, channels) images
    y : (n,) classes
    epochs : passes over the rows, in an order drawn by `seed`
    seed : of the weights and the order; one machine and number of threads gives the same bits
    """
    height, width, channels = (*x.shape[1:], 1)[:3]
    rng = stream(seed, Purpose.SAMPLING, 0, "shift")
    with torch.random.fork_rng(devices=[]):  # nobody else's random numbers change
        torch.manual_seed(int(rng.integers(2**62)))
        model = NormalisedCNN(height, width, channels, classes)
    images, labels = as_input(x), torch.from_numpy(y)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    steps = epochs * -(-len(x) // BATCH)
    schedule: Any = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    for _ in range(epochs):
        for rows in torch.from_numpy(rng.permutation(len(x))).split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimiser.step()
            schedule.step()
    return model


def logits_of(model: nn.Module, x: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(n, classes) logits of images, as `trained` takes them."""
    with torch.no_grad():
        parts = [model(part).numpy() for part in as_input(x).split(_AT_A_TIME)]
    return np.concatenate(parts)
