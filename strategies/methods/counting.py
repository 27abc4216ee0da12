"""Counts of rows by score: how they are asked for, and in which rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedcal import units
from fedcal.calibrators.histogram_binning import norm_sub
from fedcal.clients.questions.score_cell import ScoreCell
from fedcal.clients.questions.scores import ScoreCounts
from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats, override
from fedcal.evaluation import findings, score_release
from fedcal.mechanisms import (
    MECHANISMS,
    Gaussian,
    Laplace,
    Mechanism,
    NoiseDistribution,
    Target,
    Unary,
)
from fedcal.metrics import score_table
from fedcal.metrics.score_table import FLAT, PREFIX, TREE, arcsine_edges, column_norm, decoder_of
from fedcal.privacy import AUTO, SEED, Federation, Plan, Question, Range, Release
from fedcal.privacy.query import Order
from fedcal.trust import TRUSTS
from fedcal.units import UNITS, Example

if TYPE_CHECKING:
    from fedcal.strategies.methods.evaluate import EvaluationSettings


class Sums:
    """Counting strategy: sums of the clients' counts, in one round.

    Others (`Levels`, and those with a coarser first round) have the same attributes and methods.

    Attributes
    ----------
    question
        for the counts, as far as it is known beforehand
    opening
        the question that the plan is made for
    bound, mechanism
        of an answer to it
    rounds
        how often it asks
    counted
        what is counted once each; "" = as the question says
    """

    rounds: int = 1
    counted: findings.Counted | Literal[""] = ""

    def __init__(self, settings: EvaluationSettings) -> None:
        f = settings.federation
        self.question, part = settings.question, settings.question.part(f.unit)
        self.mechanism, self.last = _least_noise(settings, self.rounds)
        self.first_look(settings)
        # each row is in one node of a tail, which is drawn
        drawn = part == Example.per and self.last.tail_nodes
        asked = replace(self.last, seed=1) if drawn else self.last
        clips = (1.0,) if part == "client" else ()
        self.opening = self.last
        self.bound = asked.bound(part, clips, self.mechanism.order)

    def first_look(self, settings: EvaluationSettings) -> None:
        """Set what is asked before the last round."""

    def planned(self, plan: Plan) -> None:
        """Complete the questions by what follows from the plan."""

    def query(self, number: int) -> ScoreCounts:
        """Return the question of a round."""
        return self.last

    def questions(self) -> tuple[Question, ...]:
        """Declare what rounds may ask, before anything is learned; see `Method.questions`."""
        return (Question.like(self.last, (1, 1), seed=SEED),)

    def learn(
        self, release: Release, noise_distribution: NoiseDistribution
    ) -> score_release.ScoreRelease:
        """Return the counts known after a release with noise of this distribution."""
        asked = self.query(release.round)
        counts, std = asked.decode(release.values), float(release.std.max(initial=0.0))
        return score_release.ScoreRelease(
            asked, counts / asked.gain, std / asked.gain, noise_distribution
        )


class EdgesFirst(Sums):
    """A first look finds edges with about as many rows between each two."""

    rounds = 2
    _expected: Floats | float = 0.0
    nominal: float | None = None
    """Rows in all, as is publicly taken, where the last question is for what differs from the
    shares that the first one found."""

    @override
    def first_look(self, settings: EvaluationSettings) -> None:
        inner = 1.0 / (1.0 + np.exp(-np.linspace(-9.0, 9.0, settings.bins - 1)))
        self.first = replace(self.last, edges=np.concatenate([[0.0], inner, [1.0]]))  # in log-odds
        self.equi_depth = True

    @override
    def query(self, number: int) -> ScoreCounts:
        return self.first if number == 1 else self.last

    @override
    def questions(self) -> tuple[Question, ...]:
        asked, moving = self.last, {"seed": SEED}
        if self.equi_depth:
            moving["edges"] = Range(0.0, 1.0, asked.buckets + 1, asked.buckets + 1)
        if self.nominal is not None:
            moving["reference"] = Range(0.0, 1.0, asked.counts, asked.counts)
        first = Question.like(self.first, (1, 1), seed=SEED)
        return first, Question.like(asked, (2, 2), **moving)

    def learn(
        self, release: Release, noise_distribution: NoiseDistribution
    ) -> score_release.ScoreRelease:
        """Return the counts; a residual is added to the reference that it was computed from."""
        seen = super().learn(release, noise_distribution)
        if release.round == self.rounds:
            return replace(seen, counts=seen.counts + self._expected)
        if self.equi_depth:
            total = sum(h.counts.sum(axis=0) for h in seen.histograms.values())
            edges = equi_depth(self.first.bucket_edges, np.asarray(total), self.last.buckets)
            self.last = replace(self.last, edges=edges)
        if self.nominal is not None:
            shares = _shares(seen, self.last)
            self.last = replace(self.last, reference=shares)
            self._expected = _rows_in(seen, self.nominal) * shares
        return seen


FIRST, FIRST_L1, RESIDUAL = 0.5, 0.6, 2.2
"""Clips of a user's answers in units of one row's: of the first look in nominal rows m (L2 and L1
norm), of the residual in roots of m and of what the first look is off by. A residual clip of 0.88
would have half of the error; 2.2 cuts so little off that intervals hold what they say, also where
labels are dealt by Dirichlet(1). Chosen by looking at imdb-binary, 100 and 1,000 clients; measured
by `python -m experiments evaluation-intervals`."""

OFF = 0.3
"""Part of the first look's squared error that is expected in a client's residual."""


class Residuals(EdgesFirst):
    """Whole clients: a first look at shares, then what differs from them (a residual query).

    Both questions are in units of their clips: so one bound is right for both rounds. The first
    look is at few buckets: more would be noise, which a residual cannot do without.
    """

    @override
    def first_look(self, settings: EvaluationSettings) -> None:
        f, last = settings.federation, self.last
        rows = settings.nominal_rows("evaluate")
        self.equi_depth, self.nominal = settings.equi_depth, f.clients * rows
        few = min(8 if f.clients * f.epsilon < 300 else 16, last.buckets)
        first = replace(last, edges=arcsine_edges(few), encoding=FLAT, height=1, pad=0)
        first = replace(first, pad=sum(last.lengths()) - sum(first.lengths()))
        if self.mechanism.order == 1:
            clips = FIRST_L1 * rows, FIRST_L1 * rows
        else:
            # What a client differs by from what is expected of it, and what that itself is off by:
            # one count by its noise / clients.
            made = self.mechanism.calibrate(Target(f.epsilon, f.delta, 2))
            one = units.Bound((1,), (FIRST * rows * first.row_norm(self.mechanism.order),))
            off = float(made.std(made.scale(one, 1), 1.0, one).max()) / f.clients
            norm = math.sqrt(rows + OFF * math.prod(first.shape) * off**2)
            clips = FIRST * rows, RESIDUAL * norm
        first_norm, last_norm = (q.row_norm(self.mechanism.order) for q in (first, last))
        self.first = replace(first, gain=1 / (clips[0] * first_norm))
        self.last = replace(last, gain=1 / (clips[1] * last_norm))


class Levels:
    """Unary encoding: the node of one row of each client, a level of a tree in each round.

    Each round asks other clients.
    """

    mechanism = Unary
    counted: findings.Counted = "clients"

    def __init__(self, settings: EvaluationSettings) -> None:
        plain = settings.question
        height = settings.height or best_height(plain.buckets)
        self.question = replace(plain, encoding=TREE, height=height)
        self.rounds, self._seed = len(self.question.levels), 0
        self.opening = self.query(1)
        self.bound = self.opening.bound("client", (), self.mechanism.order)
        self._sums: dict[int, Floats] = {}
        self._variance = 0.0

    def planned(self, plan: Plan) -> None:
        """Take the numbers of clients that are asked, and the seed of their draws."""
        self._asked = np.array([len(plan.sample(k + 1)) for k in range(plan.rounds)])
        self._seed = plan.client_seed

    def query(self, number: int) -> ScoreCell:
        """Return the question for a node of the round's level."""
        q = self.question
        return ScoreCell(q.classes, q.edges, q.height, number - 1, self._seed, q.score)

    def questions(self) -> tuple[Question, ...]:
        """Return the questions for a node of each round's level, with any seed."""
        rounds = range(1, self.rounds + 1)
        return tuple(Question.like(self.query(n), (n, n), seed=SEED) for n in rounds)

    def learn(
        self, release: Release, noise_distribution: NoiseDistribution
    ) -> score_release.ScoreRelease:
        """Return least-squares counts once all levels are known, scaled to all clients."""
        level, q = release.round - 1, self.question
        more = float(self._asked.sum() / max(self._asked[level], 1))
        halves = release.values.reshape(2, -1)[:, self.query(release.round).nodes]
        self._sums[level] = halves * more
        self._variance = max(self._variance, float(release.std.max(initial=0.0) * more) ** 2)
        if len(self._sums) < self.rounds:
            return score_release.ScoreRelease(q, np.zeros(q.counts), known=False)
        decoder = score_table.decoder_of(q.encoding, q.buckets, q.height)
        nodes = np.concatenate([self._sums[k] for k in sorted(self._sums)], axis=1)
        counts = (nodes @ decoder.T).ravel()
        return score_release.ScoreRelease(q, counts, math.sqrt(self._variance), noise_distribution)


