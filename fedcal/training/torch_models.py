"""The networks that are trained, in PyTorch.

Imported only by who trains: it needs torch at once. All take rows as they lie in the data and scale
or embed them themselves, so that their weights need nothing beside them. None has state beyond its
parameters: averaging the state dict averages the model. And none mixes the rows of a batch, so
that each row has a gradient of its own (`fedcal.training.row_gradients`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats

GROUPS = 2
"""Groups of each GroupNorm, as Reddi et al. (2021) have it for federated ResNets."""

SIDES = {"cnn": (2, 3), "resnet18": (2, 3), "lstm": (1,), "mlp": (1,)}
"""Model -> how many sides its rows may have: images (h, w[, channels]), texts and features one."""


@contextmanager
def drawn_by(seed: int) -> Iterator[None]:
    """Let torch draw by a seed, without changing other random numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, Purpose.SAMPLING, 0, "weights").integers(2**62)))
        yield


def build(
    model: str, shape: tuple[int, ...], classes: int, seed: int, hidden: tuple[int, ...] = ()
) -> nn.Module:
    """Return a model with initial weights drawn by `seed`.

    Raises InputError if there is no such model, or rows of this shape do not suit it.

    Parameters
    ----------
    model
        a key of `SIDES`
    shape
        of one row: (h, w) or (h, w, channels) of an image, (context,) of a text, (features,)
    classes
        outputs
    hidden
        widths of the hidden layers of `mlp`
    """
    if len(shape) not in SIDES[one_of("model", model, SIDES)]:
        raise InputError(f"the model {model} does not read rows of shape {shape}")
    with drawn_by(seed):
        if model == "lstm":
            return CharacterLSTM(classes)
        if model == "mlp":
            return mlp(shape[0], hidden, classes)
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


def weights_of(model: nn.Module) -> Floats:
    """All parameters in one vector, (size,), in the order of `model.parameters()`."""
    flat = parameters_to_vector(model.parameters()).detach()
    return np.asarray(flat.numpy(), np.float64)


def set_weights(model: nn.Module, w: Floats) -> None:
    """Give a model the parameters that `weights_of` told, rounded to its own precision.

    Raises InputError if there are more or fewer of them.
    """
    size = sum(p.numel() for p in model.parameters())
    if w.shape != (size,):
        raise InputError(f"the model has {size:,} parameters, got an array of shape {w.shape}")
    vector_to_parameters(torch.from_numpy(w.astype(np.float32)), model.parameters())


def write_state_dict(model: nn.Module, w: Floats, path: Path) -> None:
    """Write the state dict of a model with the parameters w, for `torch.load`."""
    set_weights(model, w)
    torch.save(model.state_dict(), path)


class _Scaled(nn.Module):
    """Pixels of 0..255 to [-1, 1]; floats as they are."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float() / 127.5 - 1 if x.dtype == torch.uint8 else x.float()


def mlp(features: int, hidden: tuple[int, ...], classes: int) -> nn.Module:
    """Hidden layers of ReLUs on rows of features of about unit size."""
    layers: OrderedDict[str, nn.Module] = OrderedDict(scaled=_Scaled())
    for k, (width, out) in enumerate(pairwise((features, *hidden)), 1):
        layers |= {f"dense{k}": nn.Linear(width, out), f"relu{k}": nn.ReLU()}
    layers[f"dense{len(hidden) + 1}"] = nn.Linear((features, *hidden)[-1], classes)
    return nn.Sequential(layers)


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
