"""Digital changes: contrast, elastic distortion, coarse pixels, JPEG."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from experiments.corruptions._images import (
    Draws,
    Images,
    averaged_line,
    gaussian,
    sampled,
    separable,
)

# ITU-T T.81 (the JPEG standard), annex K.1: quantisation tables for quality 50.
_LUMINANCE = """
16 11 10 16 24 40 51 61
12 12 14 19 26 58 60 55
14 13 16 24 40 57 69 56
14 17 22 29 51 87 80 62
18 22 37 56 68 109 103 77
24 35 55 64 81 104 113 92
49 64 78 87 103 121 120 101
72 92 95 98 112 100 103 99
"""
_CHROMINANCE = """
17 18 24 47 99 99 99 99
18 21 26 66 99 99 99 99
24 26 56 99 99 99 99 99
47 66 99 99 99 99 99 99
99 99 99 99 99 99 99 99
99 99 99 99 99 99 99 99
99 99 99 99 99 99 99 99
99 99 99 99 99 99 99 99
"""
# ITU-T T.871 (JFIF): Y, Cb, Cr from R, G, B
_YCC = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])


def contrast(x: Images, draws: Draws, scale: float, factor: float) -> Images:
    """Shrink differences from each channel's mean to this fraction, as in haze."""
    mean = x.mean(axis=(1, 2), keepdims=True)
    return np.asarray((x - mean) * np.float32(factor) + mean)


def elastic_transform(
    x: Images, draws: Draws, scale: float, stretch: float, sigma: float, affine: float
) -> Images:
    """Apply a random affine map, and small displacements that are smooth over `sigma` pixels.

    As in the original, after Simard et al. (2003): three points a third of the side away from the
    centre move by up to `affine` pixels; displacements are uniform noise in [-1, 1], blurred and
    multiplied by `stretch`. Blurring shrinks noise less in smaller images, so at another scale the
    displacements are set to the standard deviation that they have at scale 1, times the scale. The
    image is read once at the places where both lead to, not twice.
    """
    height, width = x.shape[1:3]
    third = min(height, width) // 3
    middle = np.array([height // 2, width // 2])
    points = middle + third * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + affine * scale * (2.0 * draws.uniform(3, 2) - 1)
    # rows [r, c, 1] of `moved` times the map give the places where to read; each image solves alone
    ones = np.ones((len(x), 3, 1))
    maps = np.linalg.solve(np.concatenate([moved, ones], axis=2), np.float64(points))
    down, right = np.mgrid[:height, :width].astype(np.float64)
    places = [
        maps[:, 0, k, None, None] * down
        + maps[:, 1, k, None, None] * right
        + maps[:, 2, k, None, None]
        for k in (0, 1)
    ]
    if stretch > 0:
        noise = 2 * draws.uniform(height, width, 2) - 1
        reach = stretch * scale * _left_by_blur(sigma) / _left_by_blur(sigma * scale)
        shift = np.float32(reach) * gaussian(noise, sigma * scale)
        places = [place + shift[..., k] for k, place in enumerate(places)]
    return sampled(x, *(place.astype(np.float32) for place in places))


def _left_by_blur(sigma: float) -> float:
    """Return the standard deviation of blurred white noise over that of the noise."""
    line = np.zeros((1, 2 * int(3 * sigma + 1) + 1, 1, 1), np.float32)
    line[0, line.shape[1] // 2] = 1
    return float((gaussian(line, sigma) ** 2).sum())  # of one axis squared: of both together


def pixelate(x: Images, draws: Draws, scale: float, share: float) -> Images:
    """Enlarge pixels: `share` of them along each side, each the average of its area."""
    lines = (averaged_line(length, max(int(length * share), 1)) for length in x.shape[1:3])
    return separable(x, *lines)


def jpeg_compression(x: Images, draws: Draws, scale: float, quality: float) -> Images:
    """Compress by a baseline JPEG of this quality (1 to 100, as in libjpeg).

    8 x 8 blocks by the DCT, rounded to the standard's tables. Three channels become Y, Cb and Cr,
    the latter two at half the resolution; on the way back a pixel takes its block's colour, where
    libjpeg smooths. Other numbers of channels are stored one by one like grey images.
    """
    levels = np.rint(255 * x.astype(np.float64)) - 128
    if x.shape[3] != 3:
        back = np.stack(
            [_stored(levels[..., k], _table(_LUMINANCE, quality)) for k in range(x.shape[3])],
            axis=3,
        )
        return np.asarray((back + 128) / 255, np.float32)
    red, green, blue = (levels[..., k] for k in range(3))
    luma, *chroma = (a * red + b * green + c * blue for a, b, c in _YCC)
    stored = _stored(luma, _table(_LUMINANCE, quality))
    blue_red = [_halved_and_stored(plane, _table(_CHROMINANCE, quality)) for plane in chroma]
    back_from = np.linalg.inv(_YCC)
    back = np.stack(
        [a * stored + b * blue_red[0] + c * blue_red[1] for a, b, c in back_from], axis=3
    )
    return np.asarray((back + 128) / 255, np.float32)


def _table(text: str, quality: float) -> NDArray[np.float64]:
    """Return (8, 8) steps: the standard's, scaled by quality as libjpeg does."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    base = np.array(text.split(), np.float64).reshape(8, 8)
    return np.clip(np.floor((base * percent + 50) / 100), 1, 255)


def _stored(plane: NDArray[np.float64], table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Encode (n, h, w) by the DCT and decode; incomplete blocks repeat the last row or column."""
    n, height, width = plane.shape
    plane = np.pad(plane, ((0, 0), (0, -height % 8), (0, -width % 8)), mode="edge")
    blocks = plane.reshape(n, plane.shape[1] // 8, 8, plane.shape[2] // 8, 8)
    frequencies = fft.dctn(blocks, axes=(2, 4), norm="ortho")
    steps = table[:, None, :]
    # ties are common (a DC is an eighth of a sum): a hair up, so that no last bit decides
    rounded = np.floor(frequencies / steps + (0.5 + 1e-7)) * steps
    back = fft.idctn(rounded, axes=(2, 4), norm="ortho").reshape(plane.shape)
    return np.asarray(back[:, :height, :width])


def _halved_and_stored(
    plane: NDArray[np.float64], table: NDArray[np.float64]
) -> NDArray[np.float64]:
    n, height, width = plane.shape
    plane = np.pad(plane, ((0, 0), (0, height % 2), (0, width % 2)), mode="edge")
    small = plane.reshape(n, plane.shape[1] // 2, 2, plane.shape[2] // 2, 2).mean(axis=(2, 4))
    back = _stored(small, table).repeat(2, axis=1).repeat(2, axis=2)
    return back[:, :height, :width]
