"""The rounds in which counts by score are asked for: all at once, twice, or a level at a time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

import numpy as np

from fedcal.encodings import decoder_of, matrix_of
from fedcal.evaluation.histogram import NoiseLaw
from fedcal.evaluation.release import ScoreRelease
from fedcal.queries import Query, ScoreCell, ScoreCounts
from fedcal.release import Release
from fedcal.types import Floats, Integers


class ScoreRounds(ABC):
    """What is asked in each round, and what is known after it."""

    rounds: int

    @abstractmethod
    def query(self, number: int) -> Query:
        """The question of a round."""

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
    residual
        ask the second time for what differs from the shares that were found
    """

    first: ScoreCounts
    last: ScoreCounts
    equi_depth: bool
    residual: bool
    rounds: int = 2
    _seen: ScoreRelease | None = field(default=None, init=False)

    def query(self, number: int) -> ScoreCounts:
        """The first or the last question."""
        return self.first if number == 1 else self.last

    def learn(self, release: Release, law: NoiseLaw) -> ScoreRelease:
        """The counts; a residual is added to what it is the residual of."""
        seen = _read(self.query(release.round), release, law)
        if self._seen is None:
            self._seen = seen
            if self.equi_depth:
                whole = sum(h.counts.sum(axis=0) for h in seen.histograms.values())
                edges = equi_depth(self.first.bucket_edges, np.asarray(whole))
                self.last = replace(self.last, edges=edges)
            if self.residual:
                self.last = replace(self.last, reference=_shares(seen, self.last))
            return seen
        if self.residual:
            expected = max(_rows_in(self._seen), 0.0) * self.last.reference
            seen = replace(seen, counts=seen.counts + expected)
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


def equi_depth(edges: Floats, counts: Floats) -> Floats:
    """As many edges with about as much between each two, one half among them.

    Parameters
    ----------
    edges, counts
        (buckets + 1,) and (buckets,), the counts noisy
    """
    buckets = len(counts)
    below = np.concatenate([[0.0], np.cumsum(np.maximum(counts, 0.0))])
    total = max(below[-1], 1e-9)
    inner = np.interp(np.arange(1, buckets) / buckets * total, below, edges)
    kept = np.unique(np.concatenate([[0.0, 0.5, 1.0], np.round(inner, 9)]))
    while len(kept) < buckets + 1:  # equal ones: halve the widest
        widest = int(np.argmax(np.diff(kept)))
        kept = np.insert(kept, widest + 1, (kept[widest] + kept[widest + 1]) / 2)
    while len(kept) > buckets + 1:  # the one whose neighbours are closest, but not 1/2
        gaps = kept[2:] - kept[:-2]
        gaps[kept[1:-1] == 0.5] = np.inf
        kept = np.delete(kept, int(np.argmin(gaps)) + 1)
    return kept


def _rows_in(release: ScoreRelease) -> float:
    """How many rows were counted, by all histograms alike."""
    whole = [h.counts.sum() for (_, group, _), h in release.histograms.items() if group == ""]
    return float(np.mean(whole))


def _shares(first: ScoreRelease, asked: ScoreCounts) -> Floats:
    """Expected counts of one row in the buckets of `asked`, (asked.counts,)."""
    size = math.prod(asked.shape)
    old, new = first.question.bucket_edges, asked.bucket_edges
    halves = np.maximum(first.counts[:size], 0.0).reshape(-1, asked.buckets)
    below = np.concatenate([np.zeros((len(halves), 1)), np.cumsum(halves, axis=1)], axis=1)
    moved = np.stack([np.diff(np.interp(new, old, one)) for one in below])
    each = moved.reshape(asked.shape)
    each = each / np.maximum(each.sum(axis=(1, 3, 4), keepdims=True), 1e-9)
    rest = np.maximum(first.counts[size:], 0.0)
    return np.concatenate([each.ravel(), rest / max(_rows_in(first), 1.0)])
