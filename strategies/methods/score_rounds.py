"""The rounds in which counts by score are asked for: all at once, twice, or a level at a time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

import numpy as np

from fedcal.calibrators.fits.noisy_counts import norm_sub
from fedcal.core.types import Floats, Integers
from fedcal.evaluation.histogram import NoiseLaw
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Plan
from fedcal.queries import Query, ScoreCell, ScoreCounts
from fedcal.queries.declared import SEED, Question, Range
from fedcal.queries.encodings import decoder_of, matrix_of


def excluded(plan: Plan, *, new_clients: bool = False) -> tuple[str, ...]:
    """Return the sources of error that no interval of a plan's metrics contains, in words.

    `new_clients` : intervals are for new clients, and so contain the choice of clients.
    """
    found = list[str]()
    clipped = plan.law.answers in ("sum", "index")
    if clipped and plan.bound is not None and plan.bound.per == "client":
        found.append("the bias of clipping a client's answer")
    if plan.sampling_rate < 1 and not new_clients:
        found.append("the choice of the clients that were asked")
    return tuple(found)


class ScoreRounds(ABC):
    """What is asked in each round, and what is known after it."""

    rounds: int

    @abstractmethod
    def query(self, number: int) -> Query | None:
        """The question of a round; None where it follows from a release that is not there yet."""

    @abstractmethod
    def questions(self) -> tuple[Question, ...]:
        """Declare what rounds may ask, before anything is learned; see `Method.questions`."""

    @abstractmethod
    def learn(self, release: Release, law: NoiseLaw) -> ScoreRelease:
        """What is known after a release, with noise of this law."""


@dataclass
class AtOnce(ScoreRounds):
    """One round of counts."""

    question: ScoreCounts
    rounds: int = 1

    def query(self, number: int) -> ScoreCounts:
        """The counts."""
        return self.question

    def questions(self) -> tuple[Question, ...]:
        """The counts."""
        return (Question.like(self.question, (1, 1)),)

    def learn(self, release: Release, law: NoiseLaw) -> ScoreRelease:
        """The counts."""
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

    def query(self, number: int) -> ScoreCounts:
        """The first or the last question."""
        return self.first if number == 1 else self.last

    def questions(self) -> tuple[Question, ...]:
        """The first one; the last one between any edges, with any reference, where it has them."""
        asked, moving = self.last, dict[str, Range]()
        if self.equi_depth:
            moving["edges"] = Range(0.0, 1.0, asked.buckets + 1, asked.buckets + 1)
        if self.nominal is not None:
            moving["reference"] = Range(0.0, 1.0, asked.counts, asked.counts)
        return Question.like(self.first, (1, 1)), Question.like(asked, (2, 2), **moving)

    def learn(self, release: Release, law: NoiseLaw) -> ScoreRelease:
        """The counts; a residual is added to what it is the residual of."""
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
        """As many as levels."""
        return len(self.question.levels)

    def query(self, number: int) -> ScoreCell:
        """A node of the level."""
        q = self.question
        return ScoreCell(q.classes, q.edges, q.height, number - 1, self.seed, q.score)

    def questions(self) -> tuple[Question, ...]:
        """A node of each round's level, of any draw."""
        rounds = range(1, self.rounds + 1)
        return tuple(Question.like(self.query(n), (n, n), seed=SEED) for n in rounds)

    def learn(self, release: Release, law: NoiseLaw) -> ScoreRelease:
        """Counts by least squares from the levels that are known, for all clients."""
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
    kept = np.unique(np.concatenate([[0.0, 0.5, 1.0], np.round(inner, 9)]))
    while len(kept) < buckets + 1:  # equal ones: halve the widest
        widest = int(np.argmax(np.diff(kept)))
        kept = np.insert(kept, widest + 1, (kept[widest] + kept[widest + 1]) / 2)
    while len(kept) > buckets + 1:  # the one whose neighbours are closest, but not 1/2
        gaps = kept[2:] - kept[:-2]
        gaps[kept[1:-1] == 0.5] = np.inf
        kept = np.delete(kept, int(np.argmin(gaps)) + 1)
    return kept


def _scale(shares: Floats, edges: Floats, counts: Floats) -> Floats:
    """The scores below which these shares of all rows lie."""
    below = np.concatenate([[0.0], np.cumsum(np.maximum(counts, 0.0))])
    return np.asarray(np.interp(shares * max(below[-1], 1e-9), below, edges))


def _rows_in(release: ScoreRelease, nominal: float) -> float:
    """How many rows there are: as is publicly taken, unless counts say something else.

    Up to a half fewer they say for their clip, too.
    """
    whole = [h for (_, group, _), h in release.histograms.items() if group == ""]
    found = float(np.mean([h.counts.sum() for h in whole]))
    std = float(whole[0].noise_std(np.ones((2, whole[0].buckets))))
    likely = nominal / 2 - 3.0 * std <= found <= nominal + 3.0 * std
    return nominal if likely else max(found, 0.0)


def _shares(first: ScoreRelease, asked: ScoreCounts) -> Floats:
    """Expected counts of one row in the buckets of `asked`, (asked.counts,).

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
    ends = size + np.cumsum([had.confusion * had.classes**2] * views)
    cells = np.split(first.counts, [size, *ends])[1:]
    return np.concatenate([moved.ravel(), *(_as_shares(c) for c in cells if len(c))])


def _as_shares(counts: Floats) -> Floats:
    """Counts, which may be negative, as shares of their sum along the last axis."""
    solid = norm_sub(counts)
    return np.asarray(solid / np.maximum(solid.sum(axis=-1, keepdims=True), 1e-9))