def choose_counting(settings: EvaluationSettings) -> Sums | Levels:
    """Return the strategy that collects these counts."""
    if encodes(settings.federation):
        return Levels(settings)
    if settings.hides_clients:
        return Residuals(settings)
    return EdgesFirst(settings) if settings.equi_depth else Sums(settings)


def excluded(plan: Plan) -> tuple[str, ...]:
    """Return the sources of error that no interval of a plan's metrics contains, in words."""
    sources = list[str]()
    clipped = plan.mechanism.answers in ("sum", "index")
    if clipped and plan.bound is not None and plan.bound.per == "client":
        sources.append("the bias of clipping a client's answer")
    if plan.federation.sampling_rate < 1:
        sources.append("the choice of the clients that were asked")
    return tuple(sources)


def equi_depth(edges: Floats, counts: Floats, buckets: int) -> Floats:
    """Edges with about as much between each two, one half among them, (buckets + 1,).

    Parameters
    ----------
    edges, counts
        what is known, the counts noisy
    """
    below = np.concatenate([[0.0], np.cumsum(np.maximum(counts, 0.0))])
    inner = np.interp(np.arange(1, buckets) / buckets * max(below[-1], 1e-9), below, edges)
    distinct = np.unique(np.concatenate([[0.0, 0.5, 1.0], np.round(inner, 9)]))
    while len(distinct) < buckets + 1:  # equal ones: halve the widest
        widest = int(np.argmax(np.diff(distinct)))
        distinct = np.insert(distinct, widest + 1, (distinct[widest] + distinct[widest + 1]) / 2)
    while len(distinct) > buckets + 1:  # the one whose neighbours are closest, but not 1/2
        gaps = distinct[2:] - distinct[:-2]
        gaps[distinct[1:-1] == 0.5] = np.inf
        distinct = np.delete(distinct, int(np.argmin(gaps)) + 1)
    return distinct


