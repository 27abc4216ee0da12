"""Offsets of classes from noisy gradients: whether they show, how large they are, what they pay."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import chdtrc, chdtri

from fedcal.core.types import Floats

GATE = 0.1
"""Largest p-value of offsets that are kept."""

LOOK_ON = 0.5
"""Largest p-value of a look that another one follows: a first look sees half of what two see."""

WORTH = 1.5
"""How many stds of its noise a gain must exceed what fitting noise would gain on its own rows."""

_CHANCE = 0.01  # of a larger gain on the rows that offsets were fitted to, where there are none
_FLOOR = 2.0  # stds of its noise that a curvature counts for at least

OFFSET_LIMIT = 3.0
"""Of an offset: e^3 is how much more often a class may come than the model says."""


class ClassOffsets:
    """Test and estimate of class offsets from noisy gradients.

    A round's gradient at offsets b and the temperature of the round is G = B (b - optimum) +
    noise, where B = kappa (I - 11'/c) stands for the curvature, of which only the mean eigenvalue
    kappa is released. So B b - G, the score of b = 0, has mean B optimum and covariance N + B: N is
    the noise, which averages over rounds, and B is what the rows themselves vary by, which does
    not. With N alone, many rows or weak noise would show effects where there are none.

    The test is chi-square with c - 1 degrees of freedom; the offsets are the score over kappa,
    shrunk by (1 - 1 / lambda)+, lambda the score's mean square in units of its variance (James &
    Stein 1961 without the credit for degrees of freedom). All of it is computed from releases and
    their public noise: it costs no privacy.

    Parameters
    ----------
    classes
        c
    copies
        how often each row stands in the data, where a simulation repeats rows: they vary that much
        more together
    """

    def __init__(self, classes: int, copies: float = 1.0) -> None:
        self.classes, self.copies = classes, copies
        self.looks = 0
        self.p = 1.0
        self.offsets: Floats = np.zeros(classes)
        self._curvature = self._weight = 0.0
        self._score: Floats = np.zeros(classes)

    def learn(self, g: Floats, kappa: float, std: float, spread: float = 0.0) -> None:
        """Add what one round released, at the current offsets.

        Parameters
        ----------
        g, kappa
            (c,) gradient and mean eigenvalue of the curvature, in nats
        std
            of the noise in each of these numbers; 0 = none, and earlier rounds are forgotten: the
            last one is nearest to the optimum
        spread
            variance of a gradient that sampling clients adds to each round
        """
        self.looks += 1
        self._curvature += kappa
        mean = max(self._curvature / self.looks, _FLOOR * std / math.sqrt(self.looks), 1e-9)
        score = mean * self.offsets - (g - g.mean())
        if std > 0:
            self._weight, score = self._weight + std**-2, self._score + score / std**2
            self._score, noise = score, 1.0 / self._weight
            score = score * noise
        else:
            noise = 0.0
        variance = noise + spread / self.looks + self.copies * mean
        square, degrees = float(np.square(score).sum()) / variance, self.classes - 1
        self.p = float(chdtrc(degrees, square))
        shrunk = max(0.0, 1.0 - degrees / max(square, 1e-300))
        self.offsets = np.zeros(self.classes)
        if self.p < GATE:
            self.offsets = np.clip(shrunk * score / mean, -OFFSET_LIMIT, OFFSET_LIMIT)

    def refuse(self) -> None:
        """Set all offsets to 0."""
        self.offsets = np.zeros(self.classes)

    def threshold(self, std: float) -> float:
        """Return the gain, in nats, that a released gain with noise of this std must exceed.

        Offsets that fit nothing but the rows' own variation gain half a chi-square on these rows.
        """
        return WORTH * std + self.copies * float(chdtri(self.classes - 1, _CHANCE)) / 2
