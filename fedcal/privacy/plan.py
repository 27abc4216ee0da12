"""One frozen plan: sampling, clip, noise, grid and event come from the same fields.

A plan is made once, before anything is asked, from what is public (`Federation`) and what the
method asks for (`Bound`). Nothing about privacy is decided anywhere else.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from fedcal.errors import InputError
from fedcal.privacy import accounting, samplers
from fedcal.privacy.bounding import SLACK, Bound
from fedcal.privacy.choice import Preferred, amplifying_rate, choose, releases_epsilon
from fedcal.privacy.federation import Federation as Federation  # also found here
from fedcal.privacy.mechanisms import (
    DIVISIBLE,
    GAUSSIAN,
    LAPLACE_TAIL,
    LAPLACIAN,
    SMOOTHING,
    TAIL,
    Mechanism,
    Noise,
    gaussian_std,
    laplace_scale,
    unary_flip,
    unary_std,
)
from fedcal.privacy.zcdp import zcdp_multiplier
from fedcal.secure_aggregation import Ring
from fedcal.streams import Purpose, key_of, stream
from fedcal.types import Floats, Integers

EXACT_GRID = 2.0**-24
_FINER = 1024  # the grid is so much finer than the noise, divided by the number of clients
_ROWS = 64  # ... and once more by this, where each row of a client is truncated by itself,
_LEAST_ROWS = 2**12  # unless so many rows of a client, each at its bound, would not fit the ring
_MOST_STEPS = 2.0**40  # of a scale or std that `samplers` draw
_SMALL_DELTA = 1e-9  # what the samplers' errors may add up to where delta = 0 was asked for


@dataclass(frozen=True)
class Plan:
    """What every round of one run does; see `make_plan`.

    Attributes
    ----------
    multiplier : Gaussian noise std per unit of L2 sensitivity (0 without)
    epsilon_per_release : budget of each release of a pure-DP mechanism (0 without)
    epsilon, delta : what the whole run spends; (inf, 0) without privacy
    bound : what one client, or one row, may add in a private round; None without privacy
    counting_rounds : how many of the rounds are further exact counts, not asked for by the user
    adjacency : which inputs are neighbours: "zero-out" (one client's rows replaced by none),
        "add-remove" (one row more or less) or "replace" (one client's rows by any others)
    diameter : how many members of the bound's set a neighbour's change may need (1 or 2)
    quorum : fewest answers that a distributed round is released with; 1 elsewhere
    """

    clients: int
    rounds: int
    sampling_rate: float
    mechanism: Mechanism
    epsilon: float
    delta: float
    unit: str
    trust: str
    seed: int
    bound: Bound | None = None
    multiplier: float = 0.0
    epsilon_per_release: float = 0.0
    counting_rounds: int = 0
    adjacency: str = "zero-out"
    noise_source: str = "seeded"
    diameter: int = field(default=1, repr=False)  # these two follow from those above
    quorum: int = field(default=1, repr=False)

    def __post_init__(self) -> None:
        if self.bound is None:
            return
        if not all(math.isfinite(s) for s in self._scales()):
            raise InputError(f"epsilon = {self.epsilon:g} asks for more noise than floats can hold")
        largest, room = max(self.bound.norms), self.ring.limit * self.grid
        if largest > room:
            raise InputError(
                f"a clip norm of {largest:g} does not fit the ring of {self.clients} clients: "
                f"its noise asks for steps of {self.grid:g}, which leave room for {room:g}"
            )
        tables = self.noise_source == "system" or self.mechanism in DIVISIBLE
        noise = self.noise  # refuses scales that make no sense
        if tables and noise is not None and max(noise.scales) > _MOST_STEPS:
            raise InputError(
                f"clip norms from {min(self.bound.norms):g} to {largest:g} are too far apart: the "
                f"grid of {self.clients} clients has steps of {self.grid:g}, and noise of "
                f"{max(noise.scales):.3g} steps is not drawn"
            )
        if self.mechanism == "unary" and min(self.bound.norms) * (1.0 - SLACK) < 1.0:
            raise InputError(
                f"unary encoding needs clip norms above 1 (2, say), got {self.bound.norms}: "
                "at a norm of 1 a 1 would be cut to less and then to 0"
            )

    @property
    def private(self) -> bool:
        """Whether releases are differentially private."""
        return self.mechanism != "none"

    @property
    def secret_sample(self) -> bool:
        """Whether nobody but the server may learn who was asked, nor how many."""
        return self.private and self.sampling_rate < 1 and self.trust == "central"

    @property
    def shares(self) -> int:
        """How many clients' noise makes the whole: the quorum under trust `distributed`."""
        return self.quorum if self.trust == "distributed" else 1

    @cached_property
    def grid(self) -> float:
        """Step of the fixed-point ring, a power of two.

        Each addend is truncated toward zero by less than a step, so the sum of K clients is off
        by less than K steps: the step is the smallest noise std of the sum / (1024 K), or 2**-24.
        Under trust `local` it is the std of one client's noise / (1024 sqrt(K)), which is the same
        part of the sum's. Where each row is truncated by itself the step is 64 times smaller, as
        long as 4,096 rows of each client fit the ring. With K = 10**6 that decides: at most 2e-9
        norms, so that 10**8 truncated rows are off by at most a fifth of a norm. With K = 10**7 it
        is 2e-8, and what is no whole number (a gap, a gradient) may be off by as much as the noise.
        Unary encoding sends whole numbers.
        """
        if self.mechanism == "unary":
            return 1.0
        scales = self._scales()
        if not scales or self.bound is None:
            return EXACT_GRID
        std = min(scales) * (math.sqrt(2.0) if self.mechanism in LAPLACIAN else 1.0)
        addends = math.sqrt(self.clients) if self.trust == "local" else float(self.clients)
        finer = _FINER * addends * (_ROWS if self.bound.per == "row" else 1)
        exponent = math.floor(math.log2(std / finer))
        if self.bound.per == "row":
            room = 2.0**62 / (self.clients * _LEAST_ROWS)  # the other half is for the noise's tails
            exponent = max(exponent, math.ceil(math.log2(max(self.bound.norms) / room)))
        return float(2.0**exponent)

    @cached_property
    def ring(self) -> Ring:
        """Where contributions are added, with room for the noise's tails."""
        if self.mechanism == "unary":
            return Ring(self.clients, self.grid)
        scales = self._scales()
        if not scales:
            return Ring(self.clients, self.grid)
        # Of n independent Laplace variates the moment generating function at 1 / (2 scale) is
        # (4/3)^n: beyond 2 (LAPLACE_TAIL + 0.29 n) scales there is less than 2**-60.
        whole_noises = self.noises(self.clients)
        tails = TAIL * math.sqrt(whole_noises)
        if self.mechanism in LAPLACIAN:
            tails = LAPLACE_TAIL
            if self.trust != "central":
                tails = 2.0 * (LAPLACE_TAIL + 0.29 * whole_noises)
        return Ring(self.clients, self.grid, math.ceil(tails * max(scales) / self.grid))

    @property
    def rows_that_fit(self) -> int | None:
        """Rows of a client, each at its bound, that are never saturated; None: no limit by rows."""
        if self.bound is None or self.bound.per != "row":
            return None
        return self.ring.limit // math.ceil(max(self.bound.norms) / self.grid)

    def _scales(self) -> tuple[float, ...]:
        """Scale of the whole noise of each block, Gaussian std or Laplace scale; () without."""
        if self.bound is None or self.mechanism not in (*GAUSSIAN, *LAPLACIAN):
            return ()
        if self.mechanism in GAUSSIAN:
            scales = gaussian_std(self.bound, self.diameter * self.multiplier)
        else:
            scales = laplace_scale(self.bound, self.epsilon_per_release / self.diameter)
        return tuple(float(s) for s in _of_blocks(scales, self.bound))

    @property
    def noise(self) -> Noise | None:
        """What is added: by the server (central), by each client (distributed, local), or None."""
        if self.bound is None or self.mechanism in ("none", "exponential"):
            return None
        if self.mechanism == "unary":
            return Noise("unary", (self.bound.length,), (unary_flip(self.epsilon_per_release),))
        steps = tuple(s / self.grid for s in self._scales())
        if self.mechanism == "discrete-gaussian":
            steps = tuple(math.hypot(s, SMOOTHING) for s in steps)
        return Noise(self.mechanism, self.bound.lengths, steps, self.shares)

    def noises(self, repliers: int) -> float:
        """How many whole noises lie in the sum of so many answers: its variance in theirs."""
        return repliers / self.shares if self.trust in ("distributed", "local") else 1.0

    def std_of_sum(self, repliers: int) -> Floats:
        """Noise std of each coordinate of the sum of so many answers, shape (length,)."""
        if self.bound is None or self.mechanism in ("none", "exponential"):
            return np.zeros(0 if self.bound is None else self.bound.length)
        if self.mechanism == "unary":
            flip = unary_flip(self.epsilon_per_release)
            return np.full(self.bound.length, unary_std(repliers, flip))
        whole_noise = np.repeat(self._scales(), self.bound.lengths)
        if self.mechanism in LAPLACIAN:
            whole_noise = whole_noise * math.sqrt(2.0)
        # times 1.0 keeps every bit of the central noise
        return np.asarray(whole_noise * math.sqrt(self.noises(repliers)))

    @property
    def noise_std(self) -> tuple[float, ...] | None:
        """Noise std of the released sum, one per block; None if nothing is added to a sum.

        Under trust `distributed` and `local` that of a round that all expected clients answer.
        """
        if self.mechanism == "exponential":
            return None
        if self.mechanism == "none" or self.bound is None:
            return (0.0,)
        expected = self.clients
        if self.trust == "local":
            expected = max(1, round(self.sampling_rate * self.clients))
        return tuple(float(s) for s in _of_blocks(self.std_of_sum(expected), self.bound))

    @property
    def mask_seed(self) -> int:
        """Seed of the simulated pair seeds, which clients get instead of `seed`.

        With `seed` they could subtract the noise. This hides it no better than a hash hides a
        small number: one more reason why seeded runs protect nobody.
        """
        return self._hashed("masks")

    @property
    def client_seed(self) -> int:
        """Seed of simulated clients' own coins and noise; as `mask_seed`, and another number."""
        return self._hashed("clients")

    def _hashed(self, what: str) -> int:
        digest = hashlib.sha256(f"fedcal {what} {self.seed}".encode()).digest()
        return int.from_bytes(digest[:7], "little")

    @property
    def key(self) -> str:
        """What tells this plan's noise from that of others; the seed is not in it.

        Two releases with the same noise at different scales would give both away, so whatever the
        scale follows from is here by name: a new field of this class moves no bit.
        """
        return key_of(
            (self.clients, self.rounds, self.sampling_rate),
            (self.mechanism, self.epsilon, self.delta, self.unit, self.trust, self.adjacency),
            (self.multiplier, self.epsilon_per_release, self.diameter, self.quorum),
            None if self.bound is None else self.bound.key,
        )

    @property
    def event(self) -> str:
        """The run in one line, for the ledger."""
        what = "exact sum"
        if self.mechanism == "gaussian":
            what = f"Gaussian(multiplier={self.multiplier!r})"
        elif self.mechanism == "discrete-gaussian":
            what = f"discrete Gaussian(multiplier={self.multiplier!r})"
        elif self.private:
            what = f"{self.mechanism}(epsilon={self.epsilon_per_release!r})"
        return f"{self.rounds} x Poisson({self.sampling_rate!r}) of {what}"

    @property
    def zcdp_multiplier(self) -> float | None:
        """The source paper's looser figure for the same target: zCDP, no amplification."""
        if self.mechanism not in GAUSSIAN:
            return None
        return zcdp_multiplier(self.epsilon, self.delta, self.rounds)

    def sample(self, round_number: int) -> Integers:
        """Clients that are asked in a round: each with probability `sampling_rate`, independently.

        Under trust `distributed` everybody is asked: all noise is needed, and whether a client's
        rows take part is its own coin (`Query.rate`), which nobody sees.
        """
        if self.sampling_rate == 1.0 or self.trust == "distributed":
            return np.arange(self.clients)
        if self.noise_source == "system":
            heads = samplers.bernoulli(self.sampling_rate, self.clients, samplers.system_words)
            return np.flatnonzero(heads)
        draws = stream(self.seed, Purpose.SAMPLING, round_number).random(self.clients)
        return np.flatnonzero(draws < self.sampling_rate)


def _of_blocks(per_value: Floats, bound: Bound) -> Floats:
    """The first number of each block, (length,) -> (blocks,)."""
    return np.asarray(per_value[bound.firsts])


def _adjacency(federation: Federation) -> str:
    """Which inputs are neighbours, for the unit and the trust model."""
    if federation.unit == "example":
        return "add-remove"
    return "replace" if federation.trust == "local" else "zero-out"


def make_plan(
    federation: Federation,
    *,
    rounds: int,
    bound: Bound,
    mechanism: Preferred = "gaussian",
    row_sums: bool = False,
    counting_rounds: int = 0,
) -> Plan:
    """The plan of a run: the noise that meets the target, on its private side.

    Parameters
    ----------
    federation : public facts and the budget
    rounds : private releases (the method's default where the federation names none)
    bound : what one client may add to each of them; with `row_sums` and unit "example" what one
        row may add. Its `order` and `per` are set here, to suit mechanism and unit
    mechanism : what the method prefers if epsilon is finite, see `choice.choose`
    row_sums : whether a client's contribution is a sum over its rows. If it is not, one row may
        move it from one end of the bound to the other: unit "example" then costs twice the bound
    counting_rounds : further exact rounds that a method needs without privacy

    Returns
    -------
    Plan
        Without privacy: exact sums. Gaussian: the smallest multiplier for `rounds` releases,
        closed form at sampling rate 1 (Balle & Wang 2018), PLD with Poisson sampling below 1.
        Pure-DP mechanisms: epsilon / rounds for each release, amplified by sampling.

    Notes
    -----
    Amplification is claimed for unit "user" under trust `central` and `distributed` only. Under
    `local` the server sees who answers. For one row of a sampled client it would need that the
    client's *other* rows change little, too.

    With noise from the operating system the samplers' total variation is part of delta.
    """
    plan = partial(
        Plan,
        clients=federation.clients,
        sampling_rate=float(federation.sampling_rate),
        unit=federation.unit,
        trust=str(federation.trust),
        seed=federation.seed,
        noise_source=federation.noise_source,
    )
    if not federation.private:
        return plan(
            rounds=rounds + counting_rounds,
            counting_rounds=counting_rounds,
            mechanism="none",
            epsilon=math.inf,
            delta=0.0,
            adjacency=_adjacency(federation),
        )
    per_row = row_sums and federation.unit == "example"
    adjacency = _adjacency(federation)
    diameter = 2 if adjacency == "replace" or (federation.unit == "example" and not per_row) else 1
    bound = replace(bound, per="row" if per_row else "client")
    chosen = choose(federation, mechanism, bound, rounds)
    if chosen in LAPLACIAN:
        bound = replace(bound, order=1)
    if chosen in GAUSSIAN:
        accounting.check_delta(federation.delta)
    if chosen in ("exponential", "unary"):
        if chosen == "exponential" and rounds != 1:
            raise InputError(f"the exponential mechanism is asked once, got rounds = {rounds}")
        if chosen == "exponential" and bound.rule == "joint":
            raise InputError("the exponential mechanism needs a bound for each candidate")
        if chosen == "exponential" and bound.rule == "per_block" and bound.order != 1:
            raise InputError("scores that are sums of absolute values need a bound of order 1")
        diameter = 1 if chosen == "unary" else diameter
    quorum = 1
    if federation.trust == "distributed":
        quorum = max(1, math.ceil(federation.quorum * federation.clients))
    slack = 0.0
    if federation.noise_source == "system":
        draws = rounds * bound.length
        if federation.trust == "distributed":  # local: one client's own draws hide it
            draws *= federation.clients
        if federation.sampling_rate < 1:
            draws += rounds * federation.clients  # coins
        # A neighbour's view, too, is off by that much: e^epsilon + 1 times (both sides).
        slack = draws * samplers.TOTAL_VARIATION * (1.0 + math.exp(min(federation.epsilon, 700.0)))
        if slack > (federation.delta / 2 or _SMALL_DELTA):
            raise InputError(
                f"epsilon = {federation.epsilon:g} and delta = {federation.delta:g} do not go with "
                f"{draws} draws from the operating system: these may be off by {slack:.3g} together"
            )
    plan = partial(
        plan,
        rounds=rounds,
        mechanism=chosen,
        epsilon=federation.epsilon,
        bound=bound,
        adjacency=adjacency,
        diameter=diameter,
        quorum=quorum,
    )
    if chosen in GAUSSIAN:
        return plan(
            delta=federation.delta,
            multiplier=accounting.gaussian_multiplier(
                federation.epsilon, federation.delta - slack, rounds, amplifying_rate(federation)
            ),
        )
    return plan(delta=slack, epsilon_per_release=releases_epsilon(federation, rounds))
