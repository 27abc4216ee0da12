"""Noisy searches in one dimension: which temperature to ask next, given what was released.

Each search is a small state machine over [low, high]::

    while (t := search.next()) is not None:
        search.tell(t, value, std)
    search.answer()

Nothing here sees data: what goes in are released values and the public std of their noise, so
everything that comes out is post-processing of releases.

* `GoldenSection` minimises a unimodal objective (Luo et al., Algorithm 1 and C.1).
* `Bisection` finds the root of a monotone signed objective from its sign alone.
* `PosteriorBisection` finds it from the sizes of the values and of their noise, too.

The last two need an objective that rises through 0; golden section does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np

from fedcal.checks import positive, whole
from fedcal.errors import InputError
from fedcal.types import Floats, Integers

RATIO = (math.sqrt(5.0) - 1.0) / 2.0
"""What a step of golden section leaves of the interval; Algorithm 1 rounds it to 0.618."""


class Search(Protocol):
    """What all searches are."""

    def next(self) -> float | None:
        """Where to evaluate the objective next; None if the search is over."""

    def tell(self, t: float, value: float, std: float = 0.0) -> None:
        """The objective's value at `t` = `next()`, with the std of its noise."""

    def answer(self) -> float:
        """The best guess so far; the result once `next` is None."""


class _Bracket:
    """An interval that holds the answer, and how many evaluations are left."""

    def __init__(self, low: float, high: float, evaluations: int) -> None:
        self.low, self.high = interval(low, high)
        self.left = whole("evaluations", evaluations, 1)

    def answer(self) -> float:
        """The middle of the interval."""
        return (self.low + self.high) / 2.0

    def _take(self, t: float, asked: float | None) -> None:
        if asked is None or t != asked:
            raise InputError(f"the search asks for the value at {asked}, not at {t}")
        self.left -= 1


class GoldenSection(_Bracket):
    """Golden section search for the minimum, exactly as Algorithm 1.

    The interval shrinks `iterations` times by 0.618. The two inner points are evaluated at the
    start; each shrink keeps one of them and asks for one more, but the last one needs none: that
    makes `iterations` + 1 evaluations. Of equal values the right one wins (line 5: >=).

    Parameters
    ----------
    low, high : interval of the search, 0 < low < high
    iterations : K, how often the interval shrinks
    """

    def __init__(self, low: float, high: float, iterations: int = 5) -> None:
        super().__init__(low, high, whole("iterations", iterations, 1) + 1)
        self._inner = list(_inner(self.low, self.high))
        self._values: list[float | None] = [None, None]

    def next(self) -> float | None:
        """The inner point that has no value yet, the left one first."""
        return self._inner[self._values.index(None)] if self.left else None

    def tell(self, t: float, value: float, std: float = 0.0) -> None:
        """Take the value; once both inner points have one, shrink. `std` is not used."""
        self._take(t, self.next())
        self._values[self._values.index(None)] = value
        first, second = self._values
        if first is None or second is None:
            return
        self.low, self.high, self._inner = _shrunk(
            self.low, self.high, self._inner, first >= second
        )
        self._values = [second, None] if first >= second else [None, first]


class Bisection(_Bracket):
    """Bisection on the sign of an objective that rises through 0.

    A value below 0 says that the root lies above; of a value of 0, that it does not. Each
    evaluation halves the interval, so `evaluations` = 6 leave 1/64 of it; golden section's 6
    leave 1/11.
    """

    def next(self) -> float | None:
        """The middle of the interval."""
        return self.answer() if self.left else None

    def tell(self, t: float, value: float, std: float = 0.0) -> None:
        """Keep the half that the sign points to. `std` is not used."""
        self._take(t, self.next())
        if value < 0:
            self.low = t
        else:
            self.high = t


