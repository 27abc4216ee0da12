"""What a rule finds where scores have a known law: its real plan and noise, on drawn sums.

The number of rows in each bucket of the score is multinomial, so that a run costs the same for a
hundred rows and for a million. Clients are alike and of equal size: nothing is clipped that the
rule was not made to clip.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import numpy as np

from fedcal.conformal import PredictionSets
from fedcal.core.errors import InputError
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.score_law import ScoreLaw
from fedcal.privacy.curator import Asked, Release
from fedcal.queries.conformal import SetCounts, SetGaps, SetQuery
from fedcal.strategies.server.job import Job
from fedcal.units import UNITS


def drawn(asked: Job, facts: PublicFacts, law: ScoreLaw, runs: int) -> Floats:
    """Return the thresholds of `runs` runs, (runs, parts), from sums drawn by the job's seed.

    One strategy and one question: the runs differ by the rows and the noise.
    """
    strategy = asked.strategy()
    plan = strategy.plan
    if plan.rounds > 1:
        raise InputError("it asks more than once, and a plan draws the sums of one question")
    request = cast(Asked, strategy.open_round(1)).request
    query = cast(SetQuery, request.query)
    once = query.once and UNITS[plan.unit].whole_client
    strategy.abandon()
    thresholds = []
    for k in range(runs):
        rng = stream(asked.federation.seed, Purpose.SHARE, k, "planner of sets")
        clients = int(rng.binomial(plan.clients, plan.sampling_rate))
        sums = _sum(query, clients, facts.rows_per_client, once, law, rng)
        words = np.asarray(np.rint(sums / request.ring.grid).astype(np.int64).view(np.uint64))
        of = plan.sum_of(request.bound, clients, query.costs)
        if plan.model.noise_by == "client":  # that of all at once, as `planner.estimate` does
            words = plan.law.draw_sum(words, of, rng)
        elif plan.noise is not None:
            words = request.ring.add(words, plan.noise.draw(rng))
        values, std = plan.law.release(request.ring.decode(words), of, partial(_itself, rng))
        strategy.update(Release(1, query.kind, values, std))
        thresholds.append(cast(PredictionSets, strategy.result()).thresholds)
    return np.array(thresholds)


def _itself(rng: np.random.Generator) -> np.random.Generator:
    return rng


def _sum(
    query: SetQuery, clients: int, rows: float, once: bool, law: ScoreLaw, rng: np.random.Generator
) -> Floats:
    """Return the sum of the clients' answers, (length,); `once`: of one row of each."""
    n = clients if once else round(clients * rows)
    counts = _counts(query, n, law, rng)
    if isinstance(query, SetCounts):
        return np.asarray(counts[:, :-1] @ query.matrix.T).ravel()
    if not isinstance(query, SetGaps):
        raise InputError(f"a plan draws no sums of the question '{query.kind}'")
    if len(query.hit) > 1 or len(query.need) > 1:
        raise InputError("labels count differently, and a plan knows no share of each")
    inside = np.cumsum(counts, axis=1)[:, :-1]
    total = query.hit[0] * inside - query.need[0] * counts.sum(axis=1, keepdims=True)
    return np.asarray(total).ravel()


def _counts(query: SetQuery, n: int, law: ScoreLaw, rng: np.random.Generator) -> Floats:
    """Rows in each bucket, and above the last threshold, (parts, thresholds + 1).

    With groups the rows of none of them are a further part, which is empty here.
    """
    below = law.below(query.thresholds)
    shares = np.diff(below, axis=1, prepend=0.0, append=1.0) * law.shares[:, None]
    drawn_counts = rng.multinomial(n, np.maximum(shares, 0.0).ravel() / shares.sum())
    counts = np.zeros((query.parts, shares.shape[1]))
    counts[: len(shares)] = drawn_counts.reshape(shares.shape)
    return counts
