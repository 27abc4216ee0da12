"""One frozen plan: sampling, clip, noise, grid and event come from the same fields.

It is made once (`making.make_plan`), before anything is asked, from what is public (`Federation`)
and what the method asks for (`Bound`). Nothing about privacy is decided anywhere else. This module
has what follows for an answer; what the server does with answers is in `noise_plan`.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from fedcal.core.checks import InputError, one_of, unused
from fedcal.core.numerics import Floats, key_of
from fedcal.core.options import strict
from fedcal.mechanisms import MECHANISMS, Mechanism, Noise
from fedcal.privacy.privacy import Federation
from fedcal.secure_aggregation import Ring
from fedcal.trust import TRUSTS, Trust
from fedcal.units import Bound

EXACT_GRID = 2.0**-24
_FINER = 1024  # the grid is so much finer than the noise, divided by the number of clients
_ROWS = 64  # ... and once more by this, where each row of a client is truncated by itself,
_LEAST_ROWS = 2**12  # unless so many rows of a client, each at its bound, would not fit the ring
_FINE = 2.0**36  # steps of a fine grid in a norm
_MOST_STEPS = 2.0**40  # of a scale or std that `samplers` draw


@dataclass(frozen=True)
class AgreedPlan:
    """Frozen plan of every round of a run, as a site keeps it; see `noise_plan.Plan`.

    Attributes
    ----------
    federation
        the public facts and the budget that was asked for
    rounds
        how many there may be
    mechanism
        calibrated
    epsilon, delta
        what the whole run spends; (inf, 0) without privacy
    bound
        what one client, or one part of it, may add in a private round; None without privacy
    counting_rounds
        how many of the rounds are further exact counts, not asked for by the user
    adjacency
        which inputs are neighbours: "zero-out" (the place of a client, or of a row, left empty),
        "add-remove" (one row, or one subject, more or less) or "replace" (one client's rows by any
        others)
    diameter
        how many members of the bound's set a neighbour's change may need (1 or 2)
    quorum
        fewest answers that a round is released with, where noise comes in shares or there is the
        protocol of secure aggregation; 1 elsewhere
    parts
        disjoint parts of the clients, one for each round; 1 = all are asked in each of them
    row_rate
        each row takes part in a round with this probability, by a secret coin at its client
    fine
        the grid is as fine as sums of many rows leave room for, whatever the noise
    cohort
        as many clients in each round, drawn without replacement; without privacy only. Where
        everybody is asked (`asks_everyone`) each client's coin decides all the same
    """

    federation: Federation
    rounds: int
    mechanism: Mechanism
    epsilon: float
    delta: float
    bound: Bound | None = None
    counting_rounds: int = 0
    adjacency: str = "zero-out"
    diameter: int = field(default=1, repr=False)  # these two follow from those above
    quorum: int = field(default=1, repr=False)
    parts: int = field(default=1, repr=False)
    row_rate: float = field(default=1.0, repr=False)
    fine: bool = field(default=False, repr=False)
    cohort: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if self.private:
            unused("it is for runs without privacy", cohort=self.cohort or None)
        if self.bound is None:
            return
        scales = self._scales()
        if not np.isfinite(scales).all():
            raise InputError(
                f"epsilon = {self.epsilon:g} needs more noise than floats can represent"
            )
        largest, room = max(self.bound.norms), self.ring.limit * self.grid
        if largest > room:
            raise InputError(
                f"a clip norm of {largest:g} does not fit the ring of {self.clients} clients: "
                f"its noise needs steps of {self.grid:g}, which leave a capacity of {room:g}"
            )
        system = self.federation.noise_source == "system"
        tables = system or self.mechanism.tailed or self.shares > 1
        noise = self.noise  # refuses scales that make no sense
        if tables and noise is not None and max(noise.scales) > _MOST_STEPS:
            raise InputError(
                f"clip norms from {min(self.bound.norms):g} to {largest:g} are too far apart: the "
                f"grid of {self.clients} clients has steps of {self.grid:g}, and noise of "
                f"{max(noise.scales):.3g} steps is not drawn"
            )

    @property
    def clients(self) -> int:
        """Number of enrolled clients."""
        return self.federation.clients

    @property
    def unit(self) -> str:
        """Name of the unit."""
        return self.federation.unit

    @property
    def trust(self) -> str:
        """Name of the trust model."""
        return str(self.federation.trust)

    @property
    def committee(self) -> tuple[int, int] | None:
        """Members of the protocol's committee, and how many of them open a sum; None = no protocol.

        Each site answers every round then, by its own coin with its rows or with none.
        """
        facts = self.federation
        return (facts.committee, facts.threshold) if facts.committee else None

    @property
    def model(self) -> Trust:
        """Trust model: which party adds the noise, and against whom it protects."""
        return TRUSTS[self.trust]

    @property
    def private(self) -> bool:
        """True if releases are differentially private."""
        return self.mechanism.answers != "nothing"

    @property
    def tailed(self) -> bool:
        """True if the noise of a sum has Laplace tails; the sum of many draws does not."""
        return self.mechanism.tailed and not self.model.alone

    @property
    def asks_everyone(self) -> bool:
        """True if every client answers, and its own secret coin decides if its rows count."""
        return self.model.asks_everyone or self.committee is not None

    @property
    def own_rate(self) -> float:
        """The probability of that coin; 1 = the server's sample decides, or nothing."""
        return self.federation.sampling_rate if self.asks_everyone else 1.0

    @property
    def shares(self) -> int:
        """Number of clients whose noise makes the complete noise."""
        return self.model.shares(self.quorum - self.federation.colluding)

    @property
    def on_integers(self) -> bool:
        """True if addends and noise are integers: sums have no error but the noise."""
        scales = self._scales()
        return bool(
            self.bound is not None
            and self.bound.whole
            and len(scales)
            and scales.min() >= self.mechanism.least_integer_scale
        )

    @cached_property
    def grid(self) -> float:
        """Step of the fixed-point ring, a power of two.

        It is 1 where addends are integers: Laplace noise is drawn there, and nothing is truncated.

        Elsewhere each addend is truncated toward zero by less than a step, so the sum of K clients
        is off by less than K steps: the step is the smallest noise std of the sum / (1024 K), or
        2**-24. Under trust `local` it is the std of one client's noise / (1024 sqrt(K)), which is
        the same part of the sum's. Where each row is truncated by itself the step is 64 times
        smaller, as long as 4,096 rows of each client fit the ring. With K = 10**6 that decides: at
        most 2e-9 norms, so that 10**8 truncated rows are off by at most a fifth of a norm. With K =
        10**7 it is 2e-8, and what is not an integer (a gap, a gradient) may be off by as much as
        the noise. Unary encoding sends integers. A `fine` grid has 2**36 steps in a norm, where
        2**12 rows of each client fit and the noise is 2**40 steps at most.
        """
        if self.mechanism.answers == "onehot" or self.on_integers:
            return 1.0
        scales = self._scales()
        if not len(scales) or self.bound is None:
            return 1.0 / _FINE if self.fine else EXACT_GRID
        room = 2.0**62 / (self.clients * _LEAST_ROWS)  # the other half is for the noise's tails
        if self.fine:
            norms = self.bound.norms
            steps = max(max(norms) / room, float(max(scales)) / _MOST_STEPS)
            least = math.ceil(math.log2(steps))
            return float(2.0 ** max(math.floor(math.log2(min(norms) / _FINE)), least))
        std = float(self.mechanism.std(scales, 1.0, self.bound).min())
        parts = self.bound.per != "client"
        finer = _FINER * self.model.addends(self.clients) * (_ROWS if parts else 1)
        exponent = math.floor(math.log2(std / finer))
        if parts:
            exponent = max(exponent, math.ceil(math.log2(max(self.bound.norms) / room)))
        return float(2.0**exponent)

    @cached_property
    def ring(self) -> Ring:
        """Ring in which contributions are added, large enough for the noise's tails."""
        scales = self._scales()
        if not len(scales):
            return Ring(self.clients, self.grid)
        return Ring(self.clients, self.grid, math.ceil(self.tail * max(scales) / self.grid))

    @property
    def tail(self) -> float:
        """Largest noise in the sum of all clients' answers, in scales of one noise."""
        return self.mechanism.tail(self.noise_copies(self.clients))

    def _scales(self) -> Floats:
        """Scale of the whole noise of each block, (blocks,); () without."""
        if self.bound is None:
            return np.zeros(0)
        return self.mechanism.scale(self.bound, self.diameter)

    @cached_property
    def noise(self) -> Noise | None:
        """Noise that the server (central) or each client (distributed, local) adds, or None."""
        if self.bound is None:
            return None
        return self.mechanism.noise_of(self._scales(), self.grid, self.bound, self.shares)

    def noise_copies(self, repliers: int) -> float:
        """Return the number of copies of the complete noise in the sum of so many answers."""
        return self.model.noise_copies(repliers, self.shares)

    @cached_property
    def key(self) -> str:
        """Key that separates this plan's noise from that of others; the seed is not in it.

        Two releases with the same noise at different scales would give both away, so whatever the
        scale follows from is here by name: a new field of this class moves no bit.
        """
        facts = self.federation
        return key_of(
            (self.clients, self.rounds, facts.sampling_rate),
            (self.mechanism.name, self.epsilon, self.delta, self.unit, self.trust, self.adjacency),
            (self.mechanism.multiplier, self.mechanism.epsilon, self.diameter, self.quorum),
            None if self.bound is None else self.bound.key,
            *((self.parts,) if self.parts > 1 else ()),
            *(("rows", self.row_rate) if self.row_rate < 1 else ()),
            *(("fine",) if self.fine else ()),
            *((self.committee, facts.colluding) if self.committee or facts.colluding else ()),
        )

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for a strict JSON file, for `from_plain`; the seed is in none."""
        values = asdict(replace(self, federation=replace(self.federation, seed=0)))
        plain: dict[str, Any]
        plain = strict({**values, "mechanism": [self.mechanism.name, values["mechanism"]]})
        return plain

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Self:
        """Return the plan of `to_plain` values, whoever wrote them: `made_again` tells if it holds.

        Raises InputError, LookupError, TypeError or ValueError for what is none.
        """
        name, parts = values["mechanism"]
        facts, bound = values["federation"], values["bound"]
        mechanism = MECHANISMS[one_of("mechanism", name, MECHANISMS)]
        sizes: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in (bound or {}).items()}
        own = {
            "federation": Federation(**{**facts, "epsilon": float(facts["epsilon"])}),
            "mechanism": mechanism(**{key: float(value) for key, value in parts.items()}),
            "epsilon": float(values["epsilon"]),
            "bound": bound and Bound(**sizes),
        }
        return cls(**{**values, **own})
