"""What each way of finding thresholds would give, from public facts: by runs on drawn sums."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from fedcal.conformal.levels.levels import marginal_level
from fedcal.conformal.levels.noise_law import Nothing
from fedcal.conformal.sets import ALL_LABELS
from fedcal.core.errors import InputError
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats
from fedcal.datasets import Dataset
from fedcal.experiments.planner.advice import counted, enough_for
from fedcal.experiments.planner.candidates import SETS, Candidate, set_candidates
from fedcal.experiments.planner.choice import MOST_ALL, MOST_LOST
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.score_law import Even, OfRows, ScoreLaw
from fedcal.experiments.planner.set_advice import RuleEstimate, SetAdvice
from fedcal.experiments.planner.set_sums import drawn
from fedcal.privacy.federation import AUTO, MOST_CLIENTS
from fedcal.queries.conformal import SetQuery
from fedcal.strategies.server.outcome import Progress
from fedcal.strategies.settings import Setting, check_settings

RUNS, SEARCHED, EXACT = 200, 20, 2000
"""Runs of a rule, in the search for what would be enough, and without privacy."""

_UNPLANNED = ("target", "source")
"""Settings for which a plan would have to know the share of each label, or group."""

_CLOSE = 1.1
"""Numbers of clients that are enough are found up to this factor."""


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
    check_settings(SETS, own)
    if "rows_per_client" in own:
        raise InputError("a plan takes --rows-per-client, not --set rows_per_client")
    if unplanned := [name for name in _UNPLANNED if own.get(name)]:
        raise InputError(
            f"a plan of prediction sets does not take --set {unplanned[0]}: no public fact states "
            "how rows divide there"
        )
    rule = str(own.pop("quantile", AUTO))
    asked = {"alpha": own.get("alpha", 0.1), **own}
    able, refused = set_candidates(facts, asked, rule)
    goal = float(asked["alpha"])  # type: ignore[arg-type]
    law = law_of(facts, able[0], data)
    exact = _Runs.exact(facts, goal, law, seed)
    step = counted(progress, 2 * len(able) + 1)
    estimates = []
    for candidate in able:
        try:
            simulated = _Runs.of(candidate, facts, goal, law, RUNS, seed)
        except InputError as e:
            refused.append((str(candidate.settings["quantile"]), str(e)))
            continue
        step()
        estimates.append(
            RuleEstimate(
                candidate=candidate,
                plan=candidate.plan(facts),
                coverage=simulated.coverage,
                all_labels=simulated.all_labels,
                set_size=simulated.size(law),
                useful=simulated.useful(goal),
                fewest_clients=_fewest(candidate, facts, goal, law, seed),
            )
        )
        step()
    if not estimates:
        raise InputError(f"no rule can be planned: {refused[-1][0]}: {refused[-1][1]}")
    useful = [e for e in estimates if e.useful]
    chosen = min(useful, key=lambda e: round(e.coverage, 3), default=None)

    def of_use(changed: PublicFacts) -> str | None:
        for estimate in estimates:
            try:
                several = (
                    _Runs.of(estimate.candidate, changed, goal, law, runs, seed)
                    for runs in (SEARCHED, RUNS)
                )
                if all(runs.useful(goal) for runs in several):
                    return estimate.quantile
            except InputError:  # a plan that so many cannot have
                continue
        return None

    return SetAdvice(
        facts=facts,
        settings=own,
        goal=goal,
        data=data,
        law=law,
        estimates=estimates,
        refused=refused,
        exact=(exact.coverage, exact.size(law)),
        chosen=chosen,
        enough=enough_for(facts, of_use) if chosen is None else None,
        seed=seed,
        seconds=time.perf_counter() - start,
    )


def law_of(facts: PublicFacts, candidate: Candidate, data: Dataset | None) -> ScoreLaw:
    """Return the distribution of scores in the parts of the method's first question."""
    query = cast(SetQuery, candidate.job(facts, facts.rows_per_client).strategy().query(1))
    parts = max(len(query.names), 1) if query.by != "class" else query.classes
    return Even(parts) if data is None else OfRows(data, query.conformity, query.by, parts)


@dataclass(frozen=True)
class _Runs:
    """Thresholds (runs, parts), and what they cover, (runs,)."""

    thresholds: Floats
    covered: Floats

    @classmethod
    def of(
        cls,
        candidate: Candidate,
        facts: PublicFacts,
        goal: float,
        law: ScoreLaw,
        runs: int,
        seed: int,
    ) -> _Runs:
        """So many runs of a rule, each with its own noise."""
        if not facts.federation.private:
            return cls.exact(facts, goal, law, seed)
        job = candidate.job(facts, facts.rows_per_client, seed)
        thresholds = drawn(job, facts, law, runs)[:, : len(law.shares)]
        return cls(thresholds, np.array([law.covered(t) for t in thresholds]))

    @classmethod
    def exact(cls, facts: PublicFacts, goal: float, law: ScoreLaw, seed: int) -> _Runs:
        """Simulate `EXACT` runs of the order statistic of as many rows, in each part.

        The share of rows at or below the r-th smallest of n is Beta(r, n + 1 - r).
        """
        f = facts.federation
        rng = stream(seed, Purpose.SHARE, what="planner of sets, exact")
        thresholds = np.ones((EXACT, len(law.shares)))
        for part, share in enumerate(law.shares):
            n = round(f.clients * f.sampling_rate * facts.rows_per_client * share)
            level = marginal_level(n, goal, Nothing())
            rank = math.floor(level) + 1  # a level is just above the last rank that is too low
            if rank <= n:
                thresholds[:, part] = law.quantiles(part, rng.beta(rank, n + 1 - rank, EXACT))
        return cls(thresholds, np.array([law.covered(t) for t in thresholds]))

    @property
    def coverage(self) -> float:
        return float(self.covered.mean())

    @property
    def all_labels(self) -> float:
        return float((self.thresholds >= ALL_LABELS).any(axis=1).mean())

    def useful(self, goal: float) -> bool:
        """Return whether sets are small enough to be useful."""
        return self.all_labels <= MOST_ALL and 1.0 - self.coverage >= MOST_LOST * goal

    def size(self, law: ScoreLaw) -> float | None:
        sizes = [law.size(t) for t in self.thresholds]
        return None if sizes[0] is None else float(np.mean(sizes))  # type: ignore[arg-type]


def _fewest(
    candidate: Candidate, facts: PublicFacts, goal: float, law: ScoreLaw, seed: int
) -> int | None:
    """Return the least number of clients with which hardly any run gives sets of all labels."""

    def enough(clients: int) -> bool:
        try:
            runs = _Runs.of(candidate, facts.but(clients=clients), goal, law, SEARCHED, seed)
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
