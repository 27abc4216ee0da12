"""From many small runs to one recommendation, or to an honest "not enough"."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from fedcal.errors import FedcalError
from fedcal.experiments.planner.candidates import Candidate, candidates
from fedcal.experiments.planner.estimate import Population, Size, Trial, trial
from fedcal.experiments.planner.facts import Facts
from fedcal.experiments.planner.worlds import World
from fedcal.privacy.federation import MOST_CLIENTS
from fedcal.privacy.plan import Plan
from fedcal.strategies.job import Progress, settings_of
from fedcal.trust import TRUSTS
from fedcal.types import Floats

PAYS = 0.9
"""A method pays if it leaves at most so much of the model's own error, on average, ..."""

MOST_WORSE = 0.25
"""... and at most so many of its runs end worse than the model itself ..."""

MOST_ACCURACY_LOST = 0.01
"""... and it loses no more accuracy than that, on average (Maddock et al. allow as much)."""

NEAR = 1.05
"""Of methods whose error is within this factor of the least, the one that sends least is taken."""

STAGES = ((1, None), (3, 8), (6, 5), (12, 3))
"""Runs in each world, and how many of the best candidates get them."""

MOST_EPSILON = 256.0
_SEARCHED = (2, 6)


@dataclass
class Estimate:
    """What a candidate was worth in the runs so far.

    Attributes
    ----------
    runs : (population, what came of it)
    """

    candidate: Candidate
    plan: Plan
    runs: list[tuple[Population, Trial]] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Share of the model's own error that is left: mean over worlds of means over runs.

        Of each run half of ECE's share and half of classwise ECE's.
        """
        worlds: dict[str, list[float]] = {}
        for population, run in self.runs:
            worlds.setdefault(population.world.name, []).append(_left(population, run))
        return fmean(fmean(shares) for shares in worlds.values())

    @property
    def worse(self) -> float:
        """Share of the runs that ended worse than the model itself."""
        return fmean(_left(population, run) > 1.0 for population, run in self.runs)

    @property
    def accuracy_lost(self) -> float:
        """Mean over runs."""
        return fmean(p.before.accuracy - run.errors.accuracy for p, run in self.runs)

    @property
    def pays(self) -> bool:
        """Whether it is expected to be better than leaving the model alone."""
        return (
            self.left <= PAYS
            and self.worse <= MOST_WORSE
            and self.accuracy_lost <= MOST_ACCURACY_LOST
        )

    @property
    def spread(self) -> float | None:
        """Std from run to run of the calibrated confidence of a row, root mean square."""
        said: dict[str, list[Floats]] = {}
        for population, run in self.runs:
            said.setdefault(population.world.name, []).append(run.said)
        variances = [np.var(rows, axis=0, ddof=1).mean() for rows in said.values() if len(rows) > 1]
        return math.sqrt(fmean(variances)) if variances else None

    @property
    def bytes(self) -> tuple[int, int]:
        """Payload that a client sends and gets, over the run."""
        return self.runs[0][1].bytes

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        plan, bound = self.plan, self.plan.bound
        std = plan.noise_std
        up, down = self.bytes
        return {
            "method": self.candidate.method,
            "settings": dict(self.candidate.settings),
            "rounds": plan.rounds - plan.counting_rounds,
            "sampling_rate": plan.sampling_rate,
            "mechanism": plan.mechanism,
            "clip": None if bound is None else list(bound.norms),
            "clip_rule": None
            if bound is None
            else f"{bound.rule}, L{bound.order}, per {bound.per}",
            "noise_std": None if std is None else list(std),
            "expected": {
                "ece": fmean(run.errors.ece for _, run in self.runs),
                "ece_above_pooled": fmean(r.errors.ece - p.pooled.ece for p, r in self.runs),
                "classwise_ece": fmean(run.errors.classwise_ece for _, run in self.runs),
                "classwise_ece_above_pooled": fmean(
                    r.errors.classwise_ece - p.pooled.classwise_ece for p, r in self.runs
                ),
                "error_left": self.left,
                "worse_than_none": self.worse,
                "accuracy_lost": self.accuracy_lost,
                "noise_in_result": self.spread,
            },
            "pays": self.pays,
            "runs": len(self.runs),
            "bytes_up_per_client": up,
            "bytes_down_per_client": down,
        }


@dataclass(frozen=True)
class Enough:
    """From where on a method is expected to pay; None: not within what was searched."""

    clients: tuple[int, str] | None
    epsilon: tuple[float, str] | None


@dataclass(frozen=True)
class Advice:
    """What `fedcal plan` says.

    Attributes
    ----------
    estimates : best first; `chosen` is not always the first, see `NEAR`
    refused : (method, why) of what does not go with the facts
    chosen : None where nothing is expected to pay
    enough : where nothing pays, what would
    size : what was simulated
    public : whether the worlds are public data, not made up
    """

    facts: Facts
    worlds: list[dict[str, Any]]
    estimates: list[Estimate]
    refused: list[tuple[str, str]]
    chosen: Estimate | None
    enough: Enough | None
    size: Size
    public: bool
    seed: int
    seconds: float

    def __repr__(self) -> str:
        pays = "nothing pays" if self.chosen is None else f"{self.chosen.candidate.text} pays"
        return f"<advice: {pays}; {len(self.estimates)} candidates in `estimates`>"

    @property
    def options(self) -> dict[str, Any] | None:
        """What `fedcal simulate` has to be told to run what is recommended; None if nothing is."""
        if self.chosen is None:
            return None
        f, plan, candidate = self.facts.federation, self.chosen.plan, self.chosen.candidate
        settings = dict(candidate.settings)
        if f.private and "rows_per_client" in settings_of(candidate.method):
            settings["rows_per_client"] = self.facts.rows_per_client
        options: dict[str, Any] = {
            "method": candidate.method,
            "clients": f.clients,
            "rounds": plan.rounds - plan.counting_rounds,
            "sampling_rate": f.sampling_rate,
            "unit": f.unit,
            "trust": f.trust,
        }
        if f.private:
            options |= {"epsilon": f.epsilon, "delta": f.delta, "mechanism": f.mechanism}
        if TRUSTS[str(f.trust)].shared:
            options["quorum"] = f.quorum
        return options | ({"set": settings} if settings else {})


def advise(
    facts: Facts,
    worlds: Sequence[World],
    *,
    methods: Sequence[str] | None = None,
    seed: int = 0,
    search: bool = True,
    progress: Progress | None = None,
) -> Advice:
    """Try every candidate in every world, the best ones more often, and recommend one.

    Looks at the facts and at made-up or public rows only, and draws from `seed` alone.

    Parameters
    ----------
    worlds : of `worlds.made_up` or `worlds.of_public`
    methods : only these; None = all that calibrate and are quick to simulate
    search : where nothing pays, search for what would
    progress : called after each candidate's runs of a world

    Raises
    ------
    InputError
        Unknown methods, or none that goes with the facts.
    """
    start = time.perf_counter()
    found, refused = candidates(facts, methods)
    estimates = [Estimate(c, c.plan(facts)) for c in found]
    populations = _Populations(facts, worlds, seed)
    repeats = max(1, round(4 / len(worlds)))
    ticks = _Ticks(progress, _planned(len(found), len(worlds), repeats))
    done = 0
    for runs, most in STAGES:
        runs *= repeats
        for estimate in estimates[:most]:
            _more(estimate, facts, populations, range(done, runs), ticks)
        done = runs
        estimates.sort(key=_order)
    chosen = _chosen(estimates)
    enough = None
    if chosen is None and search:
        enough = _enough(facts, worlds, estimates, seed)
    return Advice(
        facts,
        populations.described(),
        estimates,
        refused,
        chosen,
        enough,
        Size.of(facts),
        any(world.public for world in worlds),
        seed,
        time.perf_counter() - start,
    )


def _left(population: Population, run: Trial) -> float:
    before, after = population.before, run.errors
    return 0.5 * (after.ece / before.ece + after.classwise_ece / before.classwise_ece)


def _order(estimate: Estimate) -> tuple[bool, float]:
    """Best first; what loses accuracy last."""
    return (estimate.accuracy_lost > MOST_ACCURACY_LOST, estimate.left)


def _chosen(estimates: Sequence[Estimate]) -> Estimate | None:
    """Of those that pay and are nearly the best, the one that sends least."""
    most = max(len(e.runs) for e in estimates)
    paying = [e for e in estimates if e.pays and len(e.runs) == most]
    if not paying:
        return None
    best = min(e.left for e in paying)
    near = [e for e in paying if e.left <= NEAR * best]
    return min(near, key=lambda e: (sum(e.bytes), e.left))


def _enough(
    facts: Facts, worlds: Sequence[World], estimates: Sequence[Estimate], seed: int
) -> Enough:
    """Double the clients, then epsilon, until one of the best candidates pays."""
    best = [e.candidate for e in estimates[:3]]
    f = facts.federation
    sizes = [f.clients * 2**k for k in range(1, 24) if f.clients * 2**k <= MOST_CLIENTS]
    clients = _first(((k, facts.but(clients=k)) for k in sizes), best, worlds, seed)
    epsilon = None
    if f.private:
        budgets = [f.epsilon * 2**k for k in range(1, 24) if f.epsilon * 2**k <= MOST_EPSILON]
        epsilon = _first(((e, facts.but(epsilon=e)) for e in budgets), best, worlds, seed)
    return Enough(None if clients is None else (int(clients[0]), clients[1]), epsilon)


def _first(
    tries: Iterable[tuple[float, Facts]],
    best: Sequence[Candidate],
    worlds: Sequence[World],
    seed: int,
) -> tuple[float, str] | None:
    """The first value at which a candidate pays, and which one does."""
    repeats = max(1, round(4 / len(worlds)))
    for value, facts in tries:
        populations = _Populations(facts, worlds, seed)
        paying = [Estimate(candidate, candidate.plan(facts)) for candidate in best]
        done = 0
        for runs in _SEARCHED:  # what pays by luck of few runs does not go on paying
            for estimate in paying:
                _more(estimate, facts, populations, range(done, runs * repeats), None)
            done = runs * repeats
            paying = [e for e in paying if e.pays]
        if paying:
            return value, min(paying, key=_order).candidate.method
    return None


class _Populations:
    """Populations by world and number, each drawn once and shared by all candidates."""

    def __init__(self, facts: Facts, worlds: Sequence[World], seed: int) -> None:
        self._facts, self.worlds, self._seed = facts, worlds, seed
        self._drawn: dict[tuple[str, int], Population] = {}

    def of(self, world: World, number: int) -> Population:
        key = (world.name, number)
        if key not in self._drawn:
            own = 1000 * self._seed + number
            self._drawn[key] = Population.draw(world, self._facts, own)
        return self._drawn[key]

    def described(self) -> list[dict[str, Any]]:
        """The worlds, before and after one temperature on all rows in one place."""
        lines = []
        for world in self.worlds:
            drawn = [p for (name, _), p in self._drawn.items() if name == world.name]
            before = drawn[0].before
            lines.append(
                {
                    "name": world.name,
                    "about": world.about,
                    "accuracy": before.accuracy,
                    "ece": before.ece,
                    "classwise_ece": before.classwise_ece,
                    "pooled_ece": fmean(p.pooled.ece for p in drawn),
                    "pooled_classwise_ece": fmean(p.pooled.classwise_ece for p in drawn),
                }
            )
        return lines


def _more(
    estimate: Estimate,
    facts: Facts,
    populations: _Populations,
    numbers: Iterable[int],
    ticks: _Ticks | None,
) -> None:
    """Run a candidate on further populations of each world."""
    for number in numbers:
        for world in populations.worlds:
            population = populations.of(world, number)
            try:
                run = trial(estimate.candidate, facts, population)
            except FedcalError as e:  # a private round that failed is no advice
                raise FedcalError(f"planning {estimate.candidate.text} failed: {e}") from e
            estimate.runs.append((population, run))
            if ticks is not None:
                ticks.one()


def _planned(found: int, worlds: int, repeats: int) -> int:
    total, done = 0, 0
    for runs, most in STAGES:
        total += (runs * repeats - done) * worlds * min(found, most or found)
        done = runs * repeats
    return total


class _Ticks:
    """Counts runs for a progress bar."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def one(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)
