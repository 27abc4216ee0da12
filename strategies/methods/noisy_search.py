"""Noisy searches in one dimension: which temperature to ask next, given what was released.

Each search is a small state machine over [low, high]::

    while (t := search.next()) is not None:
        search.tell(t, value, std)
    search.answer()

One object holds `searches` independent ones, usually a single one: `t`, values and answers are
arrays of shape (searches,). What one of them does depends on no other, to the last bit.

Nothing here sees data: what goes in are released values and the public std of their noise, so
everything that comes out is post-processing of releases.

* `GoldenSection` minimises a unimodal objective (Luo et al., Algorithm 1 and C.1).
* `PosteriorBisection` finds the root of an objective that rises through 0 from values and noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from fedcal.core.checks import positive, whole
from fedcal.core.errors import InputError
from fedcal.core.types import Floats

RATIO = (math.sqrt(5.0) - 1.0) / 2.0
"""What a step of golden section leaves of the interval; Algorithm 1 rounds it to 0.618."""


class Search(ABC):
    """Base of the searches; `low` to `high` is the interval that is left, (searches,) each.

    Parameters
    ----------
    low, high
        interval of the search, 0 < low < high
    evaluations
        how often the objective is evaluated
    searches
        independent searches
    """

    def __init__(self, low: float, high: float, evaluations: int, searches: int = 1) -> None:
        low, high = interval(low, high)
        many = whole("searches", searches, 1)
        self.low, self.high = np.full(many, low), np.full(many, high)
        self.left = whole("evaluations", evaluations, 1)

    @abstractmethod
    def next(self) -> Floats | None:
        """Return the next points of evaluation, (searches,); None if the search is over."""

    def tell(self, t: Floats, value: float | Floats, std: float = 0.0) -> None:
        """Take the objective's values at `t` = `next()`, with the std of their noise."""
        asked = self.next()
        if asked is None or not np.array_equal(t, asked):
            raise InputError(f"the search asks for the value at {asked}, not at {t}")
        self.left -= 1
        self._learn(t, value, std)

    @abstractmethod
    def _learn(self, t: Floats, value: float | Floats, std: float) -> None: ...

    def answer(self) -> Floats:
        """Return the best guess so far, (searches,); the result once `next` is None.

        It is the middle of each interval, unless a subclass states otherwise.
        """
        return np.asarray((self.low + self.high) / 2.0)


class GoldenSection(Search):
    """Golden section search for the minimum, exactly as Algorithm 1.

    The interval shrinks `iterations` times by 0.618. The two inner points are evaluated at the
    start; each shrink keeps one of them and asks for one more, but the last one needs none: that
    makes `iterations` + 1 evaluations. Of equal values the right one wins (line 5: >=).

    Parameters
    ----------
    low, high
        interval of the search, 0 < low < high
    iterations
        K, how often the interval shrinks
    searches
        independent searches
    """

    def __init__(self, low: float, high: float, iterations: int = 5, searches: int = 1) -> None:
        super().__init__(low, high, whole("iterations", iterations, 1) + 1, searches)
        self._inner = _inner(self.low, self.high)
        self._right = np.zeros(searches, np.bool_)  # which inner point has no value yet
        self._kept: Floats | None = None  # the value of the other one

    def next(self) -> Floats | None:
        """Return the inner point that has no value yet, the left one first."""
        left, right = self._inner
        return np.where(self._right, right, left) if self.left else None

    def _learn(self, t: Floats, value: float | Floats, std: float) -> None:
        """Shrink the interval once both inner points have a value; `std` is not used."""
        if self._kept is None:
            self._kept, self._right = np.asarray(value), ~self._right
            return
        first = np.where(self._right, self._kept, value)
        second = np.where(self._right, value, self._kept)
        up = first >= second
        left, right = self._inner
        self.low, self.high = np.where(up, left, self.low), np.where(up, self.high, right)
        start, end = _inner(self.low, self.high)
        self._inner = np.where(up, right, start), np.where(up, end, left)
        self._kept, self._right = np.where(up, second, first), up


