"""Laws of conformity scores, and releases of what is drawn from them, without clients' rows.

A law has finitely many scores, so that the rows of a federation are one multinomial draw of counts,
and how often a threshold covers is known exactly. What is released of them follows from their sum
(of whole clients: from the sum of clipped answers): `thresholds_of` asks the strategy's own
question, lets its mechanism draw the noise of all clients together, and hears what the strategy
makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from fedcal import datasets
from fedcal.clients.questions.conformal import SetCounts, SetGaps
from fedcal.conformal import Conformity, PredictionSets
from fedcal.core.numerics import Floats, Integers
from fedcal.core.shards import Shards
from fedcal.experiments.research.studies.rows import release_of
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.metrics.conformity import SCORES
from fedcal.privacy.federation import Federation
from fedcal.privacy.privacy import AUTO
from fedcal.strategies.methods.conformal import FedConformal
from fedcal.trust import Central, SecAgg
from fedcal.units import UNITS, Example, Subject

ALPHA = 0.1
_JUST_ABOVE = 1e-9
_CLIENTS_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class ScoreLaw:
    """Scores (k,), increasing, and the probability of each."""

    scores: Floats
    shares: Floats

    def buckets(self, thresholds: Floats) -> Floats:
        """Return the probability of each bucket, (m,)."""
        place = np.searchsorted(thresholds, self.scores, side="left")
        return np.asarray(np.bincount(place, self.shares, len(thresholds)), np.float64)

    def covered(self, thresholds: Floats) -> Floats:
        """Return the probability of a score of at most each threshold."""
        below = np.concatenate([[0.0], np.cumsum(self.shares)])
        return np.asarray(below[np.searchsorted(self.scores, thresholds, side="right")])


def law_of(name: str, thresholds: Floats) -> ScoreLaw:
    """Return a law by name; some of them depend on the thresholds under test.

    Parameters
    ----------
    name
        "smooth"; "ties", ten scores; "edges" and "above edges", all thresholds, or just above
        them; ".85 / .98", masses that end there; "one score"; or a shipped data set, score, and
        "randomised": the law of its rows
    """
    made: dict[str, Callable[[], Floats]] = {
        "smooth": lambda: (np.arange(5_000) + 0.5) / 5_000,
        "ties": lambda: (np.arange(10) + 0.5) / 10,
        "edges": lambda: thresholds,
        "above edges": lambda: thresholds[:-1] + _JUST_ABOVE,
        "one score": lambda: np.array([0.5]),
    }
    if name in made:
        scores = made[name]()
        return ScoreLaw(scores, np.full(len(scores), 1.0 / len(scores)))
    if name == ".85 / .98":
        return ScoreLaw(np.array([0.3, 0.6, 1.0]), np.array([0.85, 0.13, 0.02]))
    return _of_data(*name.split())


@cache
def _of_data(data: str, score: str, randomised: str = "") -> ScoreLaw:
    rows = datasets.load(data)
    scores = Conformity(score, bool(randomised)).of_labels(rows.logits, rows.labels)
    found, often = np.unique(scores, return_counts=True)
    return ScoreLaw(found, often / len(scores))


@dataclass(frozen=True)
class Setup:
    """A federation whose clients have equally many rows, and how it finds a threshold."""

    quantile: str
    unit: str = Example.name
    trust: str = Central.name
    epsilon: float = 1.0
    delta: float = 0.0
    clients: int = 100
    rows: int = 10
    known: bool = False
    bins: int = 0
    mechanism: str = AUTO
    score: str = "lac"
    randomised: bool = False
    classes: int = 10

    def of(self, law: str) -> Setup:
        """Return the same setup for the score in a law's name."""
        data, score, randomised = (*law.split(), "", "")[:3]
        if score not in SCORES:
            return self
        classes = datasets.load(data).classes
        return replace(self, score=score, randomised=bool(randomised), classes=classes)

    @property
    def total(self) -> int:
        """Number of rows of all clients."""
        return self.clients * self.rows

    def strategy(self, seed: int = 0) -> FedConformal:
        """Return a new strategy of the method."""
        private = self.quantile != "exact"
        facts = Federation(
            self.clients,
            self.classes,
            epsilon=self.epsilon if private else math.inf,
            delta=self.delta,
            unit=self.unit,
            trust=self.trust if private else SecAgg.name,
            mechanism=self.mechanism,
            seed=seed,
        )
        return FedConformal(
            facts,
            alpha=ALPHA,
            quantile=self.quantile,
            bins=self.bins,
            score=self.score,
            randomised=self.randomised,
            rows_per_client=float(self.rows),
            rows_known=self.known,
        )