def _rows_in(release: score_release.ScoreRelease, nominal: float) -> float:
    """Return the number of rows: the public nominal one, unless the counts contradict it.

    Counts may be up to half lower because of clipping.
    """
    overall = [h for (_, group, _), h in release.histograms.items() if group == ""]
    counted = float(np.mean([h.counts.sum() for h in overall]))
    std = float(overall[0].noise_std(np.ones((2, overall[0].buckets))))
    likely = nominal / 2 - 3.0 * std <= counted <= nominal + 3.0 * std
    return nominal if likely else max(counted, 0.0)


def _shares(first: score_release.ScoreRelease, asked: ScoreCounts) -> Floats:
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


def encodes(federation: Federation) -> bool:
    """Return whether each client's answer is encoded bit by bit."""
    if not federation.private or federation.mechanism != AUTO:
        return federation.private and MECHANISMS[federation.mechanism].answers == "onehot"
    return TRUSTS[str(federation.trust)].accepts(Unary) and UNITS[federation.unit].by_client


def best_height(buckets: int) -> int:
    """Return the tree height with the least noise in prefix sums, if levels have own clients."""
    order = Unary.order

    def noise(height: int) -> float:
        one = column_norm(TREE, buckets, height, order)
        levels = len(score_table.tree_levels(buckets, height))
        return math.sqrt(levels) * prefix_std(TREE, buckets, height, order) / one

    return min(HEIGHTS, key=noise)


