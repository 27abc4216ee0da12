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

from fedcal.core.checks import InputError, whole
from fedcal.core.imports import need
from fedcal.core.numerics import Purpose, check_seed, softmax, stream
from fedcal.datasets import shifted
from fedcal.datasets._load import STEPS, Variant, key_of, unpacked
from fedcal.experiments.research.command import refuse_out, run_module
from fedcal.experiments.research.corruptions import corrupt
from fedcal.experiments.research.shift.files import read_bytes
from fedcal.experiments.training.data import LabelledRows
from fedcal.metrics import summary
from fedcal.storage.atomic import whole_file

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
    from fedcal.experiments.research.shipped.mnist_cnn import MnistCNN
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


def read_images(train: str, test: str, rows: int) -> tuple[LabelledRows, LabelledRows]:
    """Read the first `rows` training images, and every second one of the test images.

    Raises
    ------
    InputError
        If a file cannot be read, or the two do not go together.
    """
    first, second = read_bytes(train), read_bytes(test)
    second = second.test or second
    if first.x.shape[1:] != second.x.shape[1:]:
        raise InputError(
            f"{test!r}: images of {second.x.shape[1:]}, but those of {train!r} have "
            f"{first.x.shape[1:]}"
        )
    if second.classes > first.classes:
        raise InputError(f"{test!r}: class {second.classes - 1} is not in {train!r}")
    names = tuple(map(str, range(first.classes)))
    return (
        LabelledRows(first.x[:rows], first.y[:rows], names),
        LabelledRows(second.x[::2], second.y[::2], names),
    )


_OPTIONS: dict[str, dict[str, Any]] = {
    "train": {"required": True, "help": ".npz with x and y, or an image folder"},
    "test": {"required": True, "help": "the same of the test images"},
    "out": {"type": Path, "required": True, "help": "the .npz file to write"},
    "rows": {"type": int, "default": 20_000, "help": "training images, the first of them (20000)"},
    "epochs": {"type": int, "default": 3, "help": "passes over the images (3)"},
    "seed": {"type": int, "default": 0, "help": "of network and corruptions (0)"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, corrupt, keep the logits, and print accuracy and ECE before and after rounding."""
    run_module("shift.mnist", __doc__, _OPTIONS, _run, arguments)


def _run(options: Any) -> None:
    refuse_out(options.out)
    train, test = read_images(options.train, options.test, whole("rows", options.rows, 1))
    epochs, seed = whole("epochs", options.epochs, 1), check_seed(options.seed)
    arrays: dict[str, NDArray[np.uint8]] = {"labels": test.y.astype(np.uint8)}
    print(f"{'':<20} severity  accuracy %  ECE %  of what is kept: accuracy %  ECE %")
    for variant, logits in variants_of(train, test, epochs=epochs, seed=seed):
        code = packed(logits)
        exact, kept = (
            summary(softmax(z), test.y) for z in (logits.astype(np.float64), unpacked(code))
        )
        print(
            f"{variant[0]:<20} {variant[1]:>8}  {100 * exact['accuracy']:>10.2f}  "
            f"{100 * exact['ece']:>5.2f}  {100 * kept['accuracy']:>27.2f}  "
            f"{100 * kept['ece']:>5.2f}",
            flush=True,
        )
        arrays[key_of(variant)] = code
    with whole_file(options.out) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    print(f"written to {options.out}: {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
