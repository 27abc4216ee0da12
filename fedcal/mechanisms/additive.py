"""Base class of mechanisms that add noise to sums."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers, Words, override
from fedcal.mechanisms.base import Answers, Mechanism, Noise, Source, Sum, View
from fedcal.secure_aggregation import Ring
from fedcal.units.bounding import Bound

_EXAMPLES: tuple[Mapping[str, Any], ...] = (
    {"lengths": (1,), "norms": (2.5,)},
    {"lengths": (2, 3), "norms": (4.0, 0.5), "rule": "per_block"},
)


class Additive(Mechanism):
    """Mechanism that adds independent noise to each number of a sum."""

    answers: ClassVar[Answers] = "sum"
    examples = _EXAMPLES

    @classmethod
    @abstractmethod
    def steps(cls, scale: float) -> float:
        """Return the scale to draw, in steps, so that rounding to the grid costs no privacy."""

    @abstractmethod
    def log_likelihood_ratio(self, x: Floats, a: Floats, b: Floats, scales: Floats) -> Floats:
        """Return the log-likelihood ratio of sums `a` and `b` for each value, summed, (trials,)."""

    @classmethod
    def check(cls, bound: Bound, rounds: int) -> None:
        """Accept every bound, as all go with noise on a sum."""

    def sentence(self) -> str:
        """Return "", because the trust model says who adds the noise."""
        return ""

    @override
    def noise_of(self, scales: Floats, grid: float, bound: Bound, shares: int) -> Noise | None:
        steps = tuple(self.steps(float(s) / grid) for s in scales)
        return Noise(type(self), bound.lengths, steps, shares)

    @classmethod
    def check_noise(cls, noise: Noise) -> None:
        """Refuse a number of shares below 1."""
        if noise.shares < 1:
            raise InputError(f"'{cls.name}' cannot be drawn in {noise.shares} shares")

    @classmethod
    def client(cls, words: Words, ring: Ring, noise: Noise, source: Source) -> Words:
        """Return the contribution with a share of the noise added."""
        return ring.add(words, noise.draw(source))

    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """Return the noisy sums and their noise std."""
        return sums, of.std

    @classmethod
    def worst_pair(cls, bound: Bound, opposite: bool) -> tuple[Floats, Floats]:
        """Return a change that uses up both norms in the first number of each group."""
        change = np.zeros(bound.length)
        if bound.rule == "joint":
            change[0] = 1.0
        else:
            change[bound.firsts if bound.rule == "per_block" else slice(None)] = 1.0
        change *= bound.scale
        return change, -change if opposite else np.zeros_like(change)

    def attack(self, view: View) -> NDArray[np.float64]:
        """Return the log-likelihood ratio of all releases, or the number if there is only one."""
        noise, ring = view.noise, view.ring
        if noise is None:
            raise InputError(f"'{self.name}' adds no noise")
        a, b = ring.decode(view.words)
        scales = np.repeat(noise.scales, noise.lengths) * ring.grid
        seen = np.zeros(view.trials)
        for _ in range(view.rounds):
            mine = np.where(view.coins(), view.mine, np.uint64(0))
            for _ in range(view.shares):
                mine = ring.add(mine, _wide(noise, view.trials, view.source))
            x = ring.decode(mine)
            if view.rounds == 1 and view.bound.length == 1:
                return np.asarray(x[:, 0])
            ratio, rate = self.log_likelihood_ratio(x, a, b, scales), view.rate
            seen += ratio if rate == 1 else np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)
        # values that are equal up to rounding must not become different events
        return np.asarray(np.round(seen, 9))


def _wide(noise: Noise, trials: int, source: Source) -> Integers:
    """Return `trials` draws of one noise, (trials, length), as one draw of longer blocks."""
    lengths = tuple(n * trials for n in noise.lengths)
    long = Noise(noise.law, lengths, noise.scales, noise.shares)
    blocks = np.split(long.draw(source), np.cumsum(lengths)[:-1])
    return np.concatenate([block.reshape(trials, -1) for block in blocks], axis=1)