def thresholds_of(setup: Setup, name: str, runs: int, rng: np.random.Generator) -> Floats:
    """Return the thresholds of each run, with rows drawn anew, (runs,).

    Parameters
    ----------
    setup
        not of `exact`, which is asked in several rounds
    name
        of the law
    rng
        of rows and noise
    """
    strategy = setup.strategy()
    plan, query = strategy.plan, strategy.query(1)
    if plan.bound is None:
        raise TypeError("a run without privacy")
    found = []
    shares = law_of(name, query.thresholds).buckets(query.thresholds)
    for total in _sums(setup, query, shares, max(plan.bound.norms), runs, rng):
        strategy.update(release_of(plan, 1, query, total, plan.clients, rng))
        found.append(float(strategy.result().thresholds[0]))
    return np.array(found)


def _sums(
    setup: Setup, query: object, shares: Floats, clip: float, runs: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Yield the sum of all clients' answers, (numbers,), for each run."""
    if isinstance(query, SetCounts):
        for counts in rng.multinomial(setup.total, shares, size=runs):
            yield query.matrix @ counts
    elif isinstance(query, SetGaps):
        need = query.need
        if not UNITS[setup.unit].whole_client:
            for counts in rng.multinomial(setup.total, shares, size=runs):
                yield _gaps(counts, need)
            return
        step = max(1, _CLIENTS_AT_ONCE // setup.clients)
        for first in range(0, runs, step):
            size = (min(step, runs - first), setup.clients)
            counts = rng.multinomial(setup.rows, shares, size=size)
            yield from np.clip(_gaps(counts, need), -clip, clip).sum(axis=1)
    else:
        raise TypeError(f"no sums of {query!r}")


def _gaps(counts: Integers, need: float) -> Floats:
    """Rows up to each threshold less a share of all, (..., m)."""
    return np.asarray(np.cumsum(counts, axis=-1) - need * counts.sum(axis=-1, keepdims=True))


def engine_thresholds(setup: Setup, name: str, runs: int, rng: np.random.Generator) -> Floats:
    """Return the same by the real engine, for rows that clients score themselves, (runs,)."""
    query = setup.strategy().query(1)
    law = law_of(name, query.thresholds)
    owner = np.repeat(np.arange(setup.clients), setup.rows)
    labels = np.zeros(setup.total, np.int64)
    subjects = np.arange(setup.total) if setup.unit == Subject.name else None
    found = []
    for run in range(runs):
        drawn = rng.choice(law.scores, setup.total, p=law.shares)
        others = np.repeat(drawn[:, None], setup.classes - 1, axis=1) / (setup.classes - 1)
        probs = np.concatenate([1.0 - drawn[:, None], others], axis=1)
        logits = np.log(np.maximum(probs, 1e-30))
        shards = Shards.from_owner(logits, labels, owner, setup.clients, subjects=subjects)
        strategy = setup.strategy(run)
        strategy.secure_aggregation = "none"  # the same bits, sooner
        sets = run_inline(strategy, shards)
        if not isinstance(sets, PredictionSets):
            raise TypeError(f"a run of prediction sets gave {sets!r}")
        found.append(float(sets.thresholds[0]))
    return np.array(found)


def exact_thresholds(
    law: ScoreLaw, rows: int, rank: int, runs: int, rng: np.random.Generator
) -> Floats:
    """Return the score of this rank of the rows in each run, (runs,); 1 above all rows."""
    found = np.ones(runs)
    for run in range(runs if rank <= rows else 0):
        below = np.cumsum(rng.multinomial(rows, law.shares))
        found[run] = law.scores[np.searchsorted(below, rank)]
    return found
