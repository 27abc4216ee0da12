"""What a site writes down of a job that it is asked for, and what jobs may add up to."""

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedcal.core import checks
from fedcal.core.checks import damaged
from fedcal.privacy.agreement import Terms, job_digest
from fedcal.units import UNITS

OWN_NOISE, CLAIMED = "own noise", "claimed"
"""Who vouches for a job's epsilon: the site, which adds noise itself, or the server alone."""

LIFETIME_S = 30 * 86400.0
"""Seconds in which a job must end, from when the site first hears of it."""

_TOLERANCE = 1e-9  # of sums that were added up in another order


@dataclass(frozen=True)
class JobFacts:
    """A job as a site writes it down.

    Attributes
    ----------
    job
        its digest, 64 hexadecimal digits
    method, unit, trust, adjacency, mechanism
        in words; ``unit`` is one of `fedcal.units.UNITS`
    epsilon, delta
        of all rounds together: epsilon > 0 or infinite (exact sums), delta in [0, 1)
    rounds
        how many there may be
    verified
        `OWN_NOISE`: the site adds the noise; `CLAIMED`: the server says that it does
    server
        name of the server, in words
    expires
        unix time after which nothing is answered; infinite = never
    booked
        unix time of the first answer, or of the entry of a charge that the operator carried over;
        None = it was not charged
    closed
        why nothing of it is answered any more; None = it is open
    """

    job: str
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
    booked: float | None = None
    closed: str | None = None

    @classmethod
    def of(cls, terms: Terms, run: str, server: str) -> Self:
        """Return the facts of a run that a server, which has this name, asks for now."""
        plan, names = terms.plan, ("unit", "trust", "adjacency", "epsilon", "delta", "rounds")
        own: dict[str, Any] = {name: getattr(plan, name) for name in names}
        own |= {"job": job_digest(terms.key, run), "method": terms.job["method"]}
        own["verified"] = OWN_NOISE if plan.model.noise_by == "client" else CLAIMED
        expires = time.time() + LIFETIME_S
        return cls(**own, mechanism=plan.mechanism.name, server=server, expires=expires)

    @property
    def exact(self) -> bool:
        """True if the site sends exact sums, without privacy."""
        return self.epsilon == math.inf


def account(charges: Sequence[JobFacts]) -> tuple[str, list[tuple[float, float]]]:
    """Return the smallest unit that any of some charges is for, and what each costs one such unit.

    **Formal guarantee.** Let U be that unit, E and D the sums of the costs of some of the charged
    jobs (of a year, say, or of all), and two inputs of a site differ in one U (a row more or less,
    say). For any set S of what these jobs send, P[S | one] <= e^E P[S | the other] + D. A job for
    U itself costs U its own (epsilon, delta). In one for a larger unit whose rows may become any
    others (adjacency "replace") the two inputs are neighbours, too. Otherwise they are two steps
    apart, all rows of the larger unit away and back with one U changed: (2 epsilon,
    (1 + e^epsilon) delta). A larger unit than U pays in jobs for it, or for still larger ones,
    alone, and so at most E and D; jobs for smaller units promise it nothing, however little they
    cost.

    Parameters
    ----------
    charges
        exact ones cost nothing, whatever their unit

    Returns
    -------
    tuple[str, list[tuple[float, float]]]
        The unit's name ("" without charges), and (epsilon, delta) of each charge in their order.
    """
    units = (one.unit for one in charges if not one.exact)
    unit = max(units, key=list(UNITS).index, default="")
    return unit, [_cost(one, unit) for one in charges]


def _cost(of: JobFacts, unit: str) -> tuple[float, float]:
    if of.exact:
        return 0.0, 0.0
    if of.unit == unit or of.adjacency == "replace":
        return of.epsilon, of.delta
    return 2 * of.epsilon, min(1.0, of.delta * (1 + math.exp(min(of.epsilon, 700.0))))


def spent_in_all(
    charges: Sequence[JobFacts], known: Sequence[JobFacts] = ()
) -> tuple[str, float, float] | None:
    """Return unit, epsilon and delta of the `account` of charges, less that of `known` ones.

    None = nothing was spent, or is left; exact sums are in no account.
    """
    unit, costs = account([*charges, *known])
    sums = np.reshape(costs, (-1, 2))
    spent, other = sums[: len(charges)].sum(0), sums[len(charges) :].sum(0)
    if (spent - other <= _TOLERANCE * spent).all():
        return None
    epsilon, delta = np.maximum(spent - other, 0.0).tolist()
    return unit, epsilon, delta


def in_text(spent: tuple[str, float, float] | None) -> str:
    """Return what `spent_in_all` found as `carried_over` reads it."""
    return "nothing" if spent is None else f"{spent[1]:.12g},{spent[2]:.12g},{spent[0]}"


def carried_over(text: str) -> tuple[JobFacts, ...]:
    """Return as charges, of now, what an operator says was spent and is not in the records.

    Parameters
    ----------
    text
        "nothing", or EPSILON,DELTA,UNIT as the lost ledger's account had it

    Raises
    ------
    InputError
        For anything else.
    """
    if text.strip() == "nothing":
        return ()
    with damaged(
        "--spent must be EPSILON,DELTA,UNIT, as 1.5,1e-6,example, or the word nothing; got "
        f"{text[:80]!r}"
    ):
        first, second, unit = text.split(",")
        epsilon = checks.interval("(0, inf)")("epsilon of --spent", checks.number_in(first))
        delta = checks.interval("[0, 1)")("delta of --spent", checks.number_in(second))
    kind = UNITS[checks.one_of("unit of --spent", unit.strip(), UNITS)]
    facts = (kind.name, "", kind.adjacency(False), "", epsilon, delta, 1, CLAIMED, "the operator")
    job, now = os.urandom(32).hex(), time.time()
    return (JobFacts(job, "carried over", *facts, math.inf, now, "carried over"),)
