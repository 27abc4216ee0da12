"""What all corruptions share: random numbers by image, filters and resampling of batches.

An image's draws, and its bits, do not depend on the other images.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from fedcal.core.numerics import Floats, Integers, check_seed

Images: TypeAlias = NDArray[np.float32]
"""(n, h, w, channels) in [0, 1]."""

SUBPIXELS = 9
"""Points along each side of a pixel at which a disk is sampled."""


class Draws:
    """One generator for each image, keyed by seed, purpose and the image's number.

    The key does not include the severity: where two severities of one image draw alike they share
    their randomness, so that a stronger corruption is the same one, stronger.
    """

    def __init__(self, seed: int, purpose: str, numbers: Integers) -> None:
        text = f"fedcal corruption {check_seed(seed)} {purpose}"
        key = np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], "<u8")
        self._streams = [
            np.random.Generator(np.random.Philox(key=key, counter=[0, 0, number, 0]))
            for number in numbers.tolist()
        ]

    def normal(self, *shape: int) -> Images:
        """Draw (n, *shape) standard normal numbers."""
        return self._filled(shape, lambda g, out: g.standard_normal(out=out, dtype=np.float32))

    def uniform(self, *shape: int) -> Images:
        """Draw (n, *shape) numbers in [0, 1)."""
        return self._filled(shape, lambda g, out: g.random(out=out, dtype=np.float32))

    def offsets(self, reach: int, *shape: int) -> NDArray[np.int8]:
        """Draw (n, *shape) whole numbers in [-reach, reach)."""
        return np.stack([g.integers(-reach, reach, shape, np.int8) for g in self._streams])

    def poisson(self, mean: Images) -> Images:
        """Draw counts with the means `mean`, shape (n, ...)."""
        pairs = zip(self._streams, mean, strict=True)
        return np.stack([g.poisson(m).astype(np.float32) for g, m in pairs])

    def _filled(self, shape: Sequence[int], fill: Callable[..., Any]) -> Images:
        out = np.empty((len(self._streams), *shape), np.float32)
        for i, generator in enumerate(self._streams):
            fill(generator, out[i, ...])
        return out


def gaussian(x: Images, sigma: float) -> Images:
    """Blur each channel of (n, h, w, channels) by a normal kernel, cut at three sigma."""
    if sigma < 0.1:  # e**-50 of a pixel would reach the next one
        return x
    for axis in (1, 2):
        x = np.asarray(ndimage.gaussian_filter1d(x, sigma, axis, truncate=3.0), np.float32)
    return x


def disk(radius: float, softness: float) -> Floats:
    """Return a (k, k) kernel of sum 1: each pixel's area within `radius`, softened by a normal."""
    reach = int(np.ceil(radius + 0.5)) + int(np.ceil(2 * softness))
    fine = (np.arange((2 * reach + 1) * SUBPIXELS) + 0.5) / SUBPIXELS - reach - 0.5
    inside = fine[:, None] ** 2 + fine[None, :] ** 2 <= max(radius, 0.5 / SUBPIXELS) ** 2
    size = 2 * reach + 1
    kernel = inside.reshape(size, SUBPIXELS, size, SUBPIXELS).mean(axis=(1, 3))
    if softness > 0:
        kernel = ndimage.gaussian_filter(kernel, softness, mode="constant")
    return np.asarray(kernel / kernel.sum())


def convolved(x: Images, kernel: Floats) -> Images:
    """Convolve (n, h, w, channels) with one kernel, mirrored at the edges."""
    reach = len(kernel) // 2
    height, width = x.shape[1:3]
    padded = _mirrored(x, reach)
    out = np.zeros_like(x)
    for i, j in np.argwhere(kernel > 1e-6):
        out += np.float32(kernel[i, j]) * padded[:, i : i + height, j : j + width]
    return out


def _mirrored(x: Images, reach: int) -> Images:
    return np.pad(x, ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="reflect")


def trailed(x: Images, radius: float, sigma: float, angles: NDArray[np.float32]) -> Images:
    """Blur by motion: half a normal kernel along a line, each image in its own direction.

    The kernel has `2 radius + 1` taps one pixel apart, at the nearest pixel each, as ImageMagick's
    `-motion-blur` has it; beyond the edge the edge goes on.

    Parameters
    ----------
    x
        (n, h, w, channels)
    radius, sigma
        pixels
    angles
        (n,) radians, from the direction of growing columns towards growing rows
    """
    n, height, width = x.shape[:3]
    taps = np.arange(2 * int(np.ceil(radius)) + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    weights /= weights.sum()
    image = np.arange(n)[:, None, None]
    out = np.zeros_like(x)
    for tap, weight in zip(taps, weights.astype(np.float32), strict=True):
        down = np.rint(tap * np.sin(angles)).astype(np.int64)[:, None]
        right = np.rint(tap * np.cos(angles)).astype(np.int64)[:, None]
        rows = np.clip(np.arange(height) + down, 0, height - 1)
        columns = np.clip(np.arange(width) + right, 0, width - 1)
        out += weight * x[image, rows[:, :, None], columns[:, None, :]]
    return out


def sampled(x: Images, rows: Images, columns: Images) -> Images:
    """Sample (n, h, w, channels) at the places `rows`, `columns` (n, h, w), linearly.

    Beyond the edge the image is mirrored.
    """
    height, width = x.shape[1:3]
    image = np.arange(len(x))[:, None, None]
    top, left = np.floor(rows), np.floor(columns)
    down, right = (rows - top)[..., None], (columns - left)[..., None]
    y0, x0 = top.astype(np.int64), left.astype(np.int64)
    y1, x1 = _mirror(y0 + 1, height), _mirror(x0 + 1, width)
    y0, x0 = _mirror(y0, height), _mirror(x0, width)
    upper = x[image, y0, x0] * (1 - right) + x[image, y0, x1] * right
    lower = x[image, y1, x0] * (1 - right) + x[image, y1, x1] * right
    return np.asarray(upper * (1 - down) + lower * down)


def _mirror(place: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return places in [0, length), mirrored at the first and last pixel of a line."""
    period = max(2 * (length - 1), 1)
    place = np.abs(place) % period
    return np.minimum(place, period - place)


def zoomed_line(length: int, factor: float) -> Images:
    """Return (length, length): a line enlarged about its centre, with linear interpolation."""
    centre = (length - 1) / 2
    place = np.clip(centre + (np.arange(length) - centre) / factor, 0, length - 1)
    low = np.minimum(place.astype(np.int64), max(length - 2, 0))
    out = np.zeros((length, length), np.float32)
    out[np.arange(length), low] += 1 - (place - low)
    out[np.arange(length), np.minimum(low + 1, length - 1)] += place - low
    return out


def averaged_line(length: int, cells: int) -> Images:
    """Return (length, length): a line as `cells` cells, each pixel its cell's average.

    A cell takes as much of a pixel as it covers.
    """
    edges = np.linspace(0, length, cells + 1)
    pixels = np.arange(length)
    cover = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    cover = np.maximum(cover, 0)
    cover /= cover.sum(axis=1, keepdims=True)
    mine = np.minimum(((pixels + 0.5) * cells / length).astype(np.int64), cells - 1)
    return np.asarray(cover[mine], np.float32)


def separable(x: Images, vertical: Images, horizontal: Images) -> Images:
    """Multiply (n, h, w, channels) by one matrix for its columns and one for its rows."""
    channels = np.moveaxis(x, 3, 1)  # numpy multiplies stacked matrices one by one
    return np.moveaxis(vertical @ np.ascontiguousarray(channels) @ horizontal.T, 1, 3)
