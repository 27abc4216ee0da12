"""A last round that asks how much metrics vary from client to client."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from fedcal.core.types import Floats, override
from fedcal.evaluation.intervals.clusters import (
    MEASURED,
    influences,
    variance_of_folds,
    variance_of_squares,
)
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.mechanisms import NoiseLaw
from fedcal.privacy.curator import Release
from fedcal.queries import Query, ScoreCounts, ScoreSpread, ScoreSquares
from fedcal.queries.base import Order
from fedcal.queries.declared import Question, Range
from fedcal.queries.evaluation import ROOM
from fedcal.strategies.methods.score_rounds import ScoreRounds
from fedcal.units.bounding import SLACK

LEAST_CLIP = 4.0
"""Of a client's squares (their norm over the root of how many there are), in squares of a client of
independent rows: a client of 4 times their variance is not clipped on average."""

SMALL = 0.25
"""Noise std of the variance, in variances of independent rows, up to which the clip is widened:
clients that differ much would be clipped."""


@dataclass
class ThenSpread(ScoreRounds):
    """Rounds of counts, followed by sums of influences in folds, or their squares.

    Attributes
    ----------
    ways
        rounds of counts
    question
        the last one of these: for all rows of one model
    threshold
        of predictions
    clients
        how many answer, as is publicly expected
    row
        what the answer of one row is bounded to; None = whole clients are protected, or nobody
    order
        of norms
    rows
        nominal rows of a client; None = as counted
    noise
        std of a released sum, in clips of one client; 0 without privacy
    """

    ways: ScoreRounds
    question: ScoreCounts
    threshold: float
    clients: float
    row: float | None
    order: Order
    rows: float | None
    noise: float = 0.0
    _asked: ScoreSpread | None = field(default=None, init=False)
    _scales: Floats = field(default_factory=lambda: np.zeros(0), init=False)
    _counted: ScoreRelease | None = field(default=None, init=False)

    @property
    @override
    def rounds(self) -> int:  # type: ignore[override]
        return self.ways.rounds + 1

    def query(self, number: int) -> Query | None:
        """Return a question for counts; at the end one for their variation over clients."""
        return self.ways.query(number) if number <= self.ways.rounds else self._asked

    def questions(self) -> tuple[Question, ...]:
        """Return the questions for counts, then one with any weights of the last buckets."""
        counted = self.ways.questions()
        score, buckets = self.question.score, len(self.question.edges_read) - 1
        weights = np.zeros(len(MEASURED[score]) * 2 * buckets)
        moving = {"weights": Range()}
        if "edges" in counted[-1].moving:
            moving["edges"] = counted[-1].moving["edges"]
        spread, last = self._spread(self.question.edges_read, weights), (self.rounds, self.rounds)
        return *counted, Question.like(spread, last, **moving)

    def _spread(self, edges: Floats, weights: Floats) -> ScoreSpread:
        """Return the last question: sums in folds if row parts are bounded, else squares."""
        kind = ScoreSquares if self.row is None else ScoreSpread
        q = self.question
        asked = kind(q.classes, edges, weights, q.score, subject_rows=q.subject_rows)
        return replace(asked, pad=sum(self.question.lengths()) - sum(asked.lengths()))

    def learn(self, release: Release, law: NoiseLaw) -> ScoreRelease:
        """Return the counts, or their variance over clients."""
        if release.round <= self.ways.rounds:
            self._counted = self.ways.learn(release, law)
            if release.round == self.ways.rounds:
                self._ask(self._counted)
            return self._counted
        seen, asked = self._counted, self._asked
        if seen is None or asked is None:
            raise RuntimeError("the spread was released before the counts")
        std = float(release.std.max(initial=0.0))
        metrics = len(self._scales)
        answers = release.values[: metrics * asked.folds].reshape(asked.folds, metrics)
        if asked.folds > 1:
            estimated = variance_of_folds(answers, std, law, self.clients)
        else:
            estimated = variance_of_squares(answers[0], std, self.clients)
        names = MEASURED[asked.score]
        known = {
            name: float(scale**2 * max(variance, 0.0))
            for name, scale, variance in zip(names, self._scales, estimated, strict=True)
            if scale > 0
        }
        return replace(seen, spread=known)

    def _ask(self, seen: ScoreRelease) -> None:
        """Make the question of the counts, and keep what undoes its units."""
        h = seen.histograms["model", "", ""]
        asked = seen.question
        psi = influences(h, asked.score, self.threshold).reshape(len(MEASURED[asked.score]), -1)
        if self.row is not None:  # the largest influence of a metric is 1, the bound's of a row
            unit = np.abs(psi).max(axis=1)
            weights = psi / np.where(unit > 0, unit, 1.0)[:, None]
            most = float(np.linalg.norm(weights, self.order, axis=0).max())
            factor = self.row * (1.0 - SLACK) / ROOM / max(most, 1e-9)
        else:  # a client of independent rows has a square of 1
            counts = np.maximum(h.counts.ravel(), 0.0)
            rows = max(float(h.counts.sum()) / self.clients if self.rows is None else self.rows, 1)
            unit = np.sqrt((psi**2 @ counts) / max(float(counts.sum()), 1e-9) * rows)
            weights = psi / np.where(unit > 0, unit, 1.0)[:, None]
            factor = 1.0
            if self.noise:
                widest = SMALL * self.clients / self.noise
                several = len(psi) if self.order == 1 else math.sqrt(len(psi))
                factor = 1.0 / math.sqrt(max(LEAST_CLIP * several, widest))
        self._scales = unit / factor
        self._asked = self._spread(asked.edges_read, (weights * factor).ravel())


def with_room(question: ScoreCounts) -> ScoreCounts:
    """Return the question, with its answer padded to the length of the last round's."""
    numbers = len(MEASURED[question.score]) * ScoreSpread.folds
    return replace(question, pad=max(0, numbers - sum(question.lengths())))
