"""Mechanisms turn a sum, or a contribution, into something releasable: their base, and no noise.

`Delta_1`, `Delta_2` in the docstrings of the mechanisms are the L1 and L2 norms of a neighbour's
change of the sum, each block in units of its norm (`Bound`, `Plan.diameter`); unit, adjacency and
trust are the plan's. All noise is added to integers, in steps of the ring's grid.

Randomness. A seeded generator is for simulation: it gives no protection against anyone who knows
the seed, and its normal and exponential draws are double precision (a candidate of probability
below about 1e-16 is never drawn). None stands for the operating system's generator:
then all draws come from `samplers`, whose total variation of 2^-60 a value the plan counts into
delta.

A mechanism is a file: a class with everything that other modules need from it, and an entry
in `MECHANISMS`. A missing abstract method raises an error at import.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats, Integers, Words, override
from fedcal.mechanisms import samplers
from fedcal.secure_aggregation import Ring
from fedcal.units import Bound, Per

Source = np.random.Generator | None
"""A seeded generator; None = the operating system's."""

Answers = Literal["nothing", "sum", "index", "onehot"]
"""Result of a mechanism: exact sums, noisy sums, the index of one of several candidates, or the
counts of answers that are a single 1 among zeros."""


def words_of(source: Source) -> samplers.Words:
    """Return random words from a source."""
    return samplers.system_words if source is None else samplers.seeded_words(source)


@dataclass(frozen=True)
class Target:
    """Budget that the releases of a run may spend together.

    Attributes
    ----------
    epsilon, delta
        of the complete run
    rounds
        number of releases
    rate
        sampling rate that amplifies privacy; 1 = no amplification
    slack
        part of delta for the samplers' errors
    """

    epsilon: float
    delta: float
    rounds: int
    rate: float = 1.0
    slack: float = 0.0


@dataclass(frozen=True)
class Noise:
    """Integer noise for a vector, in steps of the ring's grid, complete or in shares.

    Attributes
    ----------
    mechanism
        that defines the distribution
    lengths
        numbers in each block
    scales
        of each block's complete noise, in steps, in the mechanism's own parameter
    shares
        number of draws that add up to the complete noise; 1 = a draw is complete
    """

    mechanism: type[Mechanism]
    lengths: tuple[int, ...]
    scales: tuple[float, ...]
    shares: int = 1

    def __post_init__(self) -> None:
        fine = all(math.isfinite(s) and s > 0 for s in self.scales)
        blocks = self.lengths and min(self.lengths) >= 1 and len(self.scales) == len(self.lengths)
        if not blocks or not fine or self.shares < 1:
            raise InputError(
                "noise needs a finite scale > 0 for each block of length >= 1, in 1 share or more, "
                f"got {self.scales} for {self.lengths} in {self.shares} shares"
            )
        self.mechanism.check_noise(self)

    def draw(self, source: Source) -> Integers:
        """Return one share, shape (length,)."""
        pairs = zip(self.scales, self.lengths, strict=True)
        return np.concatenate([self.mechanism.draw(s, self.shares, n, source) for s, n in pairs])


@dataclass(frozen=True)
class Sum:
    """Properties of a sum of answers under a plan.

    Attributes
    ----------
    ring, bound, diameter
        of the plan
    repliers
        number of answers in the sum
    std
        (length,) of the noise in it
    noise_copies
        number of copies of the complete noise in it
    costs
        function from exact sums to the costs of a draw's candidates; None = absolute values
    """

    ring: Ring
    bound: Bound
    diameter: float
    repliers: int
    std: Floats
    noise_copies: float
    costs: Callable[[Floats], Floats | None] | None = None


