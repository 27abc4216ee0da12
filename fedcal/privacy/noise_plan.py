"""One frozen plan: sampling, clip, noise, grid and event come from the same fields.

It is made once (`making.make_plan`), before anything is asked, from what is public (`Federation`)
and what the method asks for (`Bound`). Nothing about privacy is decided anywhere else.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedcal.core.checks import InputError, one_of, unused
from fedcal.core.fields import strict
from fedcal.core.numerics import Floats, Integers, Purpose, key_of, stream
from fedcal.mechanisms import MECHANISMS, Mechanism, Noise, Sum, samplers
from fedcal.privacy.federation import Federation as Federation  # also found here
from fedcal.privacy.federation import amplifying_rate
from fedcal.secure_aggregation import Ring
from fedcal.trust import TRUSTS, Trust
from fedcal.units import UNITS, Unit
from fedcal.units.bounding import Bound

if TYPE_CHECKING:
    from fedcal.mechanisms.noise_law import NoiseLaw

EXACT_GRID = 2.0**-24
_FINER = 1024  # the grid is so much finer than the noise, divided by the number of clients
_ROWS = 64  # ... and once more by this, where each row of a client is truncated by itself,
_LEAST_ROWS = 2**12  # unless so many rows of a client, each at its bound, would not fit the ring
_FINE = 2.0**36  # steps of a fine grid in a norm
_MOST_STEPS = 2.0**40  # of a scale or std that `samplers` draw


@dataclass(frozen=True)
class Plan:
    """Frozen plan of every round of a run; see `making.make_plan`.

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
    def multiplier(self) -> float:
        """Gaussian noise std per unit of L2 sensitivity (0 without)."""
        return self.mechanism.multiplier

    @property
    def model(self) -> Trust:
        """Trust model: which party adds the noise, and against whom it protects."""
        return TRUSTS[self.trust]

    @property
    def protected(self) -> type[Unit]:
        """Unit whose presence the guarantee hides."""
        return UNITS[self.unit]

    @property
    def private(self) -> bool:
        """True if releases are differentially private."""
        return self.mechanism.answers != "nothing"

    def unanswered(self, std: Floats) -> bool:
        """Return whether a private release with noise of this std holds no client's answer.

        So it is where clients add the noise (trust `local`) and nobody was asked. Such a release
        says nothing; exact sums and drawn indices always say something.
        """
        return self.private and len(std) > 0 and not std.any()

    @property
    def tailed(self) -> bool:
        """True if the noise of a sum has Laplace tails; the sum of many draws does not."""
        return self.mechanism.tailed and not self.model.alone

    @property
    def secret_sample(self) -> bool:
        """True if only the server may learn which clients were asked, and how many."""
        secret = self.model.amplifies and not self.asks_everyone
        return self.private and self.federation.sampling_rate < 1 and secret

    @property
    def asks_everyone(self) -> bool:
        """True if every client answers, and its own secret coin decides if its rows count."""
        return self.model.asks_everyone or self.committee is not None

    @property
    def own_rate(self) -> float:
        """The probability of that coin; 1 = the server's sample decides, or nothing."""
        return self.federation.sampling_rate if self.asks_everyone else 1.0

    @property
    def amplifying_rate(self) -> float:
        """The sampling rate that the epsilon counts on; 1 = on none."""
        return self.row_rate if self.row_rate < 1 else amplifying_rate(self.federation)

    @property
    def shares(self) -> int:
        """Number of clients whose noise makes the complete noise."""
        return self.model.shares(self.quorum - self.federation.colluding)

    @property
    def on_integers(self) -> bool:
        """Whether addends and noise are integers: sums have no error but the noise."""
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

    @property
    def rows_that_fit(self) -> int | None:
        """Rows (subjects) of a client, each at its bound, that are never saturated; None = any."""
        if self.bound is None or self.bound.per == "client":
            return None
        return self.ring.limit // math.ceil(max(self.bound.norms) / self.grid)

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

    def std_of_sum(self, repliers: int) -> Floats:
        """Noise std of each coordinate of the sum of so many answers, shape (length,)."""
        if self.bound is None:
            return np.zeros(0)
        copies = self.noise_copies(repliers)
        return self.mechanism.std(self._scales(), copies, self.bound, self.grid)

    def noise_law(self, std: float) -> NoiseLaw:
        """Return the law of the noise of a released number, with this std by the answers to it."""
        from fedcal.mechanisms.noise_law import NoiseLaw  # for those who read releases

        if self.bound is None or not std or not self.mechanism.tailed:
            return NoiseLaw()
        one = float(self.mechanism.std(self._scales(), 1.0, self.bound, self.grid).max())
        noise_copies = float(f"{(std / one) ** 2:.12g}")
        return NoiseLaw(True, noise_copies, self.grid / std if self.on_integers else 0.0)

    def sum_of(
        self, bound: Bound, repliers: int, costs: Callable[[Floats], Floats | None] | None = None
    ) -> Sum:
        """Return the sum of so many answers, each clipped to `bound`; see `Query.costs`."""
        std, noise_copies = self.std_of_sum(repliers), self.noise_copies(repliers)
        return Sum(self.ring, bound, self.diameter, repliers, std, noise_copies, costs)

    @property
    def noise_std(self) -> tuple[float, ...] | None:
        """Noise std of the released sum, one per block; None if nothing is added to a sum.

        Under trust `distributed` and `local` that of a round that all expected clients answer.
        """
        if self.mechanism.answers == "index":
            return None
        if self.bound is None:
            return (0.0,)
        asked = self.model.expected(self.federation.sampling_rate, self.clients)
        std = self.std_of_sum(math.ceil(asked / self.parts))
        return tuple(float(s) for s in std[self.bound.firsts])

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
        digest = hashlib.sha256(f"fedcal {what} {self.federation.seed}".encode()).digest()
        return int.from_bytes(digest[:7], "little")

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
        own = {
            "federation": Federation(**{**facts, "epsilon": float(facts["epsilon"])}),
            "mechanism": mechanism(**{key: float(value) for key, value in parts.items()}),
            "epsilon": float(values["epsilon"]),
            "bound": bound and Bound(**{key: _tupled(value) for key, value in bound.items()}),
        }
        return cls(**{**values, **own})

    @property
    def event(self) -> str:
        """The run in one line, for the ledger."""
        of = self.mechanism.event + (", each of other clients" if self.parts > 1 else "")
        drawn = f"Poisson({self.federation.sampling_rate!r})"
        if self.cohort and not self.asks_everyone:
            drawn = f"{round(self.share_asked * self.clients)} of {self.clients} clients"
        if self.row_rate < 1:
            drawn = f"Poisson rows({self.row_rate!r})"
        return f"{self.rounds} x {drawn} of {of}"

    @property
    def share_asked(self) -> float:
        """Share of the clients asked in a round; with independent coins the expected one."""
        if self.asks_everyone:
            return 1.0
        if self.cohort:
            return max(1, round(self.federation.sampling_rate * self.clients)) / self.clients
        return self.federation.sampling_rate / self.parts

    def sample(self, round_number: int) -> Integers:
        """Return the clients asked in a round: each with probability `sampling_rate`.

        Under trust `distributed`, and under the protocol, everybody is asked: all noise is needed,
        and whether a client's rows take part is its own coin (`Query.rate`), which nobody sees.
        """
        facts = self.federation
        if self.parts > 1:  # dealt by chance, which need not be secret
            dealt = stream(facts.seed, Purpose.SAMPLING, 0, "parts").permutation(self.clients)
            return np.flatnonzero(dealt % self.parts == round_number - 1)
        if facts.sampling_rate == 1.0 or self.asks_everyone:
            return np.arange(self.clients)
        if self.cohort:  # no secret: a seed draws it, wherever noise would come from
            number = round(self.share_asked * self.clients)
            drawn = stream(facts.seed, Purpose.SAMPLING, round_number, "training")
            return np.sort(drawn.permutation(self.clients)[:number])
        if facts.noise_source == "system":
            heads = samplers.bernoulli(facts.sampling_rate, self.clients, samplers.system_words)
            return np.flatnonzero(heads)
        draws = stream(facts.seed, Purpose.SAMPLING, round_number).random(self.clients)
        return np.flatnonzero(draws < facts.sampling_rate)


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
