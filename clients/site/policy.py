"""What a site takes part in: its own rules, in a file that it writes itself.

Formal guarantee: a run whose public facts pass `Policy.check` asks for nothing beyond the file:
no other method or setting, no weaker promise, no more budget a run, no smaller sums, no other
committee. A request that passes `fedcal.clients.site.guard.check` besides asks a question of that
method and these settings, in a round that has it, and none else. Sums that the server sees without
noise tell rows apart into at most as many numbers as leave `cell_rows` of the public nominal rows
to each, where `site_rows` names those. What a run may spend in total is kept by
`fedcal.clients.site.store`, over all time and in each year.

A site can check what it does itself: its own noise and coins, and under the protocol of secure
aggregation how many contributions are in a sum. It cannot check

* noise that the server adds (trust central): the whole epsilon is booked at the first answer, as
  the server claims it, and the exact sum is what the server sees;
* what other sites send, and that they are other sites: whoever holds several keys of the roster
  has several contributions in a sum. `colluding` is for these, too;
* how the coordinator knew whose keys they are;
* how whoever asks chose the parameters. A setting that is chosen by looking at one site's rows
  tells of these rows, whatever noise comes later. The ranges limit that, they do not end it;
* how many rows a cell really has: the nominal number is public, and rows may crowd.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

from fedcal.clients.site.process.limits import LEAST_MIB, MEMORY_MIB
from fedcal.core.checks import interval, needed, one_of, whole
from fedcal.core.errors import InputError
from fedcal.mechanisms import FORMER, MECHANISMS
from fedcal.privacy import agreement, declared, noise_plan
from fedcal.secure_aggregation.committee import check_committee
from fedcal.secure_aggregation.roster import Roster, check_digest, check_key
from fedcal.storage.toml_files import read_as, record_of
from fedcal.trust import TRUSTS
from fedcal.units import UNITS

MOST_BYTES = 1 << 20
"""Of a policy's file."""

CELL_ROWS = 10
"""Rows for each number of a run's sums without noise, where a policy does not say."""

FEWEST_IN_AN_EXACT_SUM = 3
"""Of two contributions each sender could subtract its own."""

CPU_SECONDS = 600
"""That an answer may take where no policy says less."""

ADJACENCIES = tuple(dict.fromkeys(name for unit in UNITS.values() for name in unit.neighbours))
REQUIRED, ANY = "protocol", "any"
"""What a policy says of secure aggregation."""

_KNOWN: Mapping[str, Collection[str]] = {
    "unit": UNITS,
    "trust": TRUSTS,
    "adjacency": ADJACENCIES,
    "mechanism": MECHANISMS,
}
_LEAST = {
    **dict.fromkeys(("rounds", "answers", "largest_vector", "cpu_seconds"), 1),
    **dict.fromkeys(("colluding", "site_rows", "cell_rows"), 0),
    "memory_mib": LEAST_MIB,
}

NO_POLICY = (
    "no policy limits this site: it answers every run whose plan it can check, whatever the "
    "budget over all of them; write one and give it as --policy"
)


