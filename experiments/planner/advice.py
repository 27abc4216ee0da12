"""What a plan says: what was tried, what is recommended, and how it is run."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from fedcal.experiments.planner.candidates import Estimate
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.report.shown import Shown
from fedcal.experiments.report.simulation import command
from fedcal.experiments.runs.config import Config
from fedcal.privacy.federation import MOST_CLIENTS
from fedcal.privacy.noise_plan import Plan
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import TRUSTS

MOST_EPSILON = 256.0
_LINES = 10

LOOKED_AT = (
    "This plan was made from the facts above and from {} alone: no row of anybody was looked at."
)
DRAWN_AT_ONCE = "The noise of all clients was drawn at once, as one draw of their variance."


@dataclass(frozen=True)
class Enough:
    """Least clients and epsilon with which a candidate is expected to pay; None: not found."""

    clients: tuple[int, str] | None
    epsilon: tuple[float, str] | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Advice(Shown):
    """Advice of `fedcal plan`, on methods that calibrate or on prediction sets.

    Attributes
    ----------
    estimates
        what each candidate gave in its runs
    refused
        (name, why) of what does not go with the facts
    chosen
        one of the estimates; None where nothing is expected to pay
    enough
        where nothing pays, what would
    engine
        that the recommended run is for
    """

    facts: PublicFacts
    estimates: Sequence[Estimate]
    refused: list[tuple[str, str]]
    chosen: Estimate | None
    enough: Enough | None
    seed: int
    seconds: float
    engine: str = Config.engine

    named: ClassVar[str]
    """What tells candidates apart: a key of `plan.json`."""

    def __str__(self) -> str:
        run = [] if self.command is None else [f"  {self.command}"]
        return "\n".join([self.recommended(), *run, *self.explanation()][:_LINES])

    @property
    @abstractmethod
    def heading(self) -> str:
        """Facts that were planned for, above the table."""

    @property
    def first(self) -> list[str]:
        """Advice to try before any federation; a line or none."""
        return []

    @abstractmethod
    def line(self, estimate: Any) -> dict[str, Any]:
        """Return the expected performance of a candidate, in plain values."""

    def _lines(self) -> list[dict[str, Any]]:
        return [self.line(estimate) for estimate in self.estimates]

    @abstractmethod
    def recommended(self) -> str:
        """Return the recommendation in a line, or why there is none."""

    def not_enough(self) -> str:
        """Why nothing is recommended, and what would do."""
        return self.recommended()

    @abstractmethod
    def explanation(self) -> list[str]:
        """Everything a reader of the table has to know."""

    def approximations(self) -> list[str]:
        """Return sentences on what the simulation simplifies."""
        return []

    @abstractmethod
    def tried(self) -> dict[str, Any]:
        """Return the request and every candidate's line, for `plan.json`."""

    @property
    def options(self) -> dict[str, Any] | None:
        """Options of `fedcal simulate` that run the recommended candidate; None without one."""
        if self.chosen is None:
            return None
        f, candidate = self.facts.federation, self.chosen.candidate
        options: dict[str, Any] = {
            "method": candidate.method,
            "clients": f.clients,
            **self._rounds(self.chosen.plan),
            "sampling_rate": f.sampling_rate,
            "unit": f.unit,
            "trust": f.trust,
        }
        if f.private:
            options |= {"epsilon": f.epsilon, "delta": f.delta, "mechanism": f.mechanism}
        if TRUSTS[str(f.trust)].shared:
            options["quorum"] = f.quorum
        if self.engine != Config.engine:
            options["engine"] = self.engine
        settings = candidate.settings_under(self.facts, self.facts.rows_per_client)
        return options | ({"set": settings} if settings else {})

    def _rounds(self, plan: Plan) -> dict[str, int]:
        """Return the option `rounds`, if the recommended method has one."""
        return {}

    @property
    def command(self) -> str | None:
        """The command that runs what is recommended."""
        if self.options is None:
            return None
        settings = self.options.get("set", {})
        plain = {  # a whole number without ".0"
            k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in settings.items()
        }
        return " ".join(command(self.options | {"set": plain}))

    def to_json(self) -> dict[str, Any]:
        """Return the content of `plan.json`: strict JSON, no NaN and no infinity."""
        missing: dict[str, Any] | None = None
        if self.chosen is None:
            missing = {"line": self.not_enough()}
            for fact, least in asdict(self.enough or Enough(None, None)).items():
                missing[fact] = least and {"least": least[0], self.named: least[1]}
        return {
            "schema": 1,
            **self.tried(),
            "refused": [{self.named: name, "why": why} for name, why in self.refused],
            "recommendation": None if self.chosen is None else self.line(self.chosen),
            "options": self.options,
            "command": self.command,
            "not_enough": missing,
            "statement": [*self.first, *self.explanation()],
            "approximations": self.approximations(),
            "seconds": self.seconds,
        }


def enough_for(facts: PublicFacts, pays: Callable[[PublicFacts], str | None]) -> Enough:
    """Double the clients, then epsilon, until a candidate pays.

    Parameters
    ----------
    pays
        the name of a candidate that pays under such facts, or None
    """

    def doubled(fact: str, now: float, most: float) -> Any:
        while (now := 2 * now) <= most:
            if name := pays(facts.but(**{fact: now})):
                return now, name
        return None

    f = facts.federation
    clients = doubled("clients", f.clients, MOST_CLIENTS)
    return Enough(clients, doubled("epsilon", f.epsilon, MOST_EPSILON) if f.private else None)


def counted(progress: Progress | None, total: int) -> Callable[[], None]:
    """Return a function to call after each of `total` steps."""
    steps = itertools.count(1)

    def step() -> None:
        if progress is not None:
            progress(next(steps), total)

    return step
