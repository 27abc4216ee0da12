"""Weather: snow, frost, fog, and a brighter day."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.corruptions._images import (
    Draws,
    Images,
    separable,
    trailed,
    zoomed_line,
)

_GREY = np.array([0.299, 0.587, 0.114], np.float32)


def fog(x: Images, draws: Draws, scale: float, density: float, decay: float) -> Images:
    """Add a plasma fractal to the image, then dim it to its former largest value."""
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    cloud = plasma(draws, x.shape[1], x.shape[2], decay)[..., None]
    dim = brightest / (brightest + np.float32(density))
    return np.asarray((x + np.float32(density) * cloud) * dim)


def frost(x: Images, draws: Draws, scale: float, image_weight: float, ice: float) -> Images:
    """Add ice on the lens: bright ridges that are dense near the edges.

    The original adds cuts of six photographs of frost. Here the ice is drawn: ridges of one plasma
    fractal, where another one, raised towards the edges, lets them grow.
    """
    height, width = x.shape[1:3]
    ridge = 1 - np.abs(2 * plasma(draws, height, width, 1.6) - 1)
    down, right = (np.abs(np.linspace(-1, 1, size, dtype=np.float32)) for size in (height, width))
    edge = np.maximum(down[:, None], right[None, :])
    growth = np.clip(plasma(draws, height, width, 2.0) + edge - np.float32(0.5), 0, 1)
    layer = np.clip(1.5 * ridge**2 * growth, 0, 1)[..., None]
    return np.asarray(np.float32(image_weight) * x + np.float32(ice) * layer)


def snow(
    x: Images,
    draws: Draws,
    scale: float,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    image_weight: float,
) -> Images:
    """Add flakes that fall steeply, in both directions, before a whitened image.

    Flakes are normal noise (`mean`, `deviation`), enlarged by `zoom`, cut below `threshold` and
    blurred along their fall; the image's colours have the weight `image_weight`.
    """
    height, width, channels = x.shape[1:]
    flakes = np.float32(deviation) * draws.normal(height, width, 1) + np.float32(mean)
    flakes = separable(flakes, zoomed_line(height, zoom), zoomed_line(width, zoom))
    flakes = np.clip(np.where(flakes < threshold, np.float32(0), flakes), 0, 1)
    angles = np.float32(np.pi / 2) * (draws.uniform() - np.float32(1.5))
    flakes = trailed(flakes, radius * scale, sigma * scale, angles)
    grey = x @ _GREY[:, None] if channels == 3 else x.mean(axis=3, keepdims=True)
    white = np.maximum(x, 1.5 * grey + np.float32(0.5))
    x = np.float32(image_weight) * x + np.float32(1 - image_weight) * white
    return np.asarray(x + flakes + flakes[:, ::-1, ::-1])


def brightness(x: Images, draws: Draws, scale: float, more: float) -> Images:
    """Raise the value of each pixel in HSV (its largest channel); hue and saturation stay."""
    value = x.max(axis=3, keepdims=True)
    raised = np.minimum(value + np.float32(more), 1)
    return np.asarray(np.where(value > 0, x * (raised / np.where(value > 0, value, 1)), raised))


def plasma(draws: Draws, height: int, width: int, decay: float) -> Images:
    """Draw (n, height, width) plasma fractals in [0, 1], by diamonds and squares on a torus.

    Midpoints are the mean of their four neighbours and a uniform number, whose range shrinks by
    decay**2 from one level to the next (in the original the range goes in twice, too).
    """
    size = 1 << max(height - 1, width - 1, 1).bit_length()
    wild = 2 * draws.uniform(size, size) - 1
    field = np.zeros_like(wild)
    step, reach = size, 1.0
    while step > 1:
        half = step // 2
        corners = field[:, ::step, ::step]
        field[:, half::step, half::step] = (
            _mean(
                corners,
                np.roll(corners, -1, 1),
                np.roll(corners, -1, 2),
                np.roll(corners, (-1, -1), (1, 2)),
            )
            + reach * wild[:, half::step, half::step]
        )
        centres = field[:, half::step, half::step]
        field[:, ::step, half::step] = (
            _mean(centres, np.roll(centres, 1, 1), corners, np.roll(corners, -1, 2))
            + reach * wild[:, ::step, half::step]
        )
        field[:, half::step, ::step] = (
            _mean(centres, np.roll(centres, 1, 2), corners, np.roll(corners, -1, 1))
            + reach * wild[:, half::step, ::step]
        )
        step, reach = half, reach / decay**2
    field -= field.min(axis=(1, 2), keepdims=True)
    field /= field.max(axis=(1, 2), keepdims=True)
    return field[:, :height, :width]


def _mean(*neighbours: NDArray[np.float32]) -> Images:
    a, b, c, d = neighbours
    return np.asarray((a + b + c + d) * np.float32(0.25))
