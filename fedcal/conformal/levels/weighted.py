"""Levels of noisy sums in which rows are weighted by their label: conformal risk control.

A row adds g(t) = hit_y [score <= t] - need_y, growing with t, and S(t) is the sum of n rows. Let T
be a threshold that is above t_j whenever S(t_j) + Z < L, where Z has one distribution for all j and
is independent of the rows.

**Known weights.** Rows and the new row are exchangeable, B = max need. Without noise, T_l = the
least t with S(t) >= l, compare with tau = the least t where S and the new row's g together reach
l - B: tau <= T_l, and tau is the same for any order of the n + 1 rows, so

    E g_new(T_l) >= E g_new(tau) = E S_{n+1}(tau) / (n + 1) >= min(l - B, spare) / (n + 1),

`spare` = sum of hit - need over the rows, the value of S at the last threshold (Angelopoulos et al.
2022, Theorem 1, for costs). With noise: for each value u of E g, T passes the last threshold where
E g is below u whenever the noisy sum there is below L; so as in `levels`

    E g_new(T) >= E min(L - B - Z, spare) / (n + 1),

and L = B + x with E min(x - Z, spare) >= 0 is enough.

**Weights from counted labels** (label shift). Given their labels, rows of each label are
exchangeable with a new row of that label. With w_y a function of the labels alone (and of noise
that is not in Z), add a new row of *each* label to the rows: the same argument, with B = (1 -
alpha) sum of w_y, gives: the sum over y of w_y (n_y + 1) (E F_y(T) - (1 - alpha)) is at least 0,
which is coverage for label shares ~ w_y (n_y + 1), for any shares at the clients. With
w_y = q_y / (n_y + 1) that is the target q, exactly and without any error of estimated weights.
If n_y is noisy, shares are off by at most their total variation from q, and so is coverage:
`shift` returns its mean, and alpha is lowered by it.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from fedcal.conformal.aims import Aim
from fedcal.conformal.levels.levels import Law, Normal, Nothing
from fedcal.conformal.levels.noise_law import Noise
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats

_POINTS = 20_001
_DRAWS = 4096
_FEW = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0)


def weighted_level(most_need: float, spare: float, law: Law) -> float:
    """Return the least B + x with E min(x - Z, spare) >= 0.

    Parameters
    ----------
    most_need
        B
    spare
        lower bound of the sum when all labels are in all sets
    law
        of Z, symmetric or not

    Returns
    -------
    float
        Infinite where `spare` is not above B: only all labels are enough.
    """
    if spare <= most_need:
        return math.inf
    if isinstance(law, Nothing):
        return most_need
    # E min(x - Z, spare) = spare - (integral of P(Z >= z) from x - spare on)
    low, high = law.reach
    if isinstance(law, Normal):
        return most_need + spare + _normal_start(spare, law.std)
    z = np.linspace(low, high, _POINTS)
    above = 1.0 - law.below(z)
    steps = above[:-1] * (z[1] - z[0])  # no less than the integral: P(Z >= z) falls
    tail = np.append(np.cumsum(steps[::-1])[::-1], 0.0)
    if spare >= tail[0]:
        return most_need + spare + low - (spare - float(tail[0]))
    return most_need + spare + float(z[np.flatnonzero(tail <= spare)[0]])


def _normal_start(area: float, std: float) -> float:
    """Return x where the integral of P(Z >= z) from x on is `area`, by bisection; Z normal."""
    low, high = -area - std, 8.0 * std
    for _ in range(100):
        middle = (low + high) / 2.0
        k = middle / std
        tail = std * (math.exp(-k * k / 2.0) / math.sqrt(2.0 * math.pi) - k * float(ndtr(-k)))
        low, high = (low, middle) if tail <= area else (middle, high)
    return high


def stratified(target: Floats, rows: Floats) -> Floats:
    """Return label weights q_y / (n_y + 1), (classes,), which weight the rows to the target."""
    return np.asarray(target / (np.maximum(rows, 0.0) + 1.0))


def exact_terms(aim: Aim, alpha: float, rows: Floats) -> tuple[Floats, Floats, float]:
    """Return hit and need of each label, and the level B of the sum, for exact numbers of rows.

    Parameters
    ----------
    aim
        weights of rows by their label
    alpha
        of the aim
    rows
        (classes,) n_y

    Returns
    -------
    tuple[Floats, Floats, float]
        (classes,), (classes,), B
    """
    if aim.counted:
        hit = stratified(np.array(aim.numbers), rows)
        need = (1.0 - alpha) * hit
        return hit, need, float(need.sum())
    hit, need = aim.terms(alpha)
    return hit, need, float(need.max())


def shift(target: Floats, rows: Floats, noise: Noise) -> float:
    """Return the mean total variation from q of shares ~ q_y (n_y + 1) / (noisy n_y + 1).

    The noise is simulated, and three standard errors of the simulation are added. The distance
    falls with n_y, except below a few standard deviations: there the maximum over some n_y >=
    `rows` is used.

    Parameters
    ----------
    target
        (classes,) q
    rows
        (classes,) lower bounds of n_y
    noise
        of a count of labels
    """
    if not noise.std:
        return 0.0
    draw = stream(0, Purpose.BOOTSTRAP, 3, "shift of labels")
    z = noise.law.sample(draw, (_DRAWS, len(rows)))
    distances = []
    for few in _FEW:
        there = np.maximum(rows, few * noise.std)
        seen = np.maximum(there + noise.std * z, 0.0)
        shares = target * (there + 1.0) / (seen + 1.0)
        shares /= shares.sum(axis=1, keepdims=True)
        off = 0.5 * np.abs(shares - target).sum(axis=1)
        distances.append(float(off.mean() + 3.0 * off.std() / math.sqrt(_DRAWS)))
    return max(distances)
