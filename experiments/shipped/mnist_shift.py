"""Make the shipped set `mnist-shift` from your own copy of MNIST.

A small network is trained on the clean training images; kept are its logits on corrupted test
images, every second one of them (the first half of MNIST's is easier than the second), under each
of the 15 corruptions with severities 1 and 5, rounded by `packed`. (The file that ships was made
when JPEG was not Pillow's: its pixels differed by 0.02 and 0.6 grey levels on average.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from experiments.corruptions import corrupt
from experiments.shipped.making import IMAGES, Arrays, labelled_images, make
from experiments.shipped.mnist_cnn import MnistCNN
from fedcal.core.numerics import Integers, Purpose, stream
from fedcal.datasets import shifted
from fedcal.datasets._load import STEPS, key_of
from fedcal.training.row_gradients import logits_of


def packed(logits: ArrayLike) -> NDArray[np.uint8]:
    """Return logits as bytes, (n, c): sqrt(largest logit of the row - logit), in steps of 1/12.

    Values above 255 steps are cut. Confidence depends on the runners-up, so steps are fine near the
    top and coarse far below: depth 1 is stored to 1/12 nat, depth 25 to 5/12. Rounding keeps the
    row's order except for ties.

    """
    z = np.asarray(logits, np.float64)
    depth = z.max(axis=1, keepdims=True) - z
    code = np.minimum(np.rint(STEPS * np.sqrt(depth)), 255)
    return np.asarray(code, np.uint8)


def network(x: NDArray[np.uint8], y: Integers, *, epochs: int) -> MnistCNN:
    """Train the network: one machine and number of threads gives the same bits.

    Its activations are normalised, so that neither they nor the logits fade with the contrast of
    the image: under domain shift it stays sure of itself, as the wide ResNets of Luo et al. do.
    Without it the logits of dim images shrink, and the network becomes underconfident.

    SGD with momentum; its learning rate rises to .05 and falls to 0 again.
    """
    rng = stream(0, Purpose.SAMPLING, 0, "shift")
    with torch.random.fork_rng(devices=[]):  # nobody else's random numbers change
        torch.manual_seed(int(rng.integers(2**62)))
        model = MnistCNN(normalised=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps = epochs * -(-len(y) // 64)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.05, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for rows in torch.split(torch.from_numpy(rng.permutation(len(y))), 64):
            optimiser.zero_grad()
            logits = model(torch.from_numpy(x)[rows])
            loss: Any = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y)[rows])
            loss.backward()
            optimiser.step()
            cycle.step()
    return model


def shipped(train: Path, test: Path, *, rows: int = 20_000, epochs: int = 3) -> Arrays:
    """Train on the first `rows` images; every second one of the test images is kept."""
    first, second = labelled_images(train, test)
    model = network(first.x[:rows], first.y[:rows], epochs=epochs)
    arrays: Arrays = {"labels": second.y[::2].astype(np.uint8)}
    for name, severity in shifted("mnist-shift"):
        images = corrupt(second.x[::2], name, severity, 0)
        logits = logits_of(model, torch.from_numpy(images), 1000).numpy()
        arrays[key_of((name, severity))] = packed(logits)
    return arrays


if __name__ == "__main__":
    make(str(__doc__), IMAGES, shipped)
