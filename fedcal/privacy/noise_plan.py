"""One frozen plan: sampling, clip, noise, grid and event come from the same fields.

A plan is made once, before anything is asked, from what is public (`Federation`) and what the
method asks for (`Bound`). Nothing about privacy is decided anywhere else.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Self

import numpy as np

from fedcal import accounting
from fedcal.accounting.gaussian import zcdp_multiplier
from fedcal.core.checks import one_of, same, unused, whole
from fedcal.core.errors import InputError
from fedcal.core.fields import strict
from fedcal.core.streams import Purpose, key_of, stream
from fedcal.core.types import Floats, Integers
from fedcal.mechanisms import (
    MECHANISMS,
    Gaussian,
    Mechanism,
    Noise,
    NoiseLaw,
    NoNoise,
    Sum,
    Target,
    samplers,
)
from fedcal.privacy.federation import Federation as Federation  # also found here
from fedcal.privacy.federation import amplifying_rate, choose
from fedcal.privacy.privacy import MOST_ROUNDS
from fedcal.secure_aggregation import Ring
from fedcal.trust import TRUSTS, Trust
from fedcal.units import UNITS, Unit
from fedcal.units.bounding import Bound

EXACT_GRID = 2.0**-24
_FINER = 1024  # the grid is so much finer than the noise, divided by the number of clients
_ROWS = 64  # ... and once more by this, where each row of a client is truncated by itself,
_LEAST_ROWS = 2**12  # unless so many rows of a client, each at its bound, would not fit the ring
_FINE = 2.0**36  # steps of a fine grid in a norm
_MOST_STEPS = 2.0**40  # of a scale or std that `samplers` draw
_SMALL_DELTA = 1e-9  # what the samplers' errors may add up to where delta = 0 was asked for


@dataclass(frozen=True)
class Plan:
    """Frozen plan of every round of a run; see `make_plan`.

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
        if self.bound is None or not std:
            return NoiseLaw()
        one = float(self.mechanism.std(self._scales(), 1.0, self.bound, self.grid).max())
        noise_copies = float(f"{(std / one) ** 2:.12g}")
        return self.mechanism.law(noise_copies, self.grid / std if self.on_integers else 0.0)

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
        return strict({**values, "mechanism": [self.mechanism.name, values["mechanism"]]})

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
    def zcdp_multiplier(self) -> float | None:
        """The source paper's looser figure for the same target: zCDP, no amplification.

        None where no Gaussian noise is added.
        """
        if not self.multiplier:
            return None
        return zcdp_multiplier(self.epsilon, self.delta, self.rounds // self.parts)

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


def make_plan(
    federation: Federation,
    *,
    rounds: int,
    bound: Bound,
    prefers: Sequence[type[Mechanism]] = (Gaussian,),
    row_sums: bool = False,
    counting_rounds: int = 0,
    asked_once: bool = False,
    row_rate: float = 1.0,
    fine: bool = False,
    cohort: bool = False,
) -> Plan:
    """Make the plan of a run: the noise that meets the target, on its private side.

    Parameters
    ----------
    federation
        public facts and the budget
    rounds
        private releases (the method's default where the federation names none)
    bound
        what one client may add to each of them; with `row_sums` and a unit that is a part of a
        client what that part may add. Its `order` and `per` are set here, to suit mechanism and
        unit
    prefers
        what the method prefers if epsilon is finite, see `choice.choose`
    row_sums
        whether a client's contribution is a sum over its rows. If it is not, one row may
        move it from one end of the bound to the other: units "example" and "subject" then cost
        twice the bound
    counting_rounds
        further exact rounds that a method needs without privacy
    asked_once
        each client answers in one of the rounds only, which then is all that it spends
    row_rate
        each row takes part in a round with this probability, by a coin of its client's
    fine, cohort
        as in `Plan`

    Returns
    -------
    Plan
        Without privacy: exact sums. Gaussian: the smallest multiplier for `rounds` releases,
        closed form at sampling rate 1 (Balle & Wang 2018), PLD with Poisson sampling below 1.
        Pure-DP mechanisms: epsilon / rounds for each release, amplified by sampling.

    Notes
    -----
    Amplification by sampled clients is claimed for unit "user" under trust `central` and
    `distributed` only. Under `local` the server sees who answers. For one row of a sampled client
    it would need that the client's *other* rows change little, too. Amplification by sampled rows
    is claimed for unit "example" under the same models: nobody but its client sees a row's coin.

    With noise from the operating system the samplers' total variation is part of delta.
    """
    model, unit = TRUSTS[str(federation.trust)], UNITS[federation.unit]
    parts = rounds if asked_once and federation.private else 1
    quorum = model.quorum(federation.quorum, federation.clients)
    if federation.committee:
        quorum = federation.fewest(parts)
    adjacency = unit.adjacency(model.replaces)
    if fine and unit.per == "row":
        adjacency = "zero-out"  # a row keeps its slot among those that are computed with it
    plan = partial(
        Plan,
        federation,
        adjacency=adjacency,
        row_rate=accounting.check_rate(row_rate),
        fine=fine,
        quorum=quorum,
    )
    if not federation.private:
        return plan(
            rounds=rounds + counting_rounds,
            counting_rounds=counting_rounds,
            mechanism=NoNoise(),
            epsilon=math.inf,
            delta=0.0,
            cohort=cohort,
        )
    per = unit.per if row_sums else "client"
    bound = replace(bound, per=per, whole=bound.whole and per == unit.per != "client")
    if asked_once:
        same("sampling_rate of clients that answer only once", federation.sampling_rate, 1)
    if asked_once and model.asks_everyone:
        raise InputError(f"trust '{model.name}' needs noise of all clients in each round")
    rate = amplifying_rate(federation)
    if row_rate < 1:
        if unit.per != "row" or not row_sums or not model.amplifies:
            home = " or ".join(f"'{name}'" for name, one in TRUSTS.items() if one.amplifies)
            raise InputError(
                "rows that take part by chance need unit 'example', answers that are sums over "
                f"rows, and trust {home}; got unit '{unit.name}', trust '{model.name}'"
            )
        rate = row_rate
    spent = 1 if asked_once else rounds
    mechanism = choose(federation, prefers, bound, spent)
    if mechanism.order == 1:
        bound = replace(bound, order=1)
    if not mechanism.pure:
        accounting.check_delta(federation.delta)
    mechanism.check(bound, spent)
    diameter = 2 if adjacency == "replace" or per != unit.per else 1
    if mechanism.settles_replacement:
        diameter = 1
    slack = _slack(federation, model, rounds, bound, row_rate)
    target = Target(federation.epsilon, federation.delta, spent, rate, slack)
    return plan(
        rounds=rounds,
        mechanism=mechanism.calibrate(target),
        epsilon=federation.epsilon,
        delta=slack if mechanism.pure else federation.delta,
        bound=bound,
        diameter=diameter,
        parts=parts,
    )


@lru_cache(maxsize=8)  # of many sites of a simulation; the account takes seconds with sampling
def made_again(plan: Plan) -> Plan:
    """Return the plan that our own accounting makes of a plan's facts, bound, rounds and rates.

    Formal guarantee: a plan that equals it has noise that meets its epsilon and delta in all of its
    rounds, for contributions within its bound, whoever calibrated it.
    """
    whole("the number of rounds", plan.rounds, 1, MOST_ROUNDS)
    return make_plan(
        plan.federation,
        rounds=plan.rounds - whole("counting rounds", plan.counting_rounds, 0, plan.rounds - 1),
        bound=plan.bound or Bound((1,)),
        prefers=(type(plan.mechanism),),
        row_sums=plan.bound is not None and plan.bound.per != "client",
        counting_rounds=plan.counting_rounds,
        asked_once=plan.parts > 1,
        row_rate=plan.row_rate,
        fine=plan.fine,
        cohort=plan.cohort,
    )


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _slack(
    federation: Federation, model: Trust, rounds: int, bound: Bound, row_rate: float
) -> float:
    """Return the part of delta for errors of draws from the operating system."""
    if federation.noise_source == "seeded":
        return 0.0
    draws = rounds * model.draws(bound.length, federation.clients)
    if federation.sampling_rate < 1:
        draws += rounds * federation.clients  # coins
    if row_rate < 1:
        draws += rounds  # coins of the one row that neighbours differ in
    # A neighbour's view, too, is off by that much: e^epsilon + 1 times (both sides).
    slack = draws * samplers.TOTAL_VARIATION * (1.0 + math.exp(min(federation.epsilon, 700.0)))
    if slack > (federation.delta / 2 or _SMALL_DELTA):
        raise InputError(
            f"epsilon = {federation.epsilon:g} and delta = {federation.delta:g} do not go with "
            f"{draws} draws from the operating system: these may be off by {slack:.3g} together"
        )
    return slack
