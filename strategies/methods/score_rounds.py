"""The rounds in which counts by score are asked for: all at once, twice, or a level at a time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

import numpy as np

from fedcal.calibrators.fits.noisy_counts import norm_sub
from fedcal.clients.questions import ScoreCell, ScoreCounts
from fedcal.core.types import Floats, Integers, override
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.mechanisms import NoiseLaw
from fedcal.metrics.encodings import decoder_of, matrix_of
from fedcal.privacy.curator import Release
from fedcal.privacy.declared import SEED, Question, Range
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.query import Query


def excluded(plan: Plan) -> tuple[str, ...]:
    """Return the sources of error that no interval of a plan's metrics contains, in words."""
    sources = list[str]()
    clipped = plan.law.answers in ("sum", "index")
    if clipped and plan.bound is not None and plan.bound.per == "client":
        sources.append("the bias of clipping a client's answer")
    if plan.sampling_rate < 1:
        sources.append("the choice of the clients that were asked")
    return tuple(sources)


class ScoreRounds(ABC):
    """Questions of the rounds of an evaluation, and the counts known after each."""

    rounds: int

    @abstractmethod
    def query(self, number: int) -> Query | None:
        """Return the question of a round; None if it depends on a release that is still missing."""

    @abstractmethod
    def questions(self) -> tuple[Question, ...]:
        """Declare what rounds may ask, before anything is learned; see `Method.questions`."""

    @abstractmethod
    def learn(self, release: Release, law: NoiseLaw) -> ScoreRelease:
        """Return the counts known after a release with noise of this distribution."""


@dataclass
class AtOnce(ScoreRounds):
    """Evaluation by one round of counts."""

    question: ScoreCounts
    rounds: int = 1

    @override
    def query(self, number: int) -> ScoreCounts:
        return self.question

    @override
    def questions(self) -> tuple[Question, ...]:
        return (Question.like(self.question, (1, 1), seed=SEED),)

    @override
    def learn(self, release: Release, law: NoiseLaw) -> ScoreRelease:
        return _read(self.question, release, law)


@dataclass
class Twice(ScoreRounds):
    """A first look at the counts, and a second one that it makes better.

    Attributes
    ----------
    first, last
        questions; what the second one takes from the first is filled in
    equi_depth
        ask the second time between edges with about as many rows between each two
    nominal
        rows in all, as is publicly taken; with it the second question is for what differs from
        the shares that were found. None = for counts again
    """

    first: ScoreCounts
    last: ScoreCounts
    equi_depth: bool
    nominal: float | None = None
    rounds: int = 2
    _expected: Floats | None = field(default=None, init=False)

    @override
    def query(self, number: int) -> ScoreCounts:
        return self.first if number == 1 else self.last

    def questions(self) -> tuple[Question, ...]:
        """Return the first question, and the last one with all edges that it may have."""
        asked, moving = self.last, {"seed": SEED}
        if self.equi_depth:
            moving["edges"] = Range(0.0, 1.0, asked.buckets + 1, asked.buckets + 1)
        if self.nominal is not None:
            moving["reference"] = Range(0.0, 1.0, asked.counts, asked.counts)
        first = Question.like(self.first, (1, 1), seed=SEED)
        return first, Question.like(asked, (2, 2), **moving)

    def learn(self, release: Release, law: NoiseLaw) -> ScoreRelease:
        """Return the counts; a residual is added to the reference that it was computed from."""
        seen = _read(self.query(release.round), release, law)
        if release.round == self.rounds:
            if self._expected is not None:
                seen = replace(seen, counts=seen.counts + self._expected)
            return seen
        if self.equi_depth:
            whole = sum(h.counts.sum(axis=0) for h in seen.histograms.values())
            edges = equi_depth(self.first.bucket_edges, np.asarray(whole), self.last.buckets)
            self.last = replace(self.last, edges=edges)
        if self.nominal is not None:
            shares = _shares(seen, self.last)
            self.last = replace(self.last, reference=shares)
            self._expected = _rows_in(seen, self.nominal) * shares
        return seen


