"""Which methods, and which settings of them, a plan tries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedcal.core.checks import one_of
from fedcal.core.errors import InputError
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.privacy.noise_plan import Plan
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import Setting, must_calibrate, settings_of


@dataclass(frozen=True)
class Candidate:
    """A method with its rounds (None = its default) and its own parameters."""

    method: str
    rounds: int | None = None
    settings: dict[str, Setting] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """As on the command line of `compare`."""
        own = [] if self.rounds is None else [f"rounds={self.rounds}"]
        own += [f"{k}={v}" for k, v in self.settings.items()]
        return self.method + (f"[{','.join(own)}]" if own else "")

    def job(self, facts: PublicFacts, rows_per_client: float, seed: int = 0) -> Job:
        """The run under these facts, with the nominal number of rows where the method needs it."""
        public = facts.but(rounds=facts.federation.rounds or self.rounds, seed=seed).federation
        settings = dict(self.settings)
        if "rows_per_client" in settings_of(self.method) and public.private:
            settings["rows_per_client"] = rows_per_client
        return Job(self.method, public, settings)

    def plan(self, facts: PublicFacts) -> Plan:
        """The privacy plan; InputError where the method does not go with the facts."""
        return self.job(facts, facts.rows_per_client).plan


def candidates(
    facts: PublicFacts, methods: Sequence[str] | None = None
) -> tuple[list[Candidate], list[tuple[str, str]]]:
    """What can be run under these facts, and (method, why) of what cannot.

    Parameters
    ----------
    methods
        only these; None = all that calibrate, but those slow to simulate (`Method.planned`)

    Raises
    ------
    InputError
        An unknown method, one that does not calibrate, or nothing that can be run.
    """
    found: list[Candidate] = []
    refused: list[tuple[str, str]] = []
    if methods is None:
        known = {name: s for name, s in STRATEGIES.items() if s.family == "calibrate"}
        slow = [name for name, s in known.items() if facts.federation.classes > s.planned]
        methods = [name for name in known if name not in slow]
        refused = [(name, "slow to simulate: --method names it") for name in slow]
    for name in dict.fromkeys(methods):
        one_of("method", name, STRATEGIES, "fedcal simulate --help")
        must_calibrate("the planner", name)
        why = ""
        there = len(found)
        for candidate in _variants(name, facts):
            try:
                candidate.plan(facts)
                found.append(candidate)
            except InputError as e:
                why = why or str(e)
        if len(found) == there:
            refused.append((name, why))
    if not found:
        raise InputError(f"no method goes with these facts: {refused[0][0]}: {refused[0][1]}")
    return found, refused


def _variants(name: str, facts: PublicFacts) -> list[Candidate]:
    """Variants that the method has settings for, each once."""
    found: list[Candidate] = []
    known = settings_of(name)
    for variant in STRATEGIES[name].trials:
        own = {k: v for k, v in variant.items() if k in known}
        rounds = None if facts.federation.rounds else variant.get("rounds")
        if rounds is not None and not facts.federation.private:
            continue
        candidate = Candidate(name, rounds, own)
        if candidate not in found:
            found.append(candidate)
    return found
