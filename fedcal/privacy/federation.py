"""The public facts of a federation, what may be learned from it, and by which mechanism."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from fedcal import accounting
from fedcal.core.checks import one_of, read, unused, whole
from fedcal.core.errors import InputError
from fedcal.core.streams import check_seed
from fedcal.mechanisms import FORMER, MECHANISMS, PRIVATE, Mechanism, Target
from fedcal.secure_aggregation.committee import check_committee, colluding
from fedcal.trust import NOISY, TRUSTS, Central, SecAgg
from fedcal.units import UNITS, User
from fedcal.units.bounding import Bound

QUORUM = 0.9
"""Share of the clients that must answer a round under trust `distributed`."""

MOST_CLIENTS = 10_000_000
MOST_ROUNDS = 100_000
"""More is a slip of the pen: a run of that size would take days, or all memory there is."""

AUTO = "auto"
"""The mechanism that a method prefers."""

NOISE_SOURCES = ("seeded", "system")

FIELDS: Mapping[str, type[Any]] = {
    "clients": int,
    "classes": int,
    "rounds": int,
    "sampling-rate": float,
    "epsilon": float,
    "delta": float,
    "unit": str,
    "trust": str,
    "mechanism": str,
    "quorum": float,
    "noise-source": str,
    "committee": int,
    "threshold": int,
    "colluding": int,
}
"""The fields of a `Federation` but for its seed, under dashed names, and what each is."""


def check_size(clients: int | None, rounds: int | None) -> None:
    """InputError for more clients or rounds than any run has; None is not looked at."""
    for name, value, most in (("clients", clients, MOST_CLIENTS), ("rounds", rounds, MOST_ROUNDS)):
        if value is not None:
            whole(name, value, 1, most)


def check_quorum(quorum: float, trust: str | None, committee: int = 0) -> None:
    """InputError for a share that is none, and for one where no quorum is asked for."""
    if not 0 < quorum <= 1:
        raise InputError(f"quorum must be in (0, 1], got {quorum!r}")
    shared = [name for name, model in TRUSTS.items() if model.shared]
    if trust not in shared and not committee and quorum != QUORUM:
        home = " or ".join(f"'{name}'" for name in shared)
        raise InputError(
            f"quorum = {quorum:g} has no effect here: it is for trust {home}, and for the secure "
            "aggregation 'protocol'"
        )


@dataclass(frozen=True)
class Federation:
    """Clients, and what may be learned from them. All of it is public.

    Attributes
    ----------
    clients
        enrolled clients K
    classes
        classes c of the model
    rounds
        rounds of queries; None = the method's default
    sampling_rate
        each client takes part in a round with this probability (Poisson)
    epsilon
        budget of the whole run for each unit; inf = no differential privacy
    delta
        its failure probability; must be > 0 for Gaussian noise
    unit
        what is protected: "user", all rows of one client, "subject", all rows of one subject
        at one client, or "example", one row
    trust
        who adds the noise: "secagg" (nobody), "central" (the server, after the secure sum),
        "distributed" (each client a share, the sum has all of it) or "local" (each client all of
        it); None = the one of the first two that fits epsilon
    seed
        of sampling and noise. Seeded noise protects nobody who knows the seed
    mechanism
        one of `fedcal.mechanisms`, or "auto", what the method prefers
    quorum
        under trust "distributed", and under the protocol of secure aggregation, the share of the
        clients that must answer a round: noise shares are sized so that these alone make all of it
    noise_source
        "seeded" (simulation, repeatable) or "system" (the operating system's generator)
    committee, threshold
        of the protocol of secure aggregation: members, and how many of them open a sum; 0 = no
        such protocol
    colluding
        sites that may tell the server all they know, and still it learns nothing but sums with
        all of their noise
    """

    clients: int
    classes: int
    rounds: int | None = None
    sampling_rate: float = 1.0
    epsilon: float = math.inf
    delta: float = 1e-5
    unit: str = User.name
    trust: str | None = None
    seed: int = 0
    mechanism: str = AUTO
    quorum: float = QUORUM
    noise_source: str = "seeded"
    committee: int = 0
    threshold: int = 0
    colluding: int = 0

    def __post_init__(self) -> None:
        check_size(self.clients, self.rounds)
        whole("classes", self.classes, 2)
        check_seed(self.seed)
        accounting.check_rate(self.sampling_rate)
        accounting.check_epsilon(self.epsilon, allow_infinite=True)
        if not 0 <= self.delta < 1:
            raise InputError(f"delta must be in [0, 1), got {self.delta!r}")
        one_of("unit", self.unit, UNITS)
        mechanism = FORMER.get(self.mechanism, self.mechanism)
        object.__setattr__(self, "mechanism", one_of("mechanism", mechanism, (AUTO, *PRIVATE)))
        one_of("noise source", self.noise_source, NOISE_SOURCES)
        if not 0 < self.quorum <= 1:
            raise InputError(f"quorum must be in (0, 1], got {self.quorum!r}")
        default = Central if self.private else SecAgg
        trust = one_of("trust", self.trust or default.name, TRUSTS)
        noisy = trust in NOISY
        if self.private and not noisy:
            raise InputError(
                f"trust '{trust}' adds no noise, so epsilon cannot be finite; use --trust "
                f"{Central.name}"
            )
        if not self.private and noisy:
            raise InputError(
                f"trust '{trust}' adds noise; give a finite epsilon or use {SecAgg.name}"
            )
        object.__setattr__(self, "trust", trust)
        if self.committee:
            whole("committee", self.committee, 2, self.clients)
            check_committee(self.committee, self.threshold)
            whole("colluding", self.colluding, 0, colluding(self.committee, self.threshold))
        else:
            unused(
                "there is no committee",
                threshold=self.threshold or None,
                colluding=self.colluding or None,
            )

    def fewest(self, parts: int = 1) -> int:
        """Fewest contributions in a secure sum over one of so many parts of the clients.

        Raises
        ------
        InputError
            If so few that a sum hides nobody among those who are honest.
        """
        least = math.ceil(self.quorum * (self.clients // parts))  # of the smallest part
        if (honest := least - self.colluding) < 2:
            raise InputError(
                f"a secure sum of {least} contributions, {self.colluding} of which may be from "
                f"sites that collude with the server, leaves {max(honest, 0)} honest: at least 2 "
                "are needed; use a larger quorum, more clients, or fewer colluding ones"
            )
        return least

    @property
    def private(self) -> bool:
        """True if the run is differentially private."""
        return math.isfinite(self.epsilon)

    def to_fields(self) -> dict[str, int | float | str]:
        """All but the seed, under dashed names; what is None becomes 0 or ""."""
        own = {name: getattr(self, _attribute(name)) for name in FIELDS}
        return {name: kind(own[name] or kind()) for name, kind in FIELDS.items()}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], nodes: int = 0, classes: int = 0) -> Self:
        """Return the federation that `to_fields` wrote, without its seed; other keys are ignored.

        Parameters
        ----------
        nodes, classes
            what `clients` = 0 and `classes` = 0 stand for

        Raises
        ------
        InputError
            If a key is missing or its value is not allowed.
        """
        own = {_attribute(name): read(fields, name, kind) for name, kind in FIELDS.items()}
        for name, instead in (("clients", nodes), ("classes", classes)):
            own[name] = own[name] or instead
        for name in ("rounds", "trust"):
            own[name] = own[name] or None
        check_quorum(own["quorum"], own["trust"], own["committee"])
        return cls(**own)


def _attribute(name: str) -> str:
    return name.replace("-", "_")


def choose(
    federation: Federation, prefers: Sequence[type[Mechanism]], bound: Bound, rounds: int
) -> type[Mechanism]:
    """Return the mechanism of a private run.

    Parameters
    ----------
    prefers
        what the method's release is made for; of several that add noise, the one with the
        least noise std is taken (those that need no delta where there is none)

    Raises
    ------
    InputError
        If the user's mechanism does not fit the method's release.
    """
    asked = federation.mechanism
    if prefers[0].answers != "sum":
        return _only(federation, prefers[0])
    if asked == AUTO:
        return prefers[0] if len(prefers) == 1 else _least(federation, prefers, bound, rounds)
    law = MECHANISMS[asked]
    if law.answers != "sum":
        sums = ", ".join(name for name, mechanism in PRIVATE.items() if mechanism.answers == "sum")
        raise InputError(
            f"mechanism '{asked}' does not fit a release that is a sum; allowed: {AUTO}, {sums}"
        )
    return law


def _only(federation: Federation, law: type[Mechanism]) -> type[Mechanism]:
    """Return the one mechanism that fits the method's release; InputError if it is not allowed."""
    trust, unit = TRUSTS[str(federation.trust)], UNITS[federation.unit]
    if not trust.accepts(law):
        home = " or ".join(f"'{name}'" for name, model in NOISY.items() if model.accepts(law))
        raise InputError(f"mechanism '{law.name}' needs trust {home}, got '{trust.name}'")
    if federation.mechanism not in (AUTO, law.name):
        raise InputError(
            f"this method's release is made for '{law.name}', not for '{federation.mechanism}'"
        )
    if law.part not in (None, unit.per):
        home = " or ".join(f"'{name}'" for name, model in UNITS.items() if model.per == law.part)
        raise InputError(
            f"mechanism '{law.name}' protects one client's answer: it needs unit {home}"
        )
    return law


def order_of(federation: Federation) -> Literal[1, 2]:
    """Return the order of the norm that a run bounds: L1 if the user wants Laplace noise."""
    return 2 if federation.mechanism == AUTO else MECHANISMS[federation.mechanism].order


def _least(
    federation: Federation, prefers: Sequence[type[Mechanism]], bound: Bound, rounds: int
) -> type[Mechanism]:
    """Return the mechanism with the least noise std; a pure one if delta = 0.

    A release with Laplace noise clips in L1, so one member's L1 norm is compared with one's L2
    norm.
    """
    target = Target(federation.epsilon, federation.delta, rounds, amplifying_rate(federation))
    possible = [law for law in prefers if law.pure or federation.delta > 0]

    def std(law: type[Mechanism]) -> float:
        own = replace(bound, order=law.order, norms=(1.0,) * len(bound.lengths), whole=False)
        made = law.calibrate(target)
        return float(made.std(made.scale(own, 1), 1.0, own).max())

    return min(possible, key=std)


def amplifying_rate(federation: Federation) -> float:
    """Return the sampling rate if it amplifies privacy, else 1; see `plan.make_plan`."""
    amplifies = TRUSTS[str(federation.trust)].amplifies and UNITS[federation.unit].whole_client
    return federation.sampling_rate if amplifies else 1.0