@dataclass(frozen=True)
class Mechanism(ABC):
    """Calibrated mechanism: an instance holds the budget of each release of its run.

    Unless a subclass overrides it, its single releases are epsilon-DP, and sums stay exact until
    `release`: nothing is scaled, drawn or sent.

    Attributes
    ----------
    epsilon
        of each release; 0 where a delta is needed
    multiplier
        Gaussian noise std per unit of L2 sensitivity; 0 for other mechanisms
    name
        on the command line and in files
    meaning
        description in a report
    answers
        result that it makes of the clients' answers
    order
        norm of a contribution that is bounded, L1 or L2
    pure
        whether it needs no delta
    part
        the only part of a client that it protects, None = any
    settles_replacement
        whether its epsilon is for one answer replaced by any other, at any distance
    tailed
        whether one draw has the heavy tails of Laplace noise
    least_integer_scale
        least scale of its noise on integers; infinite = its noise needs a fine grid
    examples
        small bounds for tests: arguments of `Bound`
    """

    epsilon: float = 0.0
    multiplier: float = 0.0

    name: ClassVar[str]
    meaning: ClassVar[str]
    answers: ClassVar[Answers]
    order: ClassVar[Literal[1, 2]] = 2
    pure: ClassVar[bool] = True
    part: ClassVar[Per | None] = None
    settles_replacement: ClassVar[bool] = False
    tailed: ClassVar[bool] = False
    least_integer_scale: ClassVar[float] = math.inf
    examples: ClassVar[tuple[Mapping[str, Any], ...]]

    # -- plan -----------------------------------------------------------------------------

    @classmethod
    def calibrate(cls, target: Target) -> Self:
        """Return the mechanism with the least noise that meets the target.

        Of releases that are epsilon-DP each has an equal part of epsilon, amplified.
        """
        from fedcal.accounting import exponential_epsilon  # nothing else of a mechanism needs it

        return cls(exponential_epsilon(target.epsilon / target.rounds, target.rate))

    @classmethod
    def check(cls, bound: Bound, rounds: int) -> None:
        """Raise InputError if the mechanism does not support a bound, or the number of rounds.

        By default all are supported.
        """
        return None

    @property
    def event(self) -> str:
        """Name of one release for the ledger."""
        return f"{self.name}(epsilon={self.epsilon!r})"

    # -- noise scale ----------------------------------------------------------------------

    def scale(self, bound: Bound, diameter: float) -> Floats:
        """Return the scale of each block's noise, in the statistic's units, (blocks,) or ()."""
        return np.zeros(0)

    def std(self, scales: Floats, noise_copies: float, bound: Bound, grid: float = 0.0) -> Floats:
        """Return the noise std of each number of a released sum, (length,).

        Parameters
        ----------
        scales
            of each block (`scale`)
        noise_copies
            number of copies of the complete noise in the sum, or of answers that are each encoded
        grid
            step of the noise; 0 = as fine as can be
        """
        return np.zeros(bound.length)

    def tail(self, noise_copies: float) -> float:
        """Return the capacity of the ring for so many copies of the noise, in scales of one."""
        return 0.0

    def noise_of(self, scales: Floats, grid: float, bound: Bound, shares: int) -> Noise | None:
        """Return the noise to add to a vector, in steps of the grid; None = no noise."""
        return None

    # -- randomness -----------------------------------------------------------------------

    @classmethod
    def check_noise(cls, noise: Noise) -> None:
        """Raise InputError for noise, maybe from a message, that the mechanism cannot draw."""
        raise InputError(f"unknown noise {cls.name!r}: it adds none")

    @classmethod
    def draw(cls, scale: float, shares: int, n: int, source: Source) -> Integers:
        """Return `n` independent shares of noise, in steps, (n,)."""
        raise NotImplementedError

    @classmethod
    def client(cls, words: Words, ring: Ring, noise: Noise, source: Source) -> Words:
        """Return the message of a client that protects itself, (length,)."""
        raise NotImplementedError

    @abstractmethod
    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """Return the released numbers and their noise std, from the server's sums, (length,) each.

        Parameters
        ----------
        sums
            (length,) decoded, with all noise that was added
        source
            the server's own randomness in this round
        """


@dataclass(frozen=True)
class NoNoise(Mechanism):
    """Release of exact sums, without any guarantee."""

    name: ClassVar[str] = "none"
    meaning: ClassVar[str] = "none"
    answers: ClassVar[Answers] = "nothing"
    pure: ClassVar[bool] = False
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    @classmethod
    @override
    def calibrate(cls, target: Target) -> Self:
        if math.isfinite(target.epsilon):
            raise InputError("without noise there is no finite epsilon")
        return cls()

    @property
    @override
    def event(self) -> str:
        return "exact sum"

    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """Return the sums as they are, and a std of 0."""
        return sums, np.zeros(len(sums))
