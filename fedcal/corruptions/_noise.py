"""Noise of sensors: gaussian, shot, impulse."""

from __future__ import annotations

import numpy as np

from fedcal.corruptions._draws import Draws, Images


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
