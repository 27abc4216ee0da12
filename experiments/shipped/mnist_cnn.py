"""The networks that made logits of images: `mnist-cnn`, `mnist-shift`, and those of CIFAR-10."""

from __future__ import annotations

import torch
from torch import Tensor, nn

GROUPS = 2
"""Groups of each GroupNorm, as Reddi et al. (2021) have it for federated ResNets."""


class Pixels(nn.Module):
    """Images (n, h, w[, channels]) of 0..255 to (n, channels, h, w) in [-1, 1]."""

    def forward(self, x: Tensor) -> Tensor:
        """Scale bytes; floats stay as they are."""
        x = x.unsqueeze(-1) if x.ndim == 3 else x
        scaled = x.float() / 127.5 - 1 if x.dtype == torch.uint8 else x.float()
        # of one channel `contiguous` keeps the strides, which Opacus' gradients take for others
        return scaled.permute(0, 3, 1, 2).clone(memory_format=torch.contiguous_format)


class MnistCNN(nn.Sequential):
    """Two convolutions and two dense layers, after McMahan et al. (2017) with fewer channels.

    conv 5x5 (16) - pool - conv 5x5 (32) - pool - dense (128) - dense (classes): 215,370 parameters
    for 28 x 28 grey images of 10 classes. `normalised` normalises the activations of each layer but
    the last.
    """

    def __init__(
        self,
        height: int = 28,
        width: int = 28,
        channels: int = 1,
        classes: int = 10,
        *,
        normalised: bool = False,
    ) -> None:
        norms: list[nn.Module] = [nn.Identity(), nn.Identity(), nn.Identity()]
        if normalised:
            norms = [nn.GroupNorm(GROUPS, 16), nn.GroupNorm(GROUPS, 32), nn.LayerNorm(128)]
        super().__init__(
            Pixels(),
            *(nn.Conv2d(channels, 16, 5, padding=2), norms[0], nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 5, padding=2), norms[1], nn.ReLU(), nn.MaxPool2d(2)),
            nn.Flatten(),
            *(nn.Linear(32 * (height // 4) * (width // 4), 128), norms[2], nn.ReLU()),
            nn.Linear(128, classes),
        )


class Cifar10CNN(nn.Sequential):
    """Two convolutions and three dense layers for 32 x 32 colour images, after LeCun et al. (1998).

    conv 5x5 (6) - pool - conv 5x5 (16) - pool - dense (120) - dense (84) - dense (10): 62,006
    parameters. Maddock et al. call their network a simple two-layer CNN and give no widths; these
    are those of the benchmark of Li et al., "Federated learning on non-IID data silos" (2022).
    """

    def __init__(self) -> None:
        super().__init__(
            Pixels(),
            *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Flatten(),
            *(nn.Linear(400, 120), nn.ReLU()),
            *(nn.Linear(120, 84), nn.ReLU()),
            nn.Linear(84, 10),
        )
