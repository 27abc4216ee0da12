"""What each way of finding thresholds would give, from public facts: by runs on drawn sums."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from fedcal.conformal.levels.levels import Nothing, marginal_level, pac_level
from fedcal.conformal.set_release import Goal
from fedcal.conformal.sets import ALL_LABELS
from fedcal.core.errors import InputError
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats
from fedcal.datasets import Dataset
from fedcal.experiments.planner.advice import MOST_EPSILON, Enough
from fedcal.experiments.planner.choice import MOST_ALL, MOST_LOST
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.sets.law import Even, OfRows, ScoreLaw
from fedcal.experiments.planner.sets.sums import METHOD, drawn, job
from fedcal.privacy.federation import AUTO, MOST_CLIENTS
from fedcal.privacy.noise_plan import Plan
from fedcal.queries.conformal import SetQuery
from fedcal.strategies import STRATEGIES
from fedcal.strategies.methods.quantiles import QUANTILES
from fedcal.strategies.server.outcome import Progress
from fedcal.strategies.settings import Setting, check_settings
from fedcal.trust import TRUSTS

RUNS, SEARCHED, EXACT = 200, 20, 2000
"""Runs of a rule, in the search for what would be enough, and without privacy."""

_UNPLANNED = ("target", "source", "costs", "among", "report")
"""Settings for which a plan would have to know the share of each label, or group."""

_CLOSE = 1.1
"""Numbers of clients that are enough are found up to this factor."""


@dataclass(frozen=True)
class RuleEstimate:
    """What a rule gave in its runs.

    Attributes
    ----------
    coverage
        mean over all runs
    all_labels
        share of the runs with sets of all labels, in some part
    set_size
        mean labels in a set; None where only scores are known
    fewest_clients
        least number with which at most `MOST_ALL` of the runs are; None = no number does
    """

    quantile: str
    plan: Plan
    coverage: float
    all_labels: float
    set_size: float | None
    fewest_clients: int | None

    def useful(self, alpha: float) -> bool:
        """Whether sets say enough to be worth it."""
        return _useful(self.coverage, self.all_labels, alpha)


@dataclass(frozen=True)
class SetAdvice:
    """What `fedcal plan --method conformal` says.

    Attributes
    ----------
    settings
        of the method, as they were given
    estimates
        of the rules that can serve, as `QUANTILES` lists them
    refused
        (rule, why)
    exact
        coverage and set size without privacy, for as many rows
    chosen
        the rule that covers least; None where none is of use
    enough
        where none is, what would do
    """

    facts: PublicFacts
    settings: dict[str, Setting]
    goal: Goal
    data: Dataset | None
    law: ScoreLaw
    estimates: list[RuleEstimate]
    refused: list[tuple[str, str]]
    exact: tuple[float, float | None]
    chosen: RuleEstimate | None
    enough: Enough | None
    seed: int
    seconds: float

    def __repr__(self) -> str:
        best = "no rule is of use" if self.chosen is None else f"quantile {self.chosen.quantile}"
        return f"<advice: {best}; {len(self.estimates)} rules in `estimates`>"

    def __str__(self) -> str:
        from fedcal.experiments.planner.sentences import in_short
        from fedcal.experiments.planner.sets import sentences

        return in_short(
            sentences.recommended(self), sentences.command(self), sentences.explanation(self)
        )

    @property
    def rows(self) -> float:
        """Expected in all."""
        f = self.facts.federation
        return f.clients * f.sampling_rate * self.facts.rows_per_client

    @property
    def options(self) -> dict[str, Any] | None:
        """What `fedcal simulate` has to be told to run what is recommended; None if nothing is."""
        if self.chosen is None:
            return None
        f = self.facts.federation
        options: dict[str, Any] = {
            "method": METHOD,
            "clients": f.clients,
            "sampling_rate": f.sampling_rate,
            "unit": f.unit,
            "trust": f.trust,
        }
        own: dict[str, Setting] = {"alpha": self.goal.alpha, **self.settings}
        own["quantile"] = self.chosen.quantile
        if f.private:
            options |= {"epsilon": f.epsilon, "delta": f.delta, "mechanism": f.mechanism}
        if STRATEGIES[METHOD].needs_rows(f, own):
            own["rows_per_client"] = self.facts.rows_per_client
        if TRUSTS[str(f.trust)].shared:
            options["quorum"] = f.quorum
        return options | {"set": own}


def advise_sets(
    facts: PublicFacts,
    settings: Mapping[str, Setting],
    *,
    data: Dataset | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> SetAdvice:
    """Try every rule that can serve, and say what coverage, set sizes and rows to expect.

    Parameters
    ----------
    facts
        the federation; with the number of rows all that is taken of it
    settings
        of the method `conformal`
    data
        rows that stand in for the clients'; None = evenly spread scores
    seed
        of everything that is drawn
    progress
        called as it goes on

    Raises
    ------
    InputError
        A setting that is not allowed, or no rule that can serve.
    """
    start = time.perf_counter()
    own = dict(settings)
    check_settings(METHOD, own)
    if "rows_per_client" in own:
        raise InputError("a plan takes --rows-per-client, not --set rows_per_client")
    if unplanned := [name for name in _UNPLANNED if own.get(name)]:
        raise InputError(
            f"a plan of prediction sets takes no --set {unplanned[0]}: no public fact says how "
            "rows part there"
        )
    one = str(own.pop("quantile", AUTO))
    rules = list(QUANTILES) if one == AUTO else [one]
    able, refused = [], []
    for name in rules:
        try:
            job(facts, {**own, "quantile": name}).strategy()
            able.append(name)
        except InputError as e:
            refused.append((name, str(e).removeprefix(f"quantile '{name}' cannot serve: ")))
    if not able:
        raise InputError(f"no rule goes with these facts: {refused[0][0]}: {refused[0][1]}")
    goal = _goal(own)
    law = law_of(facts, {**own, "quantile": able[0]}, data)
    steps = itertools.count(1)
    total = 2 * len(able) + 1

    def step() -> None:
        if progress is not None:
            progress(next(steps), total)

    exact = _Runs.exact(facts, goal, law, EXACT, seed)
    estimates = []
    for name in able:
        asked = {**own, "quantile": name}
        try:
            found = _Runs.of(facts, asked, law, RUNS, seed)
        except InputError as e:
            refused.append((name, str(e)))
            continue
        step()
        fewest = _fewest(facts, asked, law, seed)
        estimates.append(
            RuleEstimate(
                name,
                job(facts, asked).plan,
                found.coverage,
                found.all_labels,
                found.size(law),
                fewest,
            )
        )
        step()
    if not estimates:
        raise InputError(f"no rule can be planned: {refused[-1][0]}: {refused[-1][1]}")
    useful = [e for e in estimates if e.useful(goal.alpha)]
    chosen = min(useful, key=lambda e: round(e.coverage, 3), default=None)
    enough = None
    if chosen is None:
        enough = _enough(facts, own, [e.quantile for e in estimates], law, goal.alpha, seed)
    return SetAdvice(
        facts,
        own,
        goal,
        data,
        law,
        estimates,
        refused,
        (exact.coverage, exact.size(law)),
        chosen,
        enough,
        seed,
        time.perf_counter() - start,
    )


def law_of(facts: PublicFacts, settings: dict[str, Setting], data: Dataset | None) -> ScoreLaw:
    """Of the parts that the method's first question asks for."""
    query = cast(SetQuery, job(facts, settings).strategy().query(1))
    parts = max(len(query.names), 1) if query.by != "class" else query.classes
    return Even(parts) if data is None else OfRows(data, query.conformity, query.by, parts)


