"""A site's policy beside its terms: until when, with which sites, and for which budget.

Formal guarantee: terms that pass `Policy.check` are summed by the committee of the federation
whose digest the policy has, among its sites, with at least `answers` contributions in a sum; each
contribution has the site's own noise, and no release costs more than the policy's year, or its
whole time, allows. What all releases may spend is kept by `fedcal.clients.site.store`. Which
question is asked, in which rounds, with which noise, unit, bound and rates is in the terms
(`fedcal.privacy.agreement.Terms`), which are equal or refused.

A site can check what it does itself: its own noise and coins, how many contributions are in a sum,
and that this noise meets the stated epsilon and delta. It cannot check

* what other sites send, and that they are other sites: whoever holds several keys of the roster
  has several contributions in a sum. `colluding` is for these, too;
* how the coordinator knew whose keys they are;
* how whoever asks chose the question. A cut that is chosen by looking at one site's rows tells of
  these rows, whatever noise comes later.

The facts of a job as a site records them, and the account over jobs.
"""

import datetime
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from fedcal.core.checks import InputError, integer, interval, needed
from fedcal.privacy.agreement import Terms, job_digest
from fedcal.secure_aggregation.roster import Roster, check_digest
from fedcal.units import UNITS

_DAYS, _EPOCH = 365.25, datetime.date(1970, 1, 1)  # of a year; where no first day is said
_LEAST = {"answers": 1, "colluding": 0}


@dataclass(frozen=True)
class Policy:
    """The rules of a site; what is not allowed here is refused.

    Attributes
    ----------
    federation
        digest of the federation whose sites sum up, 64 hexadecimal digits
    expires, begins
        the last day, in UTC, on which anything is answered, and the first one (None = any)
    epsilon_total, delta_total
        over all runs under a site's key, of all units together, for one of the smallest unit that
        any of them is for (`fedcal.clients.site.policy.account`)
    epsilon_a_year, delta_a_year
        over those runs alone whose first answer is in one year of 365.25 days, counted from
        `begins`; infinite = what is left in total
    answers
        m: fewest contributions in a sum
    colluding
        so many sites may work with the server, and it still learns only sums

    Raises
    ------
    InputError
        One line, for a value that is not allowed.
    """

    federation: str
    expires: datetime.date
    begins: datetime.date | None = None
    epsilon_total: float = 0.0
    delta_total: float = 0.0
    epsilon_a_year: float = math.inf
    delta_a_year: float = math.inf
    answers: int = 3
    colluding: int = 0

    def __post_init__(self) -> None:
        check_digest("federation", self.federation)
        for name, least in _LEAST.items():
            integer(name.replace("_", "-"), getattr(self, name), least)
        for spent, range_ in (("epsilon", "[0, inf)"), ("delta", "[0, 1)")):
            total = interval(range_)(f"{spent}-total", getattr(self, f"{spent}_total"))
            if (a_year := getattr(self, f"{spent}_a_year")) != math.inf:
                interval(f"[0, {total!r}]")(f"{spent}-a-year", a_year)
                needed("begins", self.begins, f"years of {spent}-a-year are counted from it")

    def to_plain(self) -> dict[str, Any]:
        """Return the rules as plain values."""
        return {k: str(v) if isinstance(v, datetime.date) else v for k, v in asdict(self).items()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Return the policy of plain values; InputError for a value that is not allowed."""
        days = (name for name in ("expires", "begins") if plain[name])
        return cls(**{**plain, **{k: datetime.date.fromisoformat(plain[k]) for k in days}})

    def check_roster(self, roster: Roster | None) -> Roster:
        """Return the federation that the policy names; InputError if it is none, or another."""
        if roster is None or roster.digest != self.federation:
            raise _refusal("federation", roster.digest if roster else "none", self.federation)
        _at_least("number that may collude", roster.committee.colluding, self.colluding)
        return roster

    def check(
        self, terms: Terms, roster: Roster | None, today: datetime.date | None = None
    ) -> None:
        """Refuse terms that are not allowed here; InputError names what is asked and allowed.

        Parameters
        ----------
        terms
            that hold together (`Terms.check`)
        roster
            the site's own; None = it has none
        today
            in UTC; None = by the clock
        """
        day = today or datetime.datetime.now(datetime.UTC).date()
        if day > self.expires:
            raise _refusal("day", day, f"until {self.expires}")
        if self.begins is not None and day < self.begins:
            raise _refusal("day", day, f"from {self.begins} on")
        pinned, plan = self.check_roster(roster), terms.plan
        if plan.committee is None:
            raise _refusal("secure aggregation", terms.job["secure-aggregation"], "protocol")
        if terms.job["roster"] != pinned.to_text():
            raise _refusal("roster", "another one", f"the one with digest {pinned.digest}")
        if plan.clients != len(pinned.sites):
            raise _refusal("number of sites", plan.clients, len(pinned.sites))
        own = (len(pinned.committee.members), pinned.committee.threshold)
        if (asked := tuple(plan.committee)) != own:
            raise _refusal("committee and threshold", asked, own)
        _at_least("number that may collude", plan.federation.colluding, self.colluding)
        if not plan.private or plan.model.noise_by != "client":
            raise _refusal("sums", f"trust {plan.trust}", "with noise of each site's own alone")
        _at_least("fewest contributions in a sum", plan.quorum, self.answers)
        _at_most("epsilon", plan.epsilon, min(self.epsilon_total, self.epsilon_a_year))
        _at_most("delta", plan.delta, min(self.delta_total, self.delta_a_year))

    def year(self, when: float) -> int:
        """Return the number of the year, from 1, in which a unix time lies; < 1 = before them.

        Years have 365.25 days, from `begins` on; the last one ends with `expires`.
        """
        day = datetime.datetime.fromtimestamp(when, datetime.UTC).date()
        day = min(day, self.expires - datetime.timedelta(days=1))  # the last day is no new year
        return math.floor((day - (self.begins or _EPOCH)).days / _DAYS) + 1

    def in_words(self, year: int) -> str:
        """Return the number of a year, and when the next one begins."""
        start = self.begins or _EPOCH
        following = start + datetime.timedelta(days=math.ceil(_DAYS * year))
        after = f"the next begins on {following}" if following < self.expires else "the last one"
        return f"year {year} ({after})"


def _refusal(what: str, asked: object, allowed: object) -> InputError:
    return InputError(
        f"this site's policy refuses the {what}: asked is {str(asked)[:80]}, allowed "
        f"{str(allowed)[:200]}"
    )


def _at_most(what: str, asked: float, allowed: float) -> None:
    if not asked <= allowed:
        raise _refusal(what, asked, f"at most {allowed}")


def _at_least(what: str, asked: int, allowed: int) -> None:
    if asked < allowed:
        raise _refusal(what, asked, f"at least {allowed}")


OWN_NOISE, CLAIMED = "own noise", "claimed"
"""Party that vouches for a job's epsilon: the site, which adds noise itself, or the server."""

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
    """Return what `spent_in_all` found as `restored.carried_over` reads it."""
    return "nothing" if spent is None else f"{spent[1]:.12g},{spent[2]:.12g},{spent[0]}"
