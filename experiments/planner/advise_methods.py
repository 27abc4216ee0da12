"""From many small runs to one recommendation, or to an honest "not enough"."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from fedcal.core.errors import FedcalError
from fedcal.experiments.planner.advice import counted, enough_for
from fedcal.experiments.planner.candidates import Candidate, candidates
from fedcal.experiments.planner.choice import (
    CandidateEstimate,
    about_as_good,
    best_of,
    choose,
    rank,
)
from fedcal.experiments.planner.estimate import Population, Size, trial
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.method_advice import MethodAdvice
from fedcal.experiments.planner.worlds import World
from fedcal.experiments.runs.config import Config
from fedcal.strategies.server.outcome import Progress

STAGES = ((1, None), (3, 8), (6, 5), (12, 3))
"""Runs in each world, and how many of the best candidates get them."""

_SEARCHED = (2, 6, STAGES[-1][0])
"""Runs in each world of a search; the last are those that a plan judges by."""


def advise(
    facts: PublicFacts,
    worlds: Sequence[World],
    *,
    methods: Sequence[str] | None = None,
    seed: int = 0,
    search: bool = True,
    engine: str = Config.engine,
    progress: Progress | None = None,
) -> MethodAdvice:
    """Try every candidate in every world, the best ones more often, and recommend one.

    Looks at the facts and at made-up or public rows only, and draws from `seed` alone.

    Parameters
    ----------
    worlds
        of `worlds.made_up` or `worlds.of_public`
    methods
        only these; None = all that calibrate and are quick to simulate
    search
        where nothing pays, search for what would
    engine
        what the run is for: over "grpc" a round takes seconds, whatever it asks, so that of methods
        that are about as good the one with fewest rounds is recommended
    progress
        called after each candidate's runs of a world

    Raises
    ------
    InputError
        Unknown methods, or none that goes with the facts.
    """
    start = time.perf_counter()
    able, refused = candidates(facts, methods)
    estimates = [CandidateEstimate(c, c.plan(facts)) for c in able]
    populations = _Populations(facts, worlds, seed)
    stages = [
        (numbers, most or len(able))
        for numbers, (_, most) in zip(
            _numbers([runs for runs, _ in STAGES], len(worlds)), STAGES, strict=True
        )
    ]
    total = sum(len(numbers) * len(worlds) * min(len(able), most) for numbers, most in stages)
    one_more = counted(progress, total)
    for numbers, most in stages:
        for estimate in estimates[:most]:
            _more(estimate, facts, populations, numbers, one_more)
        estimates.sort(key=rank)
    if engine == "grpc" and (best := best_of(estimates)) is not None:
        for estimate in estimates:  # one with fewer rounds that few runs put near the best
            if estimate.plan.rounds < best.plan.rounds and about_as_good(estimate, best, engine):
                ran = len(estimate.runs) // len(worlds)
                _more(estimate, facts, populations, range(ran, stages[-1][0].stop))
        estimates.sort(key=rank)
    chosen = choose(estimates, engine)
    enough = None
    if chosen is None and search:
        best_three = [e.candidate for e in estimates[:3]]
        enough = enough_for(facts, lambda changed: _pays(changed, best_three, worlds, seed))
    return MethodAdvice(
        facts=facts,
        worlds=populations.described(),
        estimates=estimates,
        refused=refused,
        chosen=chosen,
        enough=enough,
        size=Size.of(facts),
        public=any(world.public for world in worlds),
        seed=seed,
        seconds=time.perf_counter() - start,
        engine=engine,
    )


def _numbers(runs: Sequence[int], worlds: int) -> list[range]:
    """Return the numbers of the new runs in each world at each stage, for these run counts.

    Of fewer than four worlds there are as many runs in all.
    """
    ends = [n * max(1, round(4 / worlds)) for n in runs]
    return [range(a, b) for a, b in itertools.pairwise([0, *ends])]


def _pays(
    facts: PublicFacts, best: Sequence[Candidate], worlds: Sequence[World], seed: int
) -> str | None:
    """Return the method of the best candidate that pays under these facts, if there is one."""
    populations = _Populations(facts, worlds, seed)
    paying = [CandidateEstimate(candidate, candidate.plan(facts)) for candidate in best]
    for numbers in _numbers(_SEARCHED, len(worlds)):
        for estimate in paying:  # what pays by luck of few runs does not go on paying
            _more(estimate, facts, populations, numbers)
        paying = [e for e in paying if e.pays]
    return min(paying, key=rank).candidate.method if paying else None


class _Populations:
    """Populations by world and number, each drawn once and shared by all candidates."""

    def __init__(self, facts: PublicFacts, worlds: Sequence[World], seed: int) -> None:
        self._facts, self.worlds, self._seed = facts, worlds, seed
        self._drawn: dict[str, dict[int, Population]] = {world.name: {} for world in worlds}

    def of(self, world: World, number: int) -> Population:
        drawn = self._drawn[world.name]
        if number not in drawn:
            drawn[number] = Population.draw(world, self._facts, 1000 * self._seed + number)
        return drawn[number]

    def described(self) -> list[dict[str, Any]]:
        """Return the worlds, before and after one temperature on all rows in one place."""
        lines = []
        for world in self.worlds:
            drawn = self._drawn[world.name].values()
            lines.append(
                {
                    "name": world.name,
                    "about": world.about,
                    **asdict(world.judge(None)[0]),
                    "pooled_ece": fmean(p.pooled.ece for p in drawn),
                    "pooled_classwise_ece": fmean(p.pooled.classwise_ece for p in drawn),
                }
            )
        return lines


def _more(
    estimate: CandidateEstimate,
    facts: PublicFacts,
    populations: _Populations,
    numbers: Iterable[int],
    ran: Callable[[], object] = int,
) -> None:
    """Run a candidate on further populations of each world; `ran` is called after each run."""
    for number, world in itertools.product(numbers, populations.worlds):
        population = populations.of(world, number)
        try:
            run = trial(estimate.candidate, facts, population)
        except FedcalError as e:  # a private round that failed is no advice
            raise FedcalError(f"planning {estimate.candidate.text} failed: {e}") from e
        estimate.runs.append(run)
        ran()
