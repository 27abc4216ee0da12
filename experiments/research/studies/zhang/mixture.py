"""How models of the two Gaussians are trained (appendix B.1)."""

from __future__ import annotations

import math

from fedcal.experiments.research.studies.zhang.models import Training

BATCH, EPOCHS = 4_000.0, 60.0
"""The batch is the paper's as its code has it, which its text does not print; so are the epochs."""

STEPS = {0.1: 1.0, 1.0: 1.0, 10.0: 2.0}
"""Clip norm -> lr times clip norm: at 10, where hardly a row is clipped, 1 does not reach the
optimum in these steps."""

EPSILON = 8.0


def at(clip: float) -> Training:
    """DP-SGD at a clip norm."""
    return Training(EPSILON, "row", clip, STEPS[clip] / clip, EPOCHS, BATCH)


HOW = at(min(STEPS))


def without_privacy(lr: float = 1.0) -> Training:
    """The same steps without clipping and noise."""
    return Training(math.inf, "none", lr=lr, epochs=EPOCHS, batch=BATCH)
