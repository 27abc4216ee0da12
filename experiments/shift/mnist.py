"""Make the shipped set `mnist-shift` from your own copy of MNIST.

A small network is trained on the clean training images; kept are its logits on corrupted test
images, every second one of them (the first half of MNIST's is easier than the second), under each
of the 15 corruptions with severities 1 and 5, rounded by `packed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.corruptions import corrupt
from experiments.shipped.making import Arrays, make
from fedcal.core.checks import InputError
from fedcal.core.imports import need
from fedcal.core.numerics import Purpose, softmax, stream
from fedcal.datasets import shifted
from fedcal.datasets._load import STEPS, Variant, key_of, unpacked
from fedcal.metrics import summary
from fedcal.run.training_data import LabelledRows, read_labelled

TABLE = "digits"
"""Whose constants the corruptions have: the benchmarks' hardly touch digits."""


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


def variants_of(
    train: LabelledRows, test: LabelledRows, *, epochs: int, seed: int
) -> Iterator[tuple[Variant, NDArray[np.float32]]]:
    """(corruption, severity), ("none", 0) first, and the network's logits (m, classes) on `test`.

    The network's activations are normalised, so that neither they nor the logits fade with the
    contrast of the image: under domain shift it stays sure of itself, as the wide ResNets of Luo
    et al. do. Without it the logits of dim images shrink, and the network becomes underconfident.

    Parameters
    ----------
    train, test
        images (n, h, w[, channels]) of 0..255, and their labels
    epochs
        passes over the training images
    seed
        of the network and the corruptions; one machine and number of threads gives the same bits
    """
    torch = need("torch", "train", "training a network")
    from experiments.shipped.mnist_cnn import MnistCNN
    from fedcal.training.row_gradients import logits_of

    height, width, channels = (*train.x.shape[1:], 1)[:3]
    rng = stream(seed, Purpose.SAMPLING, 0, "shift")
    with torch.random.fork_rng(devices=[]):  # nobody else's random numbers change
        torch.manual_seed(int(rng.integers(2**62)))
        model = MnistCNN(height, width, channels, train.classes, normalised=True)
    _descend(model, torch.from_numpy(train.x), torch.from_numpy(train.y), epochs, rng)
    for name, severity in shifted("mnist-shift"):
        images = test.x
        if name != "none":
            images = corrupt(images, name, severity, seed, table=TABLE)
        yield (
            (name, severity),
            logits_of(model, torch.from_numpy(images), 1000).numpy(),
        )


def _descend(model: Any, x: Any, y: Any, epochs: int, rng: np.random.Generator) -> None:
    """SGD with momentum, whose learning rate rises to .05 and falls to 0 again."""
    import torch

    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps = epochs * -(-len(y) // 64)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.05, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for rows in torch.split(torch.from_numpy(rng.permutation(len(y))), 64):
            optimiser.zero_grad()
            loss: Any = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimiser.step()
            cycle.step()


def shipped(train: Path, test: Path, *, rows: int = 20_000, epochs: int = 3) -> Arrays:
    """Train on the first `rows` images; every second one of the test images is kept."""
    first, second = read_labelled(str(train)), read_labelled(str(test))
    second = second.test or second
    if first.x.shape[1:] != second.x.shape[1:] or second.classes > first.classes:
        raise InputError(f"{test} and {train} do not go together: sizes or classes differ")
    names = tuple(map(str, range(first.classes)))
    learnt = LabelledRows(first.x[:rows], first.y[:rows], names)
    kept = LabelledRows(second.x[::2], second.y[::2], names)
    arrays: Arrays = {"labels": kept.y.astype(np.uint8)}
    for variant, logits in variants_of(learnt, kept, epochs=epochs, seed=0):
        arrays[key_of(variant)] = packed(logits)
        exact, rounded = (
            summary(softmax(z), kept.y)
            for z in (logits.astype(np.float64), unpacked(arrays[key_of(variant)]))
        )
        told = (f"{100 * of[k]:.2f}" for of in (exact, rounded) for k in ("accuracy", "ece"))
        print(f"{variant[0]} {variant[1]}: accuracy, ECE %, and after rounding:", *told, flush=True)
    return arrays


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, corrupt, keep the logits, and print accuracy and ECE before and after rounding."""
    inputs = {"train": ".npz with x and y", "test": "the same of the test rows"}
    make("shift.mnist", str(__doc__), inputs, shipped, arguments)


if __name__ == "__main__":
    main()
