"""Which methods, and which settings of them, a plan tries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.privacy.federation import AUTO
from fedcal.privacy.noise_plan import Plan
from fedcal.strategies import STRATEGIES
from fedcal.strategies.methods.quantiles import QUANTILES
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import Setting, must_calibrate, settings_of

SETS = "conformal"
"""The method whose rules a plan of prediction sets tries."""


@dataclass(frozen=True)
class Tried:
    """Variants of a method that a plan tries.

    Attributes
    ----------
    variants
        `rounds` and settings, each a candidate
    most_classes
        up to which it is tried unasked: beyond it is slow to simulate; 0 = never
    fits_locally
        clients fit something of their own in each round: fewer of them are simulated
    """

    variants: tuple[Mapping[str, Any], ...] = ({},)
    most_classes: float = math.inf
    fits_locally: bool = False


_FEW_ROUNDS = Tried(({}, {"rounds": 2}))
_SEARCH = Tried(({"search": AUTO},))
_SLOW = Tried(most_classes=0, fits_locally=True)  # seconds to minutes of local training
_BY_CLASS = Tried(most_classes=20)  # parameters for each class

TRIED = {
    "fedtemp": Tried(fits_locally=True),
    "fednewton": _FEW_ROUNDS,
    "fednewton-entropy": _FEW_ROUNDS,
    "fednewton-vector": _BY_CLASS,
    "acct": _SEARCH,
    "nllt": _SEARCH,
    "ecet": _SEARCH,
    "fedvector": _SLOW,
    "fedmatrix": _SLOW,
    "fedopvector": _SLOW,
    "fedcal": _SLOW,
    "dp-ts": Tried(most_classes=0),  # a hundred rounds, for what a Newton method does in four
    "dp-platt": Tried(most_classes=0),
}
"""Method -> how it is tried; others, and those of other packages, as they are: `Tried()`."""


def fits_locally(method: str) -> bool:
    """Return whether clients fit a model of their own in each round."""
    return TRIED.get(method, Tried()).fits_locally


@dataclass(frozen=True)
class Candidate:
    """A method with its rounds (None = its default) and its own parameters."""

    method: str
    rounds: int | None = None
    settings: dict[str, Setting] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Text form, as on the command line of `compare`."""
        own = [] if self.rounds is None else [f"rounds={self.rounds}"]
        own += [f"{k}={v}" for k, v in self.settings.items()]
        return self.method + (f"[{','.join(own)}]" if own else "")

    def settings_under(self, facts: PublicFacts, rows_per_client: float) -> dict[str, Setting]:
        """Return its settings, with the nominal number of rows if the run takes it."""
        federation = facts.federation
        nominal = federation.private and "rows_per_client" in settings_of(self.method)
        if self.method == SETS:
            nominal = STRATEGIES[SETS].needs_rows(federation, self.settings)
        return self.settings | ({"rows_per_client": rows_per_client} if nominal else {})

    def job(self, facts: PublicFacts, rows_per_client: float, seed: int = 0) -> Job:
        """Return the run under these facts, with the nominal number of rows if it takes one."""
        public = facts.but(rounds=facts.federation.rounds or self.rounds, seed=seed).federation
        return Job(self.method, public, self.settings_under(facts, rows_per_client))

    def plan(self, facts: PublicFacts) -> Plan:
        """Return the privacy plan; InputError if the method does not go with the facts."""
        return self.job(facts, facts.rows_per_client).plan


@dataclass
class Estimate:
    """Results of a candidate's runs under a privacy plan."""

    candidate: Candidate
    plan: Plan


Refused = list[tuple[str, str]]
"""(name, why) of what cannot be run."""


def candidates(
    facts: PublicFacts, methods: Sequence[str] | None = None
) -> tuple[list[Candidate], Refused]:
    """Return the methods that can be run under these facts, and those that cannot.

    Parameters
    ----------
    methods
        only these; None = all that calibrate, but those slow to simulate (`TRIED`)

    Raises
    ------
    InputError
        An unknown method, one that does not calibrate, or nothing that can be run.
    """
    slow: Refused = []
    if methods is None:
        methods = []
        for name, strategy in STRATEGIES.items():
            if strategy.family != "calibrate":
                continue
            if facts.federation.classes > TRIED.get(name, Tried()).most_classes:
                slow.append((name, "slow to simulate: --method names it"))
            else:
                methods.append(name)
    for name in methods:
        one_of("method", name, STRATEGIES, "fedcal simulate --help")
        must_calibrate("the planner", name)
    able, refused = _able({name: _variants(name, facts) for name in methods}, facts)
    refused = slow + refused
    if not able:
        raise InputError(f"no method goes with these facts: {refused[0][0]}: {refused[0][1]}")
    return able, refused


def set_candidates(
    facts: PublicFacts, settings: Mapping[str, Setting], rule: str
) -> tuple[list[Candidate], Refused]:
    """Return the rules for prediction sets that can serve under these facts, and the others.

    Parameters
    ----------
    settings
        of the method `conformal`
    rule
        only this one; "auto" = every rule

    Raises
    ------
    InputError
        If no rule can serve.
    """
    rules = list(QUANTILES) if rule == AUTO else [rule]
    tried = {name: [Candidate(SETS, None, {**settings, "quantile": name})] for name in rules}
    able, refused = _able(tried, facts)
    refused = [(n, why.removeprefix(f"quantile '{n}' cannot serve: ")) for n, why in refused]
    if not able:
        raise InputError(f"no rule goes with these facts: {refused[0][0]}: {refused[0][1]}")
    return able, refused


def _able(
    tried: Mapping[str, Sequence[Candidate]], facts: PublicFacts
) -> tuple[list[Candidate], Refused]:
    """Candidates that can be run, and names of which none can, with the first one's reason."""
    usable: list[Candidate] = []
    refused: Refused = []
    for name, variants in tried.items():
        able, why = [], ""
        for candidate in variants:
            try:
                candidate.job(facts, facts.rows_per_client).strategy()
                able.append(candidate)
            except InputError as e:
                why = why or str(e)
        usable += able
        if not able:
            refused.append((name, why))
    return usable, refused


def _variants(name: str, facts: PublicFacts) -> list[Candidate]:
    """Variants that the method has settings for, each once."""
    variants: list[Candidate] = []
    known = settings_of(name)
    for variant in TRIED.get(name, Tried()).variants:
        own = {k: v for k, v in variant.items() if k in known}
        rounds = None if facts.federation.rounds else variant.get("rounds")
        if rounds is not None and not facts.federation.private:
            continue
        candidate = Candidate(name, rounds, own)
        if candidate not in variants:
            variants.append(candidate)
    return variants