def _least_noise(settings: EvaluationSettings, rounds: int) -> tuple[type[Mechanism], ScoreCounts]:
    """Mechanism and encoding of the least noise in prefix sums, of those that the user allows."""
    federation, question = settings.federation, settings.question
    encoding, height = settings.encoding, settings.height
    if encoding not in (AUTO, TREE):
        settings.unused(f"encoding '{encoding}' has no levels", "height")
    names = (TREE,) if height else tuple(score_table.ENCODINGS) if encoding == AUTO else (encoding,)
    if not federation.private:
        settings.unused("without privacy there is no noise", "encoding", "height")
        return Laplace, question

    def weight(name: str, levels: int, norm: Order) -> float:
        asked = replace(question, encoding=name, height=levels)
        return asked.row_norm(norm) / column_norm(name, asked.buckets, levels, norm)

    order = None if federation.mechanism == AUTO else MECHANISMS[federation.mechanism].order
    mechanism: type[Mechanism] = Gaussian
    if UNITS[federation.unit].by_client and federation.delta > 0 and order != Laplace.order:
        name = PREFIX if encoding == AUTO and not height else names[0]
        levels = height or 1
    else:
        heights = (height,) if height else HEIGHTS
        of = (federation, question.buckets, rounds, names, heights, weight)
        mechanism, name, levels = quietest(*of)
    if mechanism.order != Laplace.order and name == TREE:  # nodes beside a tree are large in L2
        question = replace(question, edges=question.edges_read)
    return mechanism, replace(question, encoding=name, height=levels)


HEIGHTS = (1, 2, 3, 4)
"""Levels of trees that are tried."""


def quietest(
    federation: Federation,
    buckets: int,
    rounds: int,
    names: tuple[str, ...] = tuple(score_table.ENCODINGS),
    heights: tuple[int, ...] = HEIGHTS,
    weight: Callable[[str, int, Order], float] = lambda name, height, order: 1.0,
) -> tuple[type[Mechanism], str, int]:
    """Return mechanism, encoding and height with the least noise, of those that the user allows.

    Raises InputError if the user's mechanism does not go without delta.

    Parameters
    ----------
    buckets
        counts that are encoded together
    rounds
        releases
    names, heights
        encodings that are tried, and levels of trees
    weight
        norm of a row's answer over the largest of the encoding's columns
    """
    order = None if federation.mechanism == AUTO else MECHANISMS[federation.mechanism].order
    target = Target(federation.epsilon, federation.delta, rounds)
    best: tuple[float, type[Mechanism], str, int] | None = None
    for mechanism in (Laplace, Gaussian):
        if order not in (None, mechanism.order) or not (mechanism.pure or federation.delta > 0):
            continue
        made = mechanism.calibrate(target)
        for name in names:
            for height in heights if name == TREE else (1,):
                norms = (weight(name, height, mechanism.order),)
                bound = units.Bound((1,), norms, order=mechanism.order)
                noise = float(made.std(made.scale(bound, 1), 1.0, bound).max())
                noise *= prefix_std(name, buckets, height, mechanism.order)
                if best is None or noise < best[0]:
                    best = noise, mechanism, name, height
    if best is None:
        raise InputError(f"mechanism '{federation.mechanism}' needs delta > 0")
    return best[1:]


def prefix_std(name: str, buckets: int, height: int, order: Literal[1, 2]) -> float:
    """Return the root mean square noise of a prefix sum, per unit of noise std at sensitivity 1.

    Encodings are chosen by it: metrics at a threshold, and curves, are computed from prefix sums.
    """
    sums = np.cumsum(decoder_of(name, buckets, height), axis=0)
    norm = column_norm(name, buckets, height, order)
    return norm * float(np.sqrt(np.square(sums).sum(axis=1).mean()))