class PosteriorBisection(Search):
    """Bisection by a posterior over the root (Waeber, Frazier & Henderson 2013).

    Probabilistic bisection asks at the median of what it believes about the root, and believes
    signs; here it believes the released values themselves, whose noise is known. The model is

        value at t = s log(t / root) + noise,    std^2 = noise std^2 + (0.3 s log(t / root))^2

    with the root uniform in [low, high] and the slope s log-uniform in the range `slope`. It is
    a straight line in log t whose distance from the truth may be 30 % of the value: far from the
    root a value says little more than its sign, close to it all that the noise leaves. The
    answer is the posterior mean; `low` and `high` are the likeliest root. The posterior lives on a
    grid of 251 roots and 17 slopes; with a wrong range of slopes the search slows down, and no
    guarantee is lost.

    Of many reports the noise of a sum is nearly Gaussian, whatever that of each one is.

    Parameters
    ----------
    low, high
        interval of the search, 0 < low < high
    evaluations
        how often the objective is evaluated
    slope
        least and largest change of the objective per unit of log t, > 0; public
    tailed
        whether the noise has the tails of Laplace noise; False = normal, or nearly so
    searches
        independent searches
    """

    def __init__(
        self,
        low: float,
        high: float,
        evaluations: int,
        slope: tuple[float, float],
        tailed: bool = True,
        searches: int = 1,
    ) -> None:
        super().__init__(low, high, evaluations, searches)
        first, last = interval(*slope, what="slope")
        self._tailed = tailed
        self._roots = np.linspace(float(low), float(high), _ROOTS)
        self._slopes = np.geomspace(first, last, _SLOPES)
        self._log = np.zeros((searches, _ROOTS, _SLOPES))
        self._belief = np.full((searches, _ROOTS), 1.0 / _ROOTS)
        self._asked: Floats | None = None

    def next(self) -> Floats | None:
        """Return the median of each posterior."""
        if self.left and self._asked is None:
            sums = np.cumsum(self._belief, axis=1)
            self._asked = np.array([np.interp(0.5, row, self._roots) for row in sums])
        return self._asked

    def _learn(self, t: Floats, value: float | Floats, std: float) -> None:
        """Multiply each posterior with the likelihood of its `value`."""
        self._asked = None
        values = np.broadcast_to(value, len(self._log))
        for k in range(0, len(values), _AT_ONCE):
            some = slice(k, k + _AT_ONCE)
            self._multiply(some, t[some], values[some], std)
        self.low = self.high = self._roots[self._belief.argmax(axis=1)]

    def _multiply(self, some: slice, t: Floats, value: Floats, std: float) -> None:
        """Multiply the beliefs of some searches by the likelihood of `value`, (k,), in place."""
        if (t == t[0]).all():
            t = t[:1]  # as at the start: what follows from t alone is computed once
        mean = self._slopes * np.log(t[:, None] / self._roots)[:, :, None]
        # without noise a value is still no sharper than the grid of roots
        step = self._slopes * (self._roots[1] - self._roots[0]) / (2.0 * self._roots[:, None])
        scale = _TOLERANCE * mean
        scale **= 2
        scale += std**2
        scale += step**2
        np.sqrt(scale, out=scale)
        far = value[:, None, None] - mean
        np.abs(far, out=far)
        far /= scale
        np.minimum(far, 1e100, out=far)  # whose square is finite
        if self._tailed:
            far *= math.sqrt(2.0)
        else:
            far **= 2
            far /= 2.0
        log = self._log[some]
        log -= far
        log -= np.log(scale, out=scale)
        weight = np.exp(np.subtract(log, log.max(axis=(1, 2), keepdims=True), out=far), out=far)
        by_root = weight.sum(axis=2)
        self._belief[some] = by_root / by_root.sum(axis=1, keepdims=True)

    def answer(self) -> Floats:
        """Return the mean of each posterior."""
        mean = (self._belief * self._roots).sum(axis=1)
        return np.asarray(np.clip(mean, self._roots[0], self._roots[-1]))


_ROOTS, _SLOPES, _TOLERANCE = 251, 17, 0.3
_AT_ONCE = 16  # posteriors whose arrays stay in the processor's cache


def interval(low: float, high: float, what: str = "search interval") -> tuple[float, float]:
    """`low` and `high` as floats, 0 < low < high, or InputError."""
    if not positive(f"low end of the {what}", low) < positive(f"high end of the {what}", high):
        raise InputError(f"the {what} must have low < high, got {low!r} and {high!r}")
    return float(low), float(high)


def _inner(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return the two inner points of golden section, T_0 and T_1 of line 2."""
    width = (high - low) * RATIO
    return high - width, low + width


_WIDTHS = (0.25, 0.7, 2.0)
_BENDS = (-0.7, 0.0, 0.7)
_HEIGHTS = 16
_SHAPE_ERROR = 0.2  # of the value: what the shape may get wrong


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
        scale = np.sqrt(std**2 + (_SHAPE_ERROR * height * shape) ** 2)
        far = np.abs(values - height * shape) / scale
        log = -(math.sqrt(2.0) * far if tailed else far**2 / 2.0) - np.log(scale)
        each = log.sum(axis=-1).reshape(len(roots), -1)
        total = np.logaddexp(total, np.logaddexp.reduce(each, axis=1))
    weight = np.exp(total - total.max())
    return np.asarray(weight / weight.sum())