class PosteriorBisection:
    """Bisection by a posterior over the root (Waeber, Frazier & Henderson 2013).

    Probabilistic bisection asks at the median of what it believes about the root, and believes
    signs; here it believes the released values themselves, whose noise is known. The model is

        value at t = s log(t / root) + noise,    std^2 = noise std^2 + (0.3 s log(t / root))^2

    with the root uniform in [low, high] and the slope s log-uniform in the range `slope`. It is
    a straight line in log t whose distance from the truth may be 30 % of the value: far from the
    root a value says little more than its sign, close to it all that the noise leaves. The
    answer is the posterior mean. The posterior lives on a grid of 251 roots and 17 slopes; with
    a wrong range of slopes the search slows down, and no guarantee is lost.

    Of many reports the noise of a sum is nearly Gaussian, whatever that of each one is.

    Parameters
    ----------
    low, high : interval of the search, 0 < low < high
    evaluations : how often the objective is evaluated
    slope : least and largest change of the objective per unit of log t, > 0; public
    tailed : whether the noise has the tails of Laplace noise; False = normal, or nearly so
    """

    def __init__(
        self,
        low: float,
        high: float,
        evaluations: int,
        slope: tuple[float, float],
        tailed: bool = True,
    ) -> None:
        self._low, self._high = interval(low, high)
        self.left = whole("evaluations", evaluations, 1)
        first, last = interval(*slope, what="slope")
        self._tailed = tailed
        self._roots = np.linspace(self._low, self._high, _ROOTS)
        self._slopes = np.geomspace(first, last, _SLOPES)
        self._log = np.zeros((_ROOTS, _SLOPES))
        self._belief = np.full(_ROOTS, 1.0 / _ROOTS)

    def next(self) -> float | None:
        """The median of the posterior."""
        if not self.left:
            return None
        return float(np.interp(0.5, np.cumsum(self._belief), self._roots))

    def tell(self, t: float, value: float, std: float = 0.0) -> None:
        """Multiply the posterior with the likelihood of `value`."""
        if t != self.next():
            raise InputError(f"the search asks for the value at {self.next()}, not at {t}")
        self.left -= 1
        mean = self._slopes * np.log(t / self._roots)[:, None]
        # without noise a value is still no sharper than the grid of roots
        step = self._slopes * (self._roots[1] - self._roots[0]) / (2.0 * self._roots[:, None])
        scale = np.sqrt(std**2 + (_TOLERANCE * mean) ** 2 + step**2)
        far = np.minimum(np.abs(value - mean) / scale, 1e100)  # whose square is finite
        self._log -= math.sqrt(2.0) * far if self._tailed else far**2 / 2.0
        self._log -= np.log(scale)
        weight = np.exp(self._log - self._log.max()).sum(axis=1)
        self._belief = weight / weight.sum()

    def answer(self) -> float:
        """The mean of the posterior."""
        mean = float((self._belief * self._roots).sum())
        return min(max(mean, self._low), self._high)


_ROOTS, _SLOPES, _TOLERANCE = 251, 17, 0.3

Ask = Callable[[Integers, int], Floats]
"""(index of each search's temperature, number of the evaluation) -> told value of each."""


@dataclass(frozen=True)
class GoldenTree:
    """Every way that a golden section search can take, for many searches at once.

    Attributes
    ----------
    temperatures : (2**iterations,) the points that can be asked; a search asks each at most once
    pairs : pairs[k], (2**k, 2): which points are compared in shrink k after each of the ways
        to get there
    answers : (2**iterations,) the answer of each way
    """

    temperatures: Floats
    pairs: tuple[Integers, ...]
    answers: Floats

    def walk(self, ask: Ask, searches: int) -> Integers:
        """Which of `answers` each search ends at, (searches,).

        Only those points are asked that a search comes to.

        Parameters
        ----------
        ask : gives what is to be minimised
        """
        way = np.zeros(searches, np.int64)
        up = np.zeros(searches, np.bool_)
        pairs = self.pairs[0][way]
        first, second = ask(pairs[:, 0], 0), ask(pairs[:, 1], 1)
        for k, points in enumerate(self.pairs):
            if k:  # one of the two was asked before
                new = ask(points[way, up.astype(np.int64)], k + 1)
                first, second = np.where(up, second, new), np.where(up, new, first)
            up = first >= second
            way = 2 * way + up
        return way


@cache
def golden_tree(low: float, high: float, iterations: int = 5) -> GoldenTree:
    """The points that `GoldenSection` can ask and the answers that it can give, bit for bit.

    Equal points that are reached in two ways stand twice, so that each has noise of its own.
    """
    low, high = interval(low, high)
    whole("iterations", iterations, 1, 16)
    points: list[float] = list(_inner(low, high))
    ways = [(low, high, points[:], [0, 1])]
    pairs = []
    for k in range(iterations):
        pairs.append(np.array([index for *_, index in ways], np.int64))
        longer = []
        for a, b, inner, index in ways:
            for up in (False, True):
                start, stop, then = _shrunk(a, b, inner, up)
                kept = [index[1], len(points)] if up else [len(points), index[0]]
                if k + 1 < iterations:
                    points.append(then[1 if up else 0])
                longer.append((start, stop, then, kept))
        ways = longer
    answers = np.array([(a + b) / 2.0 for a, b, *_ in ways])
    return GoldenTree(np.array(points), tuple(pairs), answers)


def interval(low: float, high: float, what: str = "search interval") -> tuple[float, float]:
    """`low` and `high` as floats, 0 < low < high, or InputError."""
    if not positive(f"low end of the {what}", low) < positive(f"high end of the {what}", high):
        raise InputError(f"the {what} must have low < high, got {low!r} and {high!r}")
    return float(low), float(high)


def _inner(low: float, high: float) -> tuple[float, float]:
    """The two inner points of golden section, T_0 and T_1 of line 2."""
    width = (high - low) * RATIO
    return high - width, low + width


def _shrunk(
    low: float, high: float, inner: list[float], up: bool
) -> tuple[float, float, list[float]]:
    """The next interval and its inner points: lines 6 (`up`) and 9."""
    if up:
        return inner[0], high, [inner[1], _inner(inner[0], high)[1]]
    return low, inner[1], [_inner(low, inner[1])[0], inner[0]]
