"""Where a falling curve crosses zero, from a few of its values with noise."""

from __future__ import annotations

import math

import numpy as np

from fedcal.core.types import Floats

_WIDTHS = (0.25, 0.7, 2.0)
_BENDS = (-0.7, 0.0, 0.7)
_HEIGHTS = 16
_TOLERANCE = 0.2  # of the value: what the shape may get wrong


def root_posterior(u: Floats, values: Floats, std: float, roots: Floats, tailed: bool) -> Floats:
    """Probability of each candidate root, (roots,); uniform before anything is known.

    The curve is taken for A tanh(v) (1 + b tanh(v)), v = (root - u) / w: it saturates on both
    sides, at levels that may differ. Its width w, bend b and height A are averaged over, A on a
    log scale from below the noise to above the values. The curve may be wrong by a fifth of its
    value: near its root, where that is little, a value tells the most.

    Everything here is a function of a release and of public numbers.

    Parameters
    ----------
    u
        (points,) where the curve was asked
    values
        (points,) it was released with noise
    std
        of the noise in each value, > 0
    roots
        (roots,) candidates
    tailed
        the noise is Laplace's; False = normal, or nearly so
    """
    v = np.tanh((roots[:, None] - u)[:, None, :] / np.array(_WIDTHS)[:, None])
    shape = v[:, :, None, :] * (1.0 + np.array(_BENDS)[:, None] * v[:, :, None, :])
    most = max(std, 2.0 * float(np.abs(values).max()))
    total = np.full(len(roots), -np.inf)
    for height in np.geomspace(0.3 * std, most, _HEIGHTS):
        scale = np.sqrt(std**2 + (_TOLERANCE * height * shape) ** 2)
        far = np.abs(values - height * shape) / scale
        log = -(math.sqrt(2.0) * far if tailed else far**2 / 2.0) - np.log(scale)
        each = log.sum(axis=-1).reshape(len(roots), -1)
        total = np.logaddexp(total, np.logaddexp.reduce(each, axis=1))
    weight = np.exp(total - total.max())
    return np.asarray(weight / weight.sum())
