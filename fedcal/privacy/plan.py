"""One frozen plan: sampling, clip, noise, grid and event come from the same fields.

A plan is made once, before anything is asked, from what is public (`Federation`) and what the
method asks for (`Bound`). Nothing about privacy is decided anywhere else.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from fedcal.checks import one_of, whole
from fedcal.errors import InputError, NotBuiltYet
from fedcal.privacy import accounting
from fedcal.privacy.bounding import Bound
from fedcal.privacy.mechanisms import TAIL, gaussian_std
from fedcal.privacy.zcdp import zcdp_multiplier
from fedcal.secure_aggregation import Ring
from fedcal.streams import Purpose, check_seed, stream
from fedcal.types import Integers

Mechanism = Literal["none", "gaussian", "exponential"]

EXACT_GRID = 2.0**-24
_FINER = 1024  # the grid is so much finer than the noise, divided by the number of clients


@dataclass(frozen=True)
class Federation:
    """Who takes part, and what may be learned from them. All of it is public.

    Attributes
    ----------
    clients : enrolled clients K
    classes : classes c of the model
    rounds : rounds of queries; None = the method's default
    sampling_rate : each client takes part in a round with this probability (Poisson)
    epsilon : user-level budget of the whole run; inf = no differential privacy
    delta : its failure probability; must be > 0 for Gaussian noise
    unit : "user" ("example" is not built yet)
    trust : "secagg" (nobody adds noise) or "central" (the server does, after the secure sum);
        None = the one that fits epsilon
    seed : of sampling and noise. Seeded noise protects nobody who knows the seed
    """

    clients: int
    classes: int
    rounds: int | None = None
    sampling_rate: float = 1.0
    epsilon: float = math.inf
    delta: float = 1e-5
    unit: str = "user"
    trust: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole("clients", self.clients, 1)
        whole("classes", self.classes, 2)
        if self.rounds is not None:
            whole("rounds", self.rounds, 1)
        check_seed(self.seed)
        accounting.check_rate(self.sampling_rate)
        accounting.check_epsilon(self.epsilon, allow_infinite=True)
        if not 0 <= self.delta < 1:
            raise InputError(f"delta must be in [0, 1), got {self.delta!r}")
        one_of("unit", self.unit, ("user", "example"))
        if self.unit == "example":
            raise NotBuiltYet("unit 'example'")
        trust = self.trust or ("central" if self.private else "secagg")
        one_of("trust", trust, ("secagg", "central", "distributed", "local"))
        if trust in ("distributed", "local"):
            raise NotBuiltYet(f"trust model '{trust}'")
        if self.private and trust == "secagg":
            raise InputError(
                "trust 'secagg' adds no noise, so epsilon cannot be finite; use --trust central"
            )
        if not self.private and trust == "central":
            raise InputError("trust 'central' adds noise; give a finite epsilon or use secagg")
        object.__setattr__(self, "trust", trust)

    @property
    def private(self) -> bool:
        """Whether the run is differentially private."""
        return math.isfinite(self.epsilon)


@dataclass(frozen=True)
class Plan:
    """What every round of one run does; see `make_plan`.

    Attributes
    ----------
    multiplier : Gaussian noise std per unit of L2 sensitivity (0 without)
    epsilon_per_release : budget of one exponential-mechanism draw (0 without)
    epsilon, delta : what the whole run spends; (inf, 0) without privacy
    bound : what one client may add in a private round; None without privacy
    counting_rounds : how many of the rounds are further exact counts, not asked for by the user
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

    def __post_init__(self) -> None:
        if self.bound is None:
            return
        largest, room = max(self.bound.norms), self.ring.limit * self.grid
        if largest > room:
            raise InputError(
                f"a clip norm of {largest:g} does not fit the ring of {self.clients} clients: "
                f"its noise asks for steps of {self.grid:g}, which leave room for {room:g}"
            )

    @property
    def private(self) -> bool:
        """Whether releases are differentially private."""
        return self.mechanism != "none"

    @property
    def grid(self) -> float:
        """Step of the fixed-point ring, a power of two.

        Each client truncates toward zero by less than a step, so the sum of K of them is off by
        less than K steps: the step is the smallest noise std / (1024 K), or 2**-24.
        """
        std = self.noise_std
        if std is None or not any(std):
            return EXACT_GRID
        return float(2.0 ** math.floor(math.log2(min(std) / (_FINER * self.clients))))

    @property
    def ring(self) -> Ring:
        """Where contributions are added, with room for the noise's tails."""
        std = self.noise_std or (0.0,)
        return Ring(self.clients, self.grid, math.ceil(TAIL * max(std) / self.grid))

    @property
    def noise_std(self) -> tuple[float, ...] | None:
        """Noise std of the released sum, one per block; None if nothing is added to a sum."""
        if self.mechanism == "exponential":
            return None
        if self.mechanism == "none" or self.bound is None:
            return (0.0,)
        per_value = gaussian_std(self.bound, self.multiplier)
        firsts = np.cumsum((0, *self.bound.lengths[:-1]))
        return tuple(float(s) for s in per_value[firsts])

    @property
    def mask_seed(self) -> int:
        """Seed of the simulated pair seeds, which clients get instead of `seed`.

        With `seed` they could subtract the noise. This hides it no better than a hash hides a
        small number: one more reason why seeded runs protect nobody.
        """
        digest = hashlib.sha256(f"fedcal masks {self.seed}".encode()).digest()
        return int.from_bytes(digest[:7], "little")

    @property
    def event(self) -> str:
        """The run in one line, for the ledger."""
        what = {
            "none": "exact sum",
            "gaussian": f"Gaussian(multiplier={self.multiplier!r})",
            "exponential": f"exponential(epsilon={self.epsilon_per_release!r})",
        }[self.mechanism]
        return f"{self.rounds} x Poisson({self.sampling_rate!r}) of {what}"

    @property
    def zcdp_multiplier(self) -> float | None:
        """The source paper's looser figure for the same target: zCDP, no amplification."""
        if self.mechanism != "gaussian":
            return None
        return zcdp_multiplier(self.epsilon, self.delta, self.rounds)

    def sample(self, round_number: int) -> Integers:
        """Clients of a round: each with probability `sampling_rate`, independently."""
        if self.sampling_rate == 1.0:
            return np.arange(self.clients)
        draws = stream(self.seed, Purpose.SAMPLING, round_number).random(self.clients)
        return np.flatnonzero(draws < self.sampling_rate)


