"""Cameras: noise of sensors; blurs out of focus, through glass, in motion, while zooming."""

from __future__ import annotations

import numpy as np

from experiments.corruptions._images import (
    Draws,
    Images,
    convolved,
    disk,
    gaussian,
    separable,
    trailed,
    zoomed_line,
)


def gaussian_noise(x: Images, draws: Draws, scale: float, deviation: float) -> Images:
    """Add normal noise of one standard deviation everywhere, as in low light."""
    return x + np.float32(deviation) * draws.normal(*x.shape[1:])


def shot_noise(x: Images, draws: Draws, scale: float, photons: float) -> Images:
    """Draw Poisson photon counts; a white pixel has `photons` of them on average."""
    return draws.poisson(x * np.float32(photons)) / np.float32(photons)


def impulse_noise(x: Images, draws: Draws, scale: float, share: float) -> Images:
    """Turn this fraction of the values black or white, with equal probability (bit errors)."""
    chance = draws.uniform(*x.shape[1:])
    return np.where(chance < share / 2, np.float32(0), np.where(chance >= 1 - share / 2, 1, x))


def defocus_blur(x: Images, draws: Draws, scale: float, radius: float, softness: float) -> Images:
    """Blur as out of focus: each point becomes a soft disk.

    Unlike the original a pixel counts by the share of it that the disk covers, so that radii need
    not be whole.
    """
    return convolved(x, disk(radius * scale, softness * scale))


def glass_blur(
    x: Images, draws: Draws, scale: float, sigma: float, reach: float, rounds: int
) -> Images:
    """Blur as by frosted glass: blur, swap near pixels some times over, blur again.

    The reach of swaps, here and in the original, ends one pixel earlier to the right and below.
    """
    x = gaussian(x, sigma * scale)
    images, height, width = np.arange(len(x)), *x.shape[1:3]
    near = max(round(reach * scale), 1)
    if min(height, width) > 2 * near:
        x = x.copy()
        moves = draws.offsets(near, rounds, height, width, 2)
        for turn in range(rounds):
            for i in range(height - near - 1, near - 1, -1):
                for j in range(width - near - 1, near - 1, -1):
                    move = moves[:, turn, i, j].astype(np.intp)
                    rows, columns = i + move[:, 0], j + move[:, 1]
                    there = x[images, rows, columns]
                    x[images, rows, columns] = x[:, i, j]
                    x[:, i, j] = there
    return gaussian(x, sigma * scale)


def motion_blur(x: Images, draws: Draws, scale: float, radius: float, sigma: float) -> Images:
    """Blur by a moving camera: a trail within 45 degrees of the horizontal."""
    angles = np.float32(np.pi / 2) * (draws.uniform() - np.float32(0.5))
    return trailed(x, radius * scale, sigma * scale, angles)


def zoom_blur(x: Images, draws: Draws, scale: float, furthest: float, step: float) -> Images:
    """Average the image and its enlargements below `furthest`, as a camera that moves ahead does.

    The original crops to whole pixels before it enlarges; here the centre stays where it is.
    """
    factors = np.arange(1, furthest - step / 2, step)
    out = x.copy()
    for factor in factors:
        lines = (zoomed_line(length, float(factor)) for length in x.shape[1:3])
        out += separable(x, *lines)
    return out / np.float32(len(factors) + 1)
