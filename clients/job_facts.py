"""What a site writes down of a job that it is asked for, and what it lets jobs add up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedcal.checks import one_of, positive, whole
from fedcal.errors import InputError
from fedcal.privacy.plan import Plan

OWN_NOISE, CLAIMED = "own noise", "claimed"
"""Who vouches for a job's epsilon: the site, which adds noise itself, or the server alone."""


@dataclass(frozen=True)
class JobFacts:
    """What a site writes down of a job.

    Attributes
    ----------
    method, unit, trust, adjacency, mechanism
        in words; sums of epsilons are kept by ``unit``
    epsilon, delta
        of all rounds together: epsilon > 0 or infinite (exact sums), delta in [0, 1)
    rounds
        how many there may be
    verified
        `OWN_NOISE`: the site adds the noise; `CLAIMED`: the server says that it does
    server
        who asks, in words
    expires
        unix time after which nothing is answered; infinite = never
    """

    method: str
    unit: str
    trust: str
    adjacency: str
    mechanism: str
    epsilon: float
    delta: float
    rounds: int
    verified: str
    server: str
    expires: float

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            positive("epsilon of a job", self.epsilon)
        _probability("delta of a job", self.delta)
        whole("rounds of a job", self.rounds, 1)
        one_of("word for who vouches", self.verified, (OWN_NOISE, CLAIMED))
        if math.isnan(self.expires):
            raise InputError("a job must expire at some time, got nan")

    @property
    def exact(self) -> bool:
        """Whether the site sends exact sums, without privacy."""
        return self.epsilon == math.inf


def facts_of(plan: Plan, method: str, server: str, expires: float) -> JobFacts:
    """What a site writes down of a job with this plan."""
    return JobFacts(
        method=method,
        unit=plan.unit,
        trust=plan.trust,
        adjacency=plan.adjacency,
        mechanism=plan.mechanism,
        epsilon=plan.epsilon,
        delta=plan.delta,
        rounds=plan.rounds,
        verified=OWN_NOISE if plan.model.noise_by == "client" else CLAIMED,
        server=server,
        expires=expires,
    )


@dataclass(frozen=True)
class Limits:
    """What the epsilons, and the deltas, of all jobs of one unit may add up to; 0 = nothing."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if self.epsilon != 0:
            positive("the cap on epsilon", self.epsilon)
        _probability("the cap on delta", self.delta)


@dataclass(frozen=True)
class Booked:
    """A job that was charged.

    Attributes
    ----------
    job
        its digest
    about
        what it is
    when
        unix time of the first answer
    answered
        numbers of the rounds that were answered
    closed
        why nothing of it is answered any more; "" = it is open
    """

    job: str
    about: JobFacts
    when: float
    answered: tuple[int, ...]
    closed: str


def spent_by_unit(booked: Sequence[Booked]) -> dict[str, tuple[float, float]]:
    """Unit -> sums of the epsilons and deltas of jobs; exact sums are in none."""
    charged = [one.about for one in booked if not one.about.exact]
    return {
        unit: (
            math.fsum(about.epsilon for about in charged if about.unit == unit),
            math.fsum(about.delta for about in charged if about.unit == unit),
        )
        for unit in dict.fromkeys(about.unit for about in charged)
    }


def _probability(name: str, value: float) -> None:
    if value != 0 and positive(name, value) >= 1:
        raise InputError(f"{name} must lie in [0, 1), got {value!r}")