@dataclass(frozen=True)
class _Runs:
    """Thresholds (runs, parts), and what they cover, (runs,)."""

    thresholds: Floats
    covered: Floats

    @classmethod
    def of(
        cls, facts: PublicFacts, settings: dict[str, Setting], law: ScoreLaw, runs: int, seed: int
    ) -> _Runs:
        """So many runs of a rule, each with its own noise."""
        if not facts.federation.private:
            return cls.exact(facts, _goal(settings), law, EXACT, seed)
        found = drawn(job(facts, settings, seed), facts, law, runs)[:, : len(law.shares)]
        return cls(found, np.array([law.covered(t) for t in found]))

    @classmethod
    def exact(cls, facts: PublicFacts, goal: Goal, law: ScoreLaw, runs: int, seed: int) -> _Runs:
        """The order statistic of as many rows, of each part.

        The share of rows at or below the r-th smallest of n is Beta(r, n + 1 - r).
        """
        f = facts.federation
        rng = stream(seed, Purpose.SHARE, what="planner of sets, exact")
        found = np.ones((runs, len(law.shares)))
        for part, share in enumerate(law.shares):
            n = round(f.clients * f.sampling_rate * facts.rows_per_client * share)
            if goal.promise == "marginal":
                level = marginal_level(n, goal.alpha, Nothing())
            else:
                level = pac_level(n, goal.alpha, Nothing(), goal.confidence)
            rank = math.floor(level) + 1  # a level is just above the last rank that is too low
            if rank <= n:
                found[:, part] = law.quantiles(part, rng.beta(rank, n + 1 - rank, runs))
        return cls(found, np.array([law.covered(t) for t in found]))

    @property
    def coverage(self) -> float:
        return float(self.covered.mean())

    @property
    def all_labels(self) -> float:
        return float((self.thresholds >= ALL_LABELS).any(axis=1).mean())

    def size(self, law: ScoreLaw) -> float | None:
        sizes = [law.size(t) for t in self.thresholds]
        return None if sizes[0] is None else float(np.mean(sizes))  # type: ignore[arg-type]


