"""The base models, in PyTorch, and what a client computes with one: local SGD and predictions.

Imported only by who trains: it needs torch at once. All models take rows as they lie in the data
and scale or embed them themselves, so that `model.pt` needs nothing beside it. None has state
beyond its parameters: averaging the state dict averages the model.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

from fedcal.errors import InputError
from fedcal.experiments.training.splits import ClientData
from fedcal.streams import Purpose, stream

GROUPS = 2
"""Groups of each GroupNorm, as Reddi et al. (2021) have it for federated ResNets."""


def build(model: str, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """A model with initial weights drawn by `seed`.

    Parameters
    ----------
    model
        cnn | resnet18 | lstm
    shape
        of one row: (h, w) or (h, w, channels) of an image, (context,) of a text
    classes
        outputs

    Raises
    ------
    InputError
        If images are too small for the model.
    """
    with torch.random.fork_rng(devices=[]):  # nobody else's random numbers change
        torch.manual_seed(int(stream(seed, Purpose.SAMPLING, 0, "weights").integers(2**62)))
        if model == "lstm":
            return CharacterLSTM(classes)
        height, width, channels = (*shape, 1)[:3]
        least = 4 if model == "cnn" else 8
        if min(height, width) < least:
            raise InputError(
                f"images of {height} x {width} are too small for the model {model}: "
                f"at least {least} x {least}"
            )
        if model == "cnn":
            return small_cnn(height, width, channels, classes)
        return resnet18(channels, classes)


def as_input(x: NDArray[Any]) -> Tensor:
    """Rows as a model takes them: images (n, h, w[, channels]) become (n, channels, h, w)."""
    rows = torch.from_numpy(x)
    if rows.ndim == 3:
        return rows.unsqueeze(1)
    return rows.permute(0, 3, 1, 2).contiguous() if rows.ndim == 4 else rows


class _Scaled(nn.Module):
    """Pixels of 0..255 to [-1, 1]; floats as they are."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float() / 127.5 - 1 if x.dtype == torch.uint8 else x.float()


def small_cnn(
    height: int, width: int, channels: int, classes: int, *, normalised: bool = False
) -> nn.Module:
    """Two convolutions and two dense layers, after McMahan et al. (2017) with fewer channels.

    conv 5x5 (16) - pool - conv 5x5 (32) - pool - dense (128) - dense (classes): 215,370
    parameters for 28 x 28 grey images of 10 classes. It takes (n, channels, h, w) and gives
    (n, classes) logits. `normalised` normalises the activations of each layer but the last.
    """
    norms = (nn.GroupNorm(GROUPS, 16), nn.GroupNorm(GROUPS, 32), nn.LayerNorm(128))
    norm1, norm2, norm3 = norms if normalised else [nn.Identity()] * 3
    return nn.Sequential(
        OrderedDict(
            scaled=_Scaled(),
            conv1=nn.Conv2d(channels, 16, 5, padding=2),
            norm1=norm1,
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(16, 32, 5, padding=2),
            norm2=norm2,
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flat=nn.Flatten(),
            dense1=nn.Linear(32 * (height // 4) * (width // 4), 128),
            norm3=norm3,
            relu3=nn.ReLU(),
            dense2=nn.Linear(128, classes),
        )
    )


def resnet18(channels: int, classes: int) -> nn.Module:
    """ResNet-18 for small images: a 3x3 stem without pooling (He et al. 2016, 4.2).

    With GroupNorm, not BatchNorm: a client's batches have its own few labels, so that batch
    statistics differ between clients and their average fits nobody (Hsieh et al. 2020).
    """
    stem, widths = _convolution(channels, 64, 3, 1), (64, 64, 128, 256, 512)
    stages = [
        nn.Sequential(_Residual(width, out, 1 if width == out else 2), _Residual(out, out, 1))
        for width, out in pairwise(widths)
    ]
    return nn.Sequential(
        OrderedDict(
            scaled=_Scaled(),
            stem=stem,
            relu=nn.ReLU(),
            blocks=nn.Sequential(*(block for stage in stages for block in stage)),
            pool=nn.AdaptiveAvgPool2d(1),
            flat=nn.Flatten(),
            dense=nn.Linear(512, classes),
        )
    )


class _Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut; at first the shortcut alone (Goyal et al. 2017)."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(width, out, 3, stride)
        self.second = _convolution(out, out, 3, 1)
        nn.init.zeros_(self.second.get_parameter("1.weight"))
        same = stride == 1 and width == out
        self.shortcut = nn.Identity() if same else _convolution(width, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x).relu()) + self.shortcut(x)
        return y.relu()


def _convolution(width: int, out: int, size: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(width, out, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(convolution, nn.GroupNorm(GROUPS, out))


class CharacterLSTM(nn.Module):
    """Next character from the ones before it: embedding (8), two LSTM layers (256), as in LEAF."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.dense = nn.Linear(256, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(n, context) character codes -> (n, classes) logits of the character that follows."""
        hidden, _ = self.lstm(self.embedding(x.long()))
        logits: Tensor = self.dense(hidden[:, -1])
        return logits


class LocalTrainer:
    """A model and the rows of simulated clients, as tensors that are made once.

    One trainer serves all clients of a process, one after the other. Torch gets one thread: sums
    then have one order, and the same seed gives the same bits on machines of any size.
    """

    def __init__(self, model: str, federation: ClientData, seed: int) -> None:
        torch.set_num_threads(1)
        self.model = build(model, federation.shape, federation.classes, seed)
        self._federation = federation
        self._tensors: dict[tuple[str, int], tuple[Tensor, Tensor]] = {}

    def rows(self, part: str, site: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels of one part ("train", "calibration" or "test") of a client."""
        if (part, site) not in self._tensors:
            rows = self._federation.parts[part][site]
            self._tensors[part, site] = as_input(rows.x), torch.from_numpy(rows.y)
        return self._tensors[part, site]

    def predict(self, part: str) -> NDArray[np.float32]:
        """(n, classes) float32 logits of one part of all clients, client by client."""
        found = [
            logits_of(self.model, self.rows(part, site)[0]).numpy()
            for site in range(self._federation.clients)
            if len(self._federation.parts[part][site].y)
        ]
        return np.concatenate(found)


def descend(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    rng: np.random.Generator,
    one_cycle: bool = False,
) -> float:
    """SGD on the cross-entropy, in batches of shuffled rows; its mean over all rows seen.

    It is plain, at one learning rate. With `one_cycle` there is momentum, and the learning rate
    rises to `lr` and falls to 0 again.
    """
    optimiser = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9 if one_cycle else 0.0)
    steps = epochs * -(-len(y) // batch_size)
    cycle = OneCycleLR(optimiser, lr, total_steps=steps) if one_cycle else None
    model.train()
    total = 0.0
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(y)))
        for rows in torch.split(order, batch_size):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if cycle is not None:
                cycle.step()
            total += float(loss.detach()) * len(rows)
    return total / (epochs * len(y))


def logits_of(model: nn.Module, x: Tensor, block: int = 256) -> Tensor:
    """(n, classes) logits of rows, `block` at a time."""
    model.eval()
    with torch.no_grad():
        return torch.cat([model(rows) for rows in torch.split(x, block)])


def judge(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Mean cross-entropy and accuracy."""
    logits = logits_of(model, x)
    loss = nn.functional.cross_entropy(logits, y)
    return float(loss), float((logits.argmax(dim=1) == y).double().mean())
