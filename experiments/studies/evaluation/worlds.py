"""Populations of scored rows, and releases of what is drawn from them, without clients.

A population's scores are the middles of `CELLS` cells, so that the rows of a federation of any
size are one multinomial draw of counts, and every metric of rows and population is known exactly.
What is released of them follows from their sum: under unit `example`, and where each client has one
row, nothing is clipped. `released` asks the strategy's own questions and draws the noise of all
clients together (`draw_sum`), in each of its rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from experiments.studies.rows import release_of
from fedcal import datasets
from fedcal.clients.questions.score_cell import ScoreCell
from fedcal.clients.questions.scores import ScoreCounts
from fedcal.core.numerics import Floats, Integers
from fedcal.evaluation import METRICS, Histogram
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.metrics.binning import bin_index
from fedcal.metrics.score_table import bucket_of, equal_width, scored
from fedcal.privacy.curator import Release
from fedcal.privacy.privacy import Federation
from fedcal.strategies.methods.evaluate import FedEvaluate
from fedcal.trust import SecAgg

CELLS = 240 * 64
EDGES = equal_width(CELLS)
SCORES = (EDGES[1:] + EDGES[:-1]) / 2


@dataclass(frozen=True, eq=False)
class World:
    """A population: (2, CELLS) probability of a row of outcome 0 and 1 at each score."""

    name: str
    shares: Floats

    def draw(self, rows: int, rng: np.random.Generator) -> Integers:
        """Rows drawn from it, counted, (2, CELLS)."""
        flat = self.shares.ravel()
        there = flat > 0
        found = np.zeros(len(flat), np.int64)
        found[there] = rng.multinomial(rows, flat[there])
        return found.reshape(2, -1)

    def truth(self, metric: str, threshold: float = 0.5) -> float:
        """Return the metric of the population itself."""
        return value_of(self.shares, metric, threshold)

    @property
    def rates(self) -> Floats:
        """P(outcome 1) at each score, NaN if a score has probability 0, (CELLS,)."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.shares[1] / self.shares.sum(axis=0))


def value_of(counts: Floats | Integers, metric: str, threshold: float = 0.5) -> float:
    """Return a metric of rows at the scores themselves, from their counts, (2, CELLS)."""
    overall = Histogram.exact(EDGES, np.asarray(counts, np.float64))
    return METRICS[metric](threshold).value(overall)


def _beta(a: float, b: float) -> Floats:
    density = SCORES ** (a - 1) * (1 - SCORES) ** (b - 1)
    return np.asarray(density / density.sum())


@cache
def world(name: str) -> World:
    """Return a world of `WORLDS` by name."""
    if name == "calibrated":  # scores of Beta(2, 2), each the probability that it claims to be
        density = _beta(2.0, 2.0)
        return World(name, np.stack([density * (1 - SCORES), density * SCORES]))
    if name == "beta":  # smooth and miscalibrated
        return World(name, np.stack([0.5 * _beta(2.0, 3.0), 0.5 * _beta(4.0, 2.0)]))
    data = datasets.load(name)
    score, outcome = scored(data.probs, data.labels, "positive")
    place = bin_index(score[:, 0], CELLS) + CELLS * outcome[:, 0]
    return World(name, np.bincount(place, minlength=2 * CELLS).reshape(2, -1) / len(place))


WORLDS = ("calibrated", "beta", "imdb-binary")


def bucket_counts(counts: Integers | Floats, edges: Floats) -> Floats:
    """Add up counts of cells to counts of buckets, (2, CELLS) -> (2, buckets)."""
    place, buckets = _bucket(edges.tobytes()), len(edges) - 1
    return np.stack([np.bincount(place, row, buckets) for row in counts])


@lru_cache(maxsize=64)
def _bucket(edges: bytes) -> Integers:
    return bucket_of(SCORES, np.frombuffer(edges))


def federation(
    trust: str, clients: int, unit: str, seed: int = 0, epsilon: float = 1.0
) -> Federation:
    """Return a federation of two classes; without noise if only the sum is protected."""
    epsilon = math.inf if trust == SecAgg.name else epsilon
    return Federation(clients, 2, epsilon=epsilon, unit=unit, trust=trust, seed=seed)


def rows_of_rounds(strategy: FedEvaluate) -> list[int]:
    """Clients that are asked in each round, where each round asks others; else of all together."""
    plan = strategy.plan
    if plan.parts == 1:
        return [plan.clients]
    return [len(range(number, plan.clients, plan.parts)) for number in range(plan.rounds)]


def released(
    strategy: FedEvaluate, drawn: Sequence[Integers], rng: np.random.Generator
) -> ScoreRelease:
    """Return a strategy's release for rows whose sums needed no clipping.

    Parameters
    ----------
    strategy
        may be used again: each use forgets the one before
    drawn
        counts of the rows that each round asks for, or of all rows, (2, CELLS) each
    rng
        of the noise
    """
    plan = strategy.plan
    for number in range(1, plan.rounds + 1):
        query = strategy.query(number)
        if query is None:
            break
        counts = drawn[number - 1] if plan.parts > 1 else np.sum(drawn, axis=0)
        total = _answer(query, counts)
        release = Release(number, query.kind, total, np.zeros(len(total)))
        if plan.private:
            clients = int(counts.sum()) if plan.parts > 1 else plan.clients
            release = release_of(plan, number, query, total, clients, rng)
        strategy.update(release)
    return strategy.result()


def _answer(query: object, counts: Integers) -> Floats:
    """Return the sum of all answers, (numbers,)."""
    if isinstance(query, ScoreCell):
        asked = query.as_counts
        nodes = asked.encode(bucket_counts(counts, asked.bucket_edges).reshape(1, -1))[0]
        level = np.zeros((2, len(nodes) // 2))
        level[:, query.nodes] = nodes.reshape(2, -1)[:, query.nodes]
        return level.ravel()
    if not isinstance(query, ScoreCounts):
        raise TypeError(f"no sums of {query!r}")
    summed = query.encode(bucket_counts(counts, query.bucket_edges).reshape(1, -1))[0]
    return np.asarray(summed * query.gain)


def near(scores: Floats, edges: Floats) -> Floats:
    """Return the lower edge of a bucket that is nearest to each score."""
    lower = edges[:-1]
    return np.asarray(lower[np.abs(lower - scores[:, None]).argmin(axis=1)])