def _goal(settings: Mapping[str, Setting]) -> Goal:
    known: dict[str, Any] = {"alpha": settings.get("alpha", 0.1)}
    known |= {"promise": settings["guarantee"]} if "guarantee" in settings else {}
    known |= {"confidence": settings["confidence"]} if "confidence" in settings else {}
    return Goal(**known)


def _useful(coverage: float, all_labels: float, alpha: float) -> bool:
    return all_labels <= MOST_ALL and 1.0 - coverage >= MOST_LOST * alpha


def _fewest(
    facts: PublicFacts, settings: dict[str, Setting], law: ScoreLaw, seed: int
) -> int | None:
    """The least number of clients with which hardly any run gives sets of all labels."""

    def enough(clients: int) -> bool:
        try:
            runs = _Runs.of(facts.but(clients=clients), settings, law, SEARCHED, seed)
        except InputError:  # a plan that so few, or so many, cannot have
            return False
        return runs.all_labels <= MOST_ALL

    high = max(2, facts.federation.clients)
    while not enough(high):
        high *= 2
        if high > MOST_CLIENTS:
            return None
    low = high // 2
    while low >= 1 and enough(low):
        low, high = low // 2, low
    while high > _CLOSE * max(low, 1) and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _enough(
    facts: PublicFacts,
    own: dict[str, Setting],
    rules: Sequence[str],
    law: ScoreLaw,
    alpha: float,
    seed: int,
) -> Enough:
    """Double the clients, then epsilon, until a rule is of use."""

    def of_use(changed: PublicFacts) -> str | None:
        for name in rules:
            asked = {**own, "quantile": name}
            try:
                found = (_Runs.of(changed, asked, law, runs, seed) for runs in (SEARCHED, RUNS))
                if all(_useful(runs.coverage, runs.all_labels, alpha) for runs in found):
                    return name
            except InputError:
                continue
        return None

    f = facts.federation
    clients: tuple[int, str] | None = None
    epsilon: tuple[float, str] | None = None
    for many in _doubled(f.clients, MOST_CLIENTS):
        if name := of_use(facts.but(clients=int(many))):
            clients = int(many), name
            break
    for budget in _doubled(f.epsilon, MOST_EPSILON) if f.private else ():
        if name := of_use(facts.but(epsilon=budget)):
            epsilon = budget, name
            break
    return Enough(clients, epsilon)


def _doubled(now: float, most: float) -> list[float]:
    found = []
    while (now := 2 * now) <= most:
        found.append(now)
    return found