@dataclass(frozen=True)
class Policy:
    """The rules of a site; what is not allowed here is refused.

    Attributes
    ----------
    methods
        names of methods
    unit, trust, adjacency
        what may be protected, by whose noise, and which inputs are neighbours
    rounds
        of a run, at most
    expires, begins
        the last day, in UTC, on which anything is answered, and the first one (None = any)
    mechanism
        names of the laws that noise may have; () = those that the plan finds fit
    epsilon_per_run, delta_per_run
        of a run, at most
    epsilon_total, delta_total
        over all runs under a site's key, of all units together, for one of the smallest unit that
        any of them is for (`fedcal.clients.site.account.account`): where runs for users and runs
        for rows are allowed, it is what a row pays in both
    epsilon_a_year, delta_a_year
        over those runs alone whose first answer is in one year of 365.25 days, counted from
        `begins`; infinite = what is left in total
    settings
        method -> setting -> [lowest, highest], or a list of texts or truth values. Others, and
        settings that are not listed, must be left to the method; those that are listed must be
        named by the run, for a default is the server's
    federation
        digest of the federation, 64 hexadecimal digits; "" = what the coordinator signs
    coordinator
        the public key whose signature of a federation is believed, 64 hexadecimal digits
    class_digest
        of the names of the classes; "" = the site's own are enough
    secure_aggregation
        "protocol", or "any": runs without it, in which the server sees this site's contribution
        by itself
    answers
        m: fewest contributions in a sum. Exact sums have at least 3, whatever it is. Counts by
        site add up nobody's rows but one site's, so a site refuses to send them exactly
    colluding
        so many sites may work with the server, and it still learns only sums
    committee
        pairs of members and threshold; () = any that bears `colluding`
    largest_vector
        numbers in an answer, at most
    cpu_seconds
        that an answer may take, at most
    memory_mib
        that an answer may take, at most, beside a few copies of the site's rows
    exact_sums
        whether sums without noise may be released (trust secagg, which promises no privacy); they
        need `site_rows`
    site_rows
        public nominal number of rows of a site like this one; 0 = sums that the server sees
        without noise (under trust central) are of any resolution
    cell_rows
        so many of these rows, of all sites in a sum, there must be for each number of a run's
        answers; 0 = any

    Raises
    ------
    InputError
        One line, for a value that is not allowed.
    """

    methods: tuple[str, ...]
    unit: tuple[str, ...]
    trust: tuple[str, ...]
    adjacency: tuple[str, ...]
    rounds: int
    expires: datetime.date
    begins: datetime.date | None = None
    mechanism: tuple[str, ...] = ()
    epsilon_per_run: float = 0.0
    epsilon_total: float = 0.0
    delta_per_run: float = 0.0
    delta_total: float = 0.0
    epsilon_a_year: float = math.inf
    delta_a_year: float = math.inf
    settings: Mapping[str, Mapping[str, Allowed]] = field(default_factory=dict)
    federation: str = ""
    coordinator: str = ""
    class_digest: str = ""
    secure_aggregation: str = REQUIRED
    answers: int = FEWEST_IN_AN_EXACT_SUM
    colluding: int = 0
    committee: tuple[tuple[int, int], ...] = ()
    largest_vector: int = 100_000
    cpu_seconds: int = CPU_SECONDS
    memory_mib: int = MEMORY_MIB
    exact_sums: bool = False
    site_rows: int = 0
    cell_rows: int = CELL_ROWS

    def __post_init__(self) -> None:
        for name in ("methods", "unit", "trust", "adjacency"):
            whole(f"the number of {name}", len(getattr(self, name)), 1)
        now = tuple(dict.fromkeys(FORMER.get(name, name) for name in self.mechanism))
        object.__setattr__(self, "mechanism", now)
        for name, known in _KNOWN.items():
            for one in getattr(self, name):
                one_of(name, one, known)
        for name, least in _LEAST.items():
            whole(name.replace("_", "-"), getattr(self, name), least)
        for spent, range_ in (("epsilon", "[0, inf)"), ("delta", "[0, 1)")):
            total = interval(range_)(f"{spent}-total", getattr(self, f"{spent}_total"))
            one = getattr(self, f"{spent}_per_run")
            interval(f"[0, {total!r}]")(f"{spent}-per-run (at most {spent}-total)", one)
            if (a_year := getattr(self, f"{spent}_a_year")) != math.inf:
                interval(f"[{one!r}, {total!r}]")(f"{spent}-a-year", a_year)
                needed("begins", self.begins, f"years of {spent}-a-year are counted from it")
        for method, ranges in self.settings.items():
            one_of("method of [settings]", method, self.methods)
            for name, allowed in ranges.items():
                check_range(f"{name} of [settings.{method}]", allowed)
        for name in ("federation", "class_digest"):
            if digest := getattr(self, name):
                check_digest(name.replace("_", "-"), digest)
        if self.coordinator:
            check_key("coordinator", self.coordinator)
        one_of("secure-aggregation", self.secure_aggregation, (REQUIRED, ANY))
        if self.secure_aggregation == REQUIRED:
            needed(
                "federation",
                self.federation or self.coordinator or None,
                "secure-aggregation = 'protocol' goes by this digest that `fedcal site federation` "
                "shows, or by 'coordinator', the key that signs it",
            )
        for pair in self.committee:
            check_committee(*pair)
        if self.exact_sums and self.cell_rows:
            needed(
                "site-rows",
                self.site_rows or None,
                "with exact-sums this public nominal number of rows of a site limits how few rows "
                "a number may be about (cell-rows = 0: no limit)",
            )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the policy of a `site.toml`.

        Raises InputError, one line that names the file and what is wrong with it; of a key that is
        not known the nearest one.
        """
        return read_as(path, MOST_BYTES, lambda table: record_of(cls, table, "a site's policy"))

    # --- checks -------------------------------------------------------------------------------

    def check_roster(self, roster: Roster | None) -> None:
        """InputError if this federation is not the one that the policy names."""
        if roster is None:
            if self.secure_aggregation == REQUIRED:
                raise _refusal("federation", "none", "one: give its file as --federation")
            return
        if self.federation and roster.digest != self.federation:
            raise _refusal("federation", roster.digest, self.federation)
        key = roster.coordinator.hex() if roster.coordinator else "nobody"
        if self.coordinator and key != self.coordinator.lower():
            raise _refusal("coordinator", key, self.coordinator)
        own = (len(roster.committee.members), roster.committee.threshold)
        if self.committee and own not in self.committee:
            raise _refusal("committee and threshold", own, list(self.committee))
        _at_least("number that may collude", roster.committee.colluding, self.colluding)

    def check(
        self,
        job: Mapping[str, Any],
        terms: agreement.Terms,
        length: int,
        roster: Roster | None,
        today: datetime.date | None = None,
    ) -> None:
        """Refuse a run that is not allowed here.

        Parameters
        ----------
        job
            the public fields of the job, in the run config
        terms
            that this site made of them
        length
            numbers in the answer that is asked for
        roster
            the site's own; None = it has none
        today
            in UTC; None = by the clock

        Raises
        ------
        InputError
            One line that names what is asked for and what is allowed.
        """
        day = today or datetime.datetime.now(datetime.UTC).date()
        if day > self.expires:
            raise _refusal("day", day, f"until {self.expires}")
        if self.begins is not None and day < self.begins:
            raise _refusal("day", day, f"from {self.begins} on")
        self.check_method(job)
        plan = terms.plan
        apart = any(q.fixed.get("by") == "site" for q in terms.questions)
        summed = 1 if apart else plan.quorum  # by site each contribution has its own numbers
        self._check_protocol(job, plan, roster, summed)
        classes = job.get("class-digest") or (roster.class_digest if roster else "")
        if self.class_digest and classes != self.class_digest:
            raise _refusal("class digest", classes or "none", self.class_digest)
        for name in ("unit", "trust", "adjacency"):
            _one_of(name, getattr(plan, name), getattr(self, name))
        if plan.private:
            _at_most("epsilon", plan.epsilon, self.epsilon_per_run)
            _at_most("delta", plan.delta, self.delta_per_run)
            _one_of("mechanism", plan.mechanism.name, self.mechanism or (plan.mechanism.name,))
        elif not self.exact_sums:
            raise _refusal("sums", "without noise", "with noise alone (exact-sums = true)")
        _at_most("rounds", plan.rounds, self.rounds)
        _at_most("numbers in an answer", length, self.largest_vector)
        if plan.model.noise_by != "client" and self.site_rows:
            rows = self.site_rows * (summed if plan.committee else 1)
            self._check_resolution(rows, declared.cells_of(terms.questions, plan.rounds))

    def check_method(self, job: Mapping[str, Any]) -> None:
        """InputError for a method, or a setting of it, that is not allowed."""
        method = _one_of("method", job.get("method"), self.methods)
        text = job.get("settings", "{}")
        try:
            settings = json.loads(text)
        except (TypeError, ValueError, RecursionError):
            settings = None
        if not isinstance(settings, dict):
            raise _refusal("settings", text, "a JSON object")
        limited = self.settings.get(method, {})
        for name in settings:
            if name not in limited:
                named = ", ".join(limited) or "none"
                raise _refusal(f"settings of {method}", name, named)
        for name, allowed in limited.items():
            if name not in settings:
                raise _refusal(f"{name} of {method}", "the default", words_of(allowed))
            if not within(settings[name], allowed):
                raise _refusal(f"{name} of {method}", settings[name], words_of(allowed))

    def _check_protocol(
        self, job: Mapping[str, Any], plan: noise_plan.Plan, roster: Roster | None, summed: int
    ) -> None:
        """Check which sums are visible to which parties."""
        self.check_roster(roster)
        if plan.committee is None or job.get("secure-aggregation") != REQUIRED:
            if self.secure_aggregation == REQUIRED or not plan.private:
                how = job.get("secure-aggregation", "none")
                allowed = REQUIRED if plan.private else f"{REQUIRED}, for exact sums"
                raise _refusal("secure aggregation", how, allowed)
            return
        if roster is None:
            raise _refusal("secure aggregation", REQUIRED, "none: this site has no federation")
        if job.get("roster") != roster.to_text():
            raise _refusal("roster", "another one", f"the one with digest {roster.digest}")
        if plan.clients != len(roster.sites):
            raise _refusal("number of sites", plan.clients, len(roster.sites))
        own = (len(roster.committee.members), roster.committee.threshold)
        if (asked := tuple(plan.committee)) != own:
            raise _refusal("committee and threshold", asked, own)
        _at_least("number that may collude", plan.federation.colluding, self.colluding)
        if plan.model.noise_by == "client":  # what is summed up has its noise
            _at_least("fewest contributions in a sum", plan.quorum, self.answers)
        else:
            least = max(self.answers, FEWEST_IN_AN_EXACT_SUM)
            _at_least("fewest contributions in an exact sum", summed, least)

    def _check_resolution(self, rows: int, cells: float) -> None:
        """Refuse sums without noise that tell too much of single rows, by public facts."""
        if self.cell_rows and rows < self.cell_rows * cells:
            asked = f"{cells:,.0f} numbers" if math.isfinite(cells) else "cuts chosen in the run"
            raise _refusal(
                "resolution of sums without noise",
                f"{asked} of about {rows:,} rows",
                f"at least {self.cell_rows} rows for each number (site-rows, cell-rows)",
            )

    # --- words --------------------------------------------------------------------------------

    def described(self) -> list[str]:
        """Return lines for the log at start: what is allowed, and what cannot be verified here."""
        a_year = f"{self.epsilon_a_year:g} and {self.delta_a_year:g} a year, "
        a_year *= math.isfinite(self.epsilon_a_year)
        lines = [
            f"policy until {self.expires} (UTC): {', '.join(self.methods)}; unit "
            f"{' or '.join(self.unit)}; trust {' or '.join(self.trust)}; epsilon "
            f"{self.epsilon_per_run:g} and delta {self.delta_per_run:g} a run, {a_year}"
            f"{self.epsilon_total:g} and {self.delta_total:g} in all, over all units; sums of at "
            f"least {self.answers}"
        ]
        if self.exact_sums:
            lines.append("policy: exact sums are allowed; they spend no budget and promise nothing")
        if self.secure_aggregation == ANY:
            lines.append("policy: without secure aggregation the server sees what this site sends")
        if any(TRUSTS[name].noise_by == "server" for name in self.trust):
            lines.append(
                "not verifiable here: that the server adds its noise (trust central). It sees "
                "exact sums; the epsilon is booked as it claims it"
            )
            if not self.site_rows:
                lines.append("policy: site-rows is not set: these sums may be of any resolution")
        lines.append(
            "not verifiable here: what other sites send, who holds their keys, and how the "
            "server chose the method's parameters"
        )
        return lines


def _refusal(what: str, asked: object, allowed: object) -> InputError:
    return InputError(
        f"this site's policy refuses the {what}: asked is {str(asked)[:80]}, allowed "
        f"{str(allowed)[:200]}"
    )


def _one_of(what: str, asked: Any, allowed: tuple[str, ...]) -> str:
    if asked not in allowed:
        raise _refusal(what, asked, ", ".join(allowed))
    return str(asked)


def _at_most(what: str, asked: float, allowed: float) -> None:
    if not asked <= allowed:
        raise _refusal(what, asked, f"at most {allowed}")


def _at_least(what: str, asked: int, allowed: int) -> None:
    if asked < allowed:
        raise _refusal(what, asked, f"at least {allowed}")


Value: TypeAlias = bool | int | float | str
Allowed: TypeAlias = tuple[Value, ...]
"""Two numbers, lowest and highest; or texts; or truth values."""


def check_range(what: str, allowed: Any) -> None:
    """InputError if `allowed` is neither two numbers in order nor a list of texts, or of bools."""
    ordered = _is_range(allowed) and allowed[0] <= allowed[1]  # False for NaN
    kinds = {type(value) for value in allowed}
    if not (ordered or kinds == {str} or kinds == {bool}):
        raise InputError(
            f"{what} must be [lowest, highest], or a list of texts or of true and false, got "
            f"{list(allowed)!r:.80}"
        )


def _is_range(allowed: Allowed) -> bool:
    return len(allowed) == 2 and all(_is_number(value) for value in allowed)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def within(value: Any, allowed: Allowed) -> bool:
    """Return whether a value is allowed; truth values are not numbers, NaN is in no range."""
    if _is_range(allowed):
        low, high = allowed
        return _is_number(value) and low <= value <= high
    return any(type(value) is type(one) and value == one for one in allowed)


def words_of(allowed: Allowed) -> str:
    """Return the allowed values in words."""
    if _is_range(allowed):
        return f"from {allowed[0]} to {allowed[1]}"
    return ", ".join(json.dumps(value) for value in allowed)
