"""What one run of a method is worth in a world: the asked federation, on few simulated clients.

The strategy is made for the asked federation, with its real plan: bound, rounds, sampling and
noise are those of the real run. Rows are made up. Of a federation with more clients than are
simulated, each round's sum is that of the simulated ones times K / k, so signal and noise stand
to each other as they would; what a few thousand rows cannot show is how much less the rows
themselves scatter when there are more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedcal.calibrators import Calibrator, TemperatureScaling, calibrator_of
from fedcal.clients.answers import answer
from fedcal.core.shards import Shards
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats, Integers, Words
from fedcal.experiments.planner.candidates import Candidate, fits_locally
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.worlds import Errors, World
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.privacy.curator import Asked
from fedcal.secure_aggregation import Ring
from fedcal.strategies.method import Method

MOST_ROWS = 5_000
MOST_NUMBERS = 100_000
LEAST_ROWS = 300
MOST_SIMULATED = 250
LEAST_SIMULATED = 20
"""Rows, their logits, and clients that a run is simulated with. Methods whose clients fit for
themselves in each round get the first `LEAST_SIMULATED` of these clients only."""


@dataclass(frozen=True)
class Size:
    """Number of simulated clients, and their average number of rows."""

    clients: int
    rows: float

    @classmethod
    def of(cls, facts: PublicFacts) -> Size:
        """Return the federation's size, reduced to what is enough."""
        rows = min(MOST_ROWS, max(LEAST_ROWS, MOST_NUMBERS // facts.federation.classes))
        k = min(facts.federation.clients, MOST_SIMULATED)
        if k * facts.rows_per_client > rows:
            k = min(k, max(LEAST_SIMULATED, int(rows // facts.rows_per_client)))
        return cls(k, min(facts.rows_per_client, max(1.0, rows / k)))

    @property
    def all(self) -> int:
        """Total number of rows."""
        return max(1, round(self.clients * self.rows))


@dataclass(frozen=True)
class Population:
    """One draw of simulated clients from a world, and what is reached without privacy.

    Attributes
    ----------
    before
        errors of the model as it is
    pooled
        errors after one temperature, fitted on all rows in one place
    """

    world: World
    shards: Shards
    size: Size
    seed: int
    before: Errors
    pooled: Errors

    @classmethod
    def draw(cls, world: World, facts: PublicFacts, seed: int) -> Population:
        """Fresh rows, dealt as the facts say."""
        size = Size.of(facts)
        rng = stream(seed, Purpose.PARTITION, what=f"planner {world.key}")
        logits, labels = world.draw(size.all, rng)
        owner = facts.dealing.draw(labels, size.clients, rng)
        own = np.arange(len(labels))  # no public fact says which rows are of one subject
        shards = Shards.from_owner(logits, labels, owner, size.clients, subjects=own)
        pooled = TemperatureScaling().fit(logits, labels)
        return cls(world, shards, size, seed, world.judge(None)[0], world.judge(pooled)[0])


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes
    ----------
    errors
        after it
    confidence
        (n,) calibrated, in the class that the model chose
    bytes
        payload that a client sends and gets
    """

    population: Population
    errors: Errors
    confidence: Floats
    bytes: tuple[int, int]

    @property
    def left(self) -> float:
        """Share of the model's own error that is left: half of it ECE's, half classwise ECE's."""
        before, after = self.population.before, self.errors
        return 0.5 * (after.ece / before.ece + after.classwise_ece / before.classwise_ece)

    @property
    def accuracy_lost(self) -> float:
        """Accuracy before, minus that after."""
        return self.population.before.accuracy - self.errors.accuracy


def trial(candidate: Candidate, facts: PublicFacts, population: Population) -> Trial:
    """Run a candidate on a population under the facts."""
    strategy, weight = scaled(candidate, facts, population)
    shards = population.shards
    if fits_locally(candidate.method) and shards.clients > LEAST_SIMULATED:
        shards = shards.block(0, LEAST_SIMULATED)
    calibrator = drive(strategy, shards, weight, population.seed)
    errors, confidence = population.world.judge(calibrator)
    sent = round(strategy.bytes_up), round(strategy.bytes_down)
    return Trial(population, errors, confidence, sent)


def scaled(
    candidate: Candidate, facts: PublicFacts, population: Population
) -> tuple[Method, float]:
    """Return a strategy, and how many rows of its client each simulated row stands for.

    Where a bound is each row's (subject's) own, rows scale like clients. Where it is the client's,
    a client of very many rows is simulated as one of fewer, and the nominal number goes with it.
    """
    size, seed = population.size, population.seed
    strategy = candidate.job(facts, facts.rows_per_client, seed).strategy()
    bound = strategy.plan.bound
    if bound is not None and bound.per != "client":
        return strategy, facts.rows_per_client / size.rows
    if size.rows < facts.rows_per_client:
        strategy = candidate.job(facts, size.rows, seed).strategy()
    return strategy, 1.0


def drive(strategy: Method, shards: Shards, weight: float, seed: int) -> Calibrator:
    """Run all rounds, on `shards` in place of the plan's clients.

    With as many shards as clients, and noise that is added to the sum, sums are exact.

    Parameters
    ----------
    weight
        times which each client's sum counts (rows that stand for several)
    seed
        of what this simulation draws beyond the plan
    """
    plan = strategy.plan
    if shards.clients == plan.clients and weight == 1.0 and plan.model.noise_by != "client":
        return calibrator_of(run_inline(strategy, shards))
    rng = stream(seed, Purpose.SHARE, what="planner")

    def sum_of(asked: Asked, clients: Integers) -> Words:
        taking_part = len(clients)
        if plan.asks_everyone and plan.sampling_rate < 1:
            taking_part = int(rng.binomial(plan.clients, plan.sampling_rate))
        total = _sum(asked, shards, taking_part, weight, rng)
        if plan.model.noise_by != "client":
            return total
        return plan.law.draw_sum(total, plan.sum_of(asked.request.bound, len(clients)), rng)

    return calibrator_of(run_inline(strategy, shards, sum_of=sum_of))


def _sum(
    asked: Asked, shards: Shards, taking_part: int, weight: float, rng: np.random.Generator
) -> Words:
    """Return the sum over `taking_part` clients, scaled from as many shards or fewer."""
    if taking_part < shards.clients:
        shards = shards.take(np.sort(rng.permutation(shards.clients)[:taking_part]))
    elif not taking_part:
        return np.zeros(asked.request.bound.length, np.uint64)
    ring = asked.request.ring
    if weight > 1.0:  # each row's own words must fit the part of a client with all its rows
        ring = Ring(1, ring.grid)
    request = replace(asked.request, noise=None, rate=1.0, ring=ring)
    words = answer(shards, request)
    total = words.sum(axis=0, dtype=np.uint64).view(np.int64).astype(np.float64)
    factor = weight * taking_part / max(1, shards.clients)
    return np.asarray(np.rint(total * factor).astype(np.int64).view(np.uint64))
