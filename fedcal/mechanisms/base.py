"""What a mechanism is: from a sum, or a contribution, to something that may be released.

`Delta_1`, `Delta_2` in the docstrings of the mechanisms are the L1 and L2 norms of what a neighbour
changes in the sum, each block in units of its norm (`Bound`, `Plan.diameter`); unit, adjacency and
trust are the plan's. All noise is added to integers on the ring's grid.

Randomness. A seeded generator is for simulation: it protects nobody who knows the seed, and its
normal, Laplace and exponential draws are double precision (a candidate of probability below about
1e-16 is never drawn). None stands for the operating system's: then all draws come from
`samplers`, whose total variation of 2^-60 a value the plan counts into delta.

A mechanism is a file: a class with everything that the rest of the house asks about it, and a row
in `MECHANISMS`. There is no method that a subclass may forget: what is missing is found at import.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers, Words
from fedcal.mechanisms import samplers
from fedcal.secure_aggregation import Ring
from fedcal.units.bounding import Bound, Per

Source = np.random.Generator | None
"""A seeded generator, or None: the operating system."""

Answers = Literal["nothing", "sum", "index", "onehot"]
"""What a mechanism makes of the clients' answers: exact sums, noisy sums, the index of one of
several candidates, or the counts of answers that are a single 1 among zeros."""


def words_of(source: Source) -> samplers.Words:
    """Random words from a source."""
    return samplers.system_words if source is None else samplers.seeded_words(source)


@dataclass(frozen=True)
class Target:
    """What the releases of a run may spend together.

    Attributes
    ----------
    epsilon, delta
        of the whole run
    rounds
        releases
    rate
        at which sampling amplifies privacy; 1 = it does not
    slack
        part of delta that the samplers' errors take
    """

    epsilon: float
    delta: float
    rounds: int
    rate: float = 1.0
    slack: float = 0.0


@dataclass(frozen=True)
class Noise:
    """Integer noise for a vector, in steps of the ring's grid, or one of the shares of it.

    Attributes
    ----------
    law
        mechanism whose noise it is
    lengths
        numbers in each block
    scales
        of each block, in steps, of the whole noise, as the mechanism means them
    shares
        how many draws add up to the whole; 1 = each draw is the whole
    """

    law: type[Mechanism]
    lengths: tuple[int, ...]
    scales: tuple[float, ...]
    shares: int = 1

    def __post_init__(self) -> None:
        if not self.lengths or any(n < 1 for n in self.lengths):
            raise InputError(f"noise needs blocks of length >= 1, got {self.lengths}")
        if len(self.scales) != len(self.lengths):
            raise InputError(f"noise for {len(self.lengths)} blocks has {len(self.scales)} scales")
        if not all(math.isfinite(s) and s > 0 for s in self.scales):
            raise InputError(f"scales of noise must be finite and > 0, got {self.scales}")
        self.law.check_noise(self)

    @property
    def mechanism(self) -> str:
        """Name of its law."""
        return self.law.name

    def draw(self, source: Source) -> Integers:
        """One share, shape (length,)."""
        pairs = zip(self.scales, self.lengths, strict=True)
        return np.concatenate([self.law.draw(s, self.shares, n, source) for s, n in pairs])


@dataclass(frozen=True)
class Sum:
    """What a sum of answers is under a plan.

    Attributes
    ----------
    ring, bound, diameter
        of the plan
    repliers
        answers in it
    std
        (length,) of the noise in it
    alone
        whether that is about one whole draw, or many that add up to nearly normal noise
    costs
        what candidates of a draw cost, by exact sums; None = by their absolute values
    """

    ring: Ring
    bound: Bound
    diameter: float
    repliers: int
    std: Floats
    alone: bool
    costs: Callable[[Floats], Floats | None] | None = None


class Mechanism(ABC):
    """One mechanism, calibrated: an instance knows what each release of its run may spend.

    Attributes
    ----------
    name
        on the command line and in files
    noise
        what it is called in a sentence
    meaning
        a line for who reads a report
    answers
        what it makes of the clients' answers
    order
        norm of a contribution that is bounded, L1 or L2
    pure
        whether it needs no delta
    divisible
        whether several clients can draw a share of its noise each
    part
        the only part of a client that it protects, None = any
    settles_replacement
        whether its epsilon is for one answer replaced by any other, however far
    tailed
        whether one draw has the heavy tails of Laplace noise
    examples
        small bounds for tests: arguments of `Bound`
    """

    name: ClassVar[str]
    noise: ClassVar[str]
    meaning: ClassVar[str]
    answers: ClassVar[Answers]
    order: ClassVar[Literal[1, 2]]
    pure: ClassVar[bool]
    divisible: ClassVar[bool]
    part: ClassVar[Per | None]
    settles_replacement: ClassVar[bool]
    tailed: ClassVar[bool]
    examples: ClassVar[tuple[Mapping[str, Any], ...]]

    # -- made by the plan -----------------------------------------------------------------

    @classmethod
    @abstractmethod
    def calibrate(cls, target: Target) -> Self:
        """The least noise that meets the target."""

    @classmethod
    @abstractmethod
    def check(cls, bound: Bound, rounds: int) -> None:
        """InputError if a bound, or so many rounds, do not go with the mechanism."""

    @classmethod
    @abstractmethod
    def in_shares(cls) -> type[Mechanism] | None:
        """What takes its place where each client adds a share; None = nothing can."""

    @property
    @abstractmethod
    def key(self) -> tuple[float, float]:
        """(noise multiplier, epsilon of each release), 0 for the one that it does not have."""

    @property
    @abstractmethod
    def event(self) -> str:
        """One release in a word, for the ledger."""

    @abstractmethod
    def sentence(self) -> str:
        """What happens to an answer, without a dot; "" where the trust model says who adds noise"""

    # -- how much noise -------------------------------------------------------------------

    @abstractmethod
    def scale(self, bound: Bound, diameter: float) -> Floats:
        """Scale of each block's whole noise, in the statistic's units, (blocks,); () = none."""

    @abstractmethod
    def std(self, scales: Floats, noises: float, bound: Bound) -> Floats:
        """Std of each number of a released sum that holds so many whole noises, (length,).

        Parameters
        ----------
        scales
            of each block (`scale`)
        noises
            whole noises in the sum, or answers if each answer is encoded
        """

    @abstractmethod
    def tail(self, noises: float, alone: bool) -> float:
        """Room in the ring for a sum of so many whole noises, in scales: more has no chance.

        `alone` : the sum holds a single draw.
        """

    @abstractmethod
    def noise_of(self, scales: Floats, grid: float, bound: Bound, shares: int) -> Noise | None:
        """What somebody adds to a vector, in steps of the grid; None = nothing is added."""

    # -- randomness -----------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def check_noise(cls, noise: Noise) -> None:
        """InputError for noise, maybe from a message, that the mechanism cannot draw."""

    @classmethod
    @abstractmethod
    def draw(cls, scale: float, shares: int, n: int, source: Source) -> Integers:
        """`n` independent shares of noise, in steps, (n,)."""

    @classmethod
    @abstractmethod
    def client(cls, words: Words, ring: Ring, noise: Noise, source: Source) -> Words:
        """What a client that protects itself sends, (length,)."""

    @abstractmethod
    def draw_sum(self, total: Words, of: Sum, rng: np.random.Generator) -> Words:
        """An exact sum with what all repliers' own noise adds up to, in one draw; for studies.

        `total` and the result are (length,) words of the ring.
        """

    @abstractmethod
    def release(self, sums: Floats, of: Sum, source: Callable[[], Source]) -> tuple[Floats, Floats]:
        """What is released of the sums that the server has, and its noise std, (length,) each.

        Parameters
        ----------
        sums
            (length,) decoded, with all noise that was added
        source
            the server's own randomness in this round
        """

    # -- attacks --------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def worst_pair(cls, bound: Bound, opposite: bool) -> tuple[Floats, Floats]:
        """A unit's contributions in two worlds, (length,) each, that tell most.

        `opposite` : a neighbour may be any other contribution, not only none.
        """

    @abstractmethod
    def attack(self, view: View) -> NDArray[np.float64]:
        """The attacker's number in each of many independent runs, (trials,); see `audit`."""


@dataclass(frozen=True)
class View:
    """All that an attack on a mechanism works with.

    Attributes
    ----------
    bound, diameter, ring, rounds, shares
        of the plan
    noise
        of the plan
    words
        (2, length) the unit's encoded contributions in the world with it, and without
    present
        which of the two worlds
    rate
        how likely the unit takes part in a round, for all that the attacker knows
    trials
        independent runs
    source
        of randomness
    """

    bound: Bound
    diameter: float
    ring: Ring
    rounds: int
    shares: int
    noise: Noise | None
    words: Words
    present: bool
    rate: float
    trials: int
    source: Source

    @property
    def mine(self) -> Words:
        """The unit's contribution in this world, (length,)."""
        return np.asarray(self.words[0 if self.present else 1])

    def coins(self) -> NDArray[np.bool_]:
        """Whether the unit takes part in each run, (trials, 1)."""
        drawn = samplers.bernoulli(self.rate, self.trials, words_of(self.source))
        return np.asarray(drawn)[:, None]
