"""What a site writes down of a job that it is asked for, and what it lets jobs add up to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedcal.core import checks, errors
from fedcal.units import UNITS

OWN_NOISE, CLAIMED = "own noise", "claimed"
"""Who vouches for a job's epsilon: the site, which adds noise itself, or the server alone."""

_TOLERANCE = 1e-9  # of sums that were added up in another order


@dataclass(frozen=True)
class JobFacts:
    """Facts of a job that a site writes down.

    Attributes
    ----------
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

    @property
    def exact(self) -> bool:
        """True if the site sends exact sums, without privacy."""
        return self.epsilon == math.inf


@dataclass(frozen=True)
class BudgetCaps:
    """Caps on the sums of epsilons and deltas of all jobs, by `account`; 0 = nothing."""

    epsilon: float
    delta: float


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
        numbers of the rounds that were answered; () = a charge that the operator carried over
    closed
        why nothing of it is answered any more; "" = it is open
    """

    job: str
    about: JobFacts
    when: float
    answered: tuple[int, ...]
    closed: str


def spent_by_unit(booked: Sequence[Booked]) -> dict[str, tuple[float, float]]:
    """Return unit -> sums of the epsilons and deltas of its jobs; exact sums are in none."""
    charged = [one.about for one in booked if not one.about.exact]
    return {
        unit: (
            math.fsum(about.epsilon for about in charged if about.unit == unit),
            math.fsum(about.delta for about in charged if about.unit == unit),
        )
        for unit in dict.fromkeys(about.unit for about in charged)
    }


def spent_in_all(
    charges: Sequence[JobFacts], known: Sequence[JobFacts] = ()
) -> tuple[str, float, float] | None:
    """Return unit, epsilon and delta of the `account` of charges, less that of `known` ones.

    None = nothing was spent, or is left; exact sums are in no account.
    """
    charged = [one for one in charges if not one.exact]
    unit, costs = account([*charged, *known]) if charged else ("", [])
    sums = [math.fsum(cost[k] for cost in costs[: len(charged)]) for k in (0, 1)]
    left = [x - math.fsum(cost[k] for cost in costs[len(charged) :]) for k, x in enumerate(sums)]
    if all(more <= _TOLERANCE * x for more, x in zip(left, sums, strict=True)):
        return None
    return unit, max(left[0], 0.0), max(left[1], 0.0)


def in_text(spent: tuple[str, float, float] | None) -> str:
    """Return what `spent_in_all` found as `carried_over` reads it."""
    return "nothing" if spent is None else f"{spent[1]:.12g},{spent[2]:.12g},{spent[0]}"


def account(charges: Sequence[JobFacts]) -> tuple[str, list[tuple[float, float]]]:
    """Return the smallest unit that any of some charges is for, and what each costs one such unit.

    **Formal guarantee.** Let U be that unit, E and D the sums of the costs, and two inputs of a
    site differ in one U (a row more or less, say). For any set S of what the charged jobs send,
    P[S | one] <= e^E P[S | the other] + D. A job for U itself costs U its own (epsilon, delta). In
    one for a larger unit whose rows may become any others (adjacency "replace") the two inputs are
    neighbours, too. Otherwise they are two steps apart, all rows of the larger unit away and back
    with one U changed: (2 epsilon, (1 + e^epsilon) delta). A larger unit than U pays in jobs for
    it, or for still larger ones, alone, and so at most E and D; jobs for smaller units promise
    it nothing, however little they cost.

    Parameters
    ----------
    charges
        at least one, none of them exact

    Returns
    -------
    tuple[str, list[tuple[float, float]]]
        The unit's name, and (epsilon, delta) of each charge in their order.
    """
    sizes = list(UNITS)
    unit = max((one.unit for one in charges), key=sizes.index)
    return unit, [_cost(one, unit) for one in charges]


def _cost(of: JobFacts, unit: str) -> tuple[float, float]:
    if of.unit == unit or of.adjacency == "replace":
        return of.epsilon, of.delta
    return 2 * of.epsilon, min(1.0, of.delta * (1 + math.exp(min(of.epsilon, 700.0))))


def carried_over(text: str) -> tuple[JobFacts, ...]:
    """Return as charges what an operator says was spent and is not in the records.

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
    try:
        epsilon, delta, unit = text.split(",")
        numbers = checks.number_in(epsilon), checks.number_in(delta)
    except ValueError:
        raise errors.InputError(
            "--spent must be EPSILON,DELTA,UNIT, as 1.5,1e-6,example, or the word nothing; got "
            f"{text[:80]!r}"
        ) from None
    kind = UNITS[checks.one_of("unit of --spent", unit.strip(), UNITS)]
    spent = (
        checks.interval("(0, inf)")("epsilon of --spent", numbers[0]),
        checks.interval("[0, 1)")("delta of --spent", numbers[1]),
    )
    facts = (kind.name, "", kind.adjacency(False), "", *spent, 1, CLAIMED, "the operator")
    return (JobFacts("carried over", *facts, math.inf),)