def make_plan(
    federation: Federation,
    *,
    rounds: int,
    bound: Bound,
    mechanism: Literal["gaussian", "exponential"] = "gaussian",
    counting_rounds: int = 0,
) -> Plan:
    """The plan of a run: the noise that meets the target, on its private side.

    Parameters
    ----------
    federation : public facts and the budget
    rounds : private releases (the method's default where the federation names none)
    bound : what one client may add to each of them
    mechanism : used if epsilon is finite
    counting_rounds : further exact rounds that a method needs without privacy

    Returns
    -------
    Plan
        Without privacy: exact sums. Gaussian: the smallest multiplier for `rounds` releases,
        closed form at sampling rate 1 (Balle & Wang 2018), PLD with Poisson sampling below 1.
        Exponential: one draw, pure epsilon, amplified by sampling.
    """
    plan = partial(
        Plan,
        clients=federation.clients,
        sampling_rate=float(federation.sampling_rate),
        unit=federation.unit,
        trust=str(federation.trust),
        seed=federation.seed,
    )
    if not federation.private:
        return plan(
            rounds=rounds + counting_rounds,
            counting_rounds=counting_rounds,
            mechanism="none",
            epsilon=math.inf,
            delta=0.0,
        )
    if mechanism == "exponential":
        if rounds != 1:
            raise InputError(f"the exponential mechanism is asked once, got rounds = {rounds}")
        return plan(
            rounds=1,
            mechanism="exponential",
            epsilon=federation.epsilon,
            delta=0.0,
            bound=bound,
            epsilon_per_release=accounting.exponential_epsilon(
                federation.epsilon, federation.sampling_rate
            ),
        )
    return plan(
        rounds=rounds,
        mechanism="gaussian",
        epsilon=federation.epsilon,
        delta=federation.delta,
        bound=bound,
        multiplier=accounting.gaussian_multiplier(
            federation.epsilon, federation.delta, rounds, federation.sampling_rate
        ),
    )