@dataclass
class LevelByLevel(ScoreRounds):
    """Nodes of one level of a tree in each round, from other clients each time.

    Attributes
    ----------
    question
        for the counts at the leaves
    asked
        (rounds,) how many clients are asked in each round
    seed
        of the draw of a client's row
    """

    question: ScoreCounts
    asked: Integers
    seed: int
    _sums: dict[int, Floats] = field(default_factory=dict, init=False)
    _variance: float = field(default=0.0, init=False)

    @property
    def rounds(self) -> int:  # type: ignore[override]
        """Number of rounds: one for each level."""
        return len(self.question.levels)

    @override
    def query(self, number: int) -> ScoreCell:
        q = self.question
        return ScoreCell(q.classes, q.edges, q.height, number - 1, self.seed, q.score)

    def questions(self) -> tuple[Question, ...]:
        """Return the questions for a node of each round's level, with any seed."""
        rounds = range(1, self.rounds + 1)
        return tuple(Question.like(self.query(n), (n, n), seed=SEED) for n in rounds)

    def learn(self, release: Release, law: NoiseLaw) -> ScoreRelease:
        """Return least-squares counts from the levels known so far, scaled to all clients."""
        level, q = release.round - 1, self.question
        more = float(self.asked.sum() / max(self.asked[level], 1))
        halves = release.values.reshape(2, -1)[:, self.query(release.round).nodes]
        self._sums[level] = halves * more
        self._variance = max(self._variance, float(release.std.max(initial=0.0) * more) ** 2)
        if len(self._sums) == self.rounds:
            decoder = decoder_of(q.encoding, q.buckets, q.height)
        else:  # so far
            ends = np.cumsum((0, *q.levels))
            rows = np.concatenate([np.arange(ends[k], ends[k + 1]) for k in self._sums])
            decoder = np.linalg.pinv(matrix_of(q.encoding, q.buckets, q.height)[rows])
        nodes = np.concatenate([self._sums[k] for k in sorted(self._sums)], axis=1)
        counts = (nodes @ decoder.T).ravel()
        return ScoreRelease(q, counts, math.sqrt(self._variance), law)


def _read(asked: ScoreCounts, release: Release, law: NoiseLaw) -> ScoreRelease:
    counts = asked.decode(release.values) / asked.gain
    return ScoreRelease(asked, counts, float(release.std.max(initial=0.0)) / asked.gain, law)


def log_odds_edges(buckets: int) -> Floats:
    """Edges equally far apart in log-odds from -9 to 9, and 0 and 1, (buckets + 1,)."""
    inner = 1.0 / (1.0 + np.exp(-np.linspace(-9.0, 9.0, buckets - 1)))
    return np.concatenate([[0.0], inner, [1.0]])


def equi_depth(edges: Floats, counts: Floats, buckets: int) -> Floats:
    """Edges with about as much between each two, one half among them, (buckets + 1,).

    Parameters
    ----------
    edges, counts
        what is known, the counts noisy
    """
    inner = _scale(np.arange(1, buckets) / buckets, edges, counts)
    distinct = np.unique(np.concatenate([[0.0, 0.5, 1.0], np.round(inner, 9)]))
    while len(distinct) < buckets + 1:  # equal ones: halve the widest
        widest = int(np.argmax(np.diff(distinct)))
        distinct = np.insert(distinct, widest + 1, (distinct[widest] + distinct[widest + 1]) / 2)
    while len(distinct) > buckets + 1:  # the one whose neighbours are closest, but not 1/2
        gaps = distinct[2:] - distinct[:-2]
        gaps[distinct[1:-1] == 0.5] = np.inf
        distinct = np.delete(distinct, int(np.argmin(gaps)) + 1)
    return distinct


def _scale(shares: Floats, edges: Floats, counts: Floats) -> Floats:
    """Return the scores below which these shares of all rows lie."""
    below = np.concatenate([[0.0], np.cumsum(np.maximum(counts, 0.0))])
    return np.asarray(np.interp(shares * max(below[-1], 1e-9), below, edges))


def _rows_in(release: ScoreRelease, nominal: float) -> float:
    """Return the number of rows: the public nominal one, unless the counts contradict it.

    Counts may be up to half lower because of clipping.
    """
    whole = [h for (_, group, _), h in release.histograms.items() if group == ""]
    counted = float(np.mean([h.counts.sum() for h in whole]))
    std = float(whole[0].noise_std(np.ones((2, whole[0].buckets))))
    likely = nominal / 2 - 3.0 * std <= counted <= nominal + 3.0 * std
    return nominal if likely else max(counted, 0.0)


def _shares(first: ScoreRelease, asked: ScoreCounts) -> Floats:
    """Return the expected counts of one row in the buckets of `asked`, (asked.counts,).

    Counts lose what makes them negative all alike (Norm-Sub, Wang et al. 2020): cut at 0, hundreds
    of noisy counts would tend to be equal. Between edges they are spread evenly in arcsin sqrt(s).
    """
    had = first.question
    size = math.prod(had.shape)
    views, groups, parts, _, buckets = had.shape
    by_part = np.moveaxis(first.counts[:size].reshape(had.shape), 2, 1)
    each = _as_shares(by_part.reshape(views, parts, -1)).reshape(-1, buckets)
    old, new = (np.arcsin(np.sqrt(e)) for e in (had.bucket_edges, asked.bucket_edges))
    below = np.concatenate([np.zeros((len(each), 1)), np.cumsum(each, axis=1)], axis=1)
    spread = np.stack([np.diff(np.interp(new, old, one)) for one in below])
    moved = np.moveaxis(spread.reshape(views, parts, groups, 2, -1), 1, 2)
    cells = first.counts[size:]
    return np.concatenate([moved.ravel(), _as_shares(cells) if len(cells) else cells])


def _as_shares(counts: Floats) -> Floats:
    """Return counts, which may be negative, as shares of their sum along the last axis."""
    solid = norm_sub(counts)
    return np.asarray(solid / np.maximum(solid.sum(axis=-1, keepdims=True), 1e-9))
