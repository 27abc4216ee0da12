"""Ways of asking for counts by score: one class each, and one table that chooses."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from fedcal.calibrators.base import text_of
from fedcal.clients.questions import ScoreCounts
from fedcal.core.checks import listed, one_of, unused, whole
from fedcal.core.errors import InputError
from fedcal.core.removed import check_kept
from fedcal.core.types import Floats, override
from fedcal.evaluation.estimators.metrics import edge_index
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.weighting import ESTIMANDS, Counted, Estimand, subject_rows
from fedcal.mechanisms import MECHANISMS, Gaussian, Laplace, Mechanism, Target, Unary
from fedcal.metrics.buckets import arcsine_edges, fine_tails
from fedcal.metrics.encodings import (
    ENCODINGS,
    FLAT,
    PREFIX,
    TREE,
    column_norm,
    prefix_std,
    tree_levels,
)
from fedcal.metrics.score_table import By, names_text
from fedcal.privacy.federation import AUTO, Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.query import Order, Part, Query
from fedcal.strategies.method import nominal_rows
from fedcal.strategies.methods.quantiles.noisy import HEIGHTS, quietest
from fedcal.strategies.methods.score_rounds import (
    AtOnce,
    LevelByLevel,
    ScoreRounds,
    Twice,
    log_odds_edges,
)
from fedcal.trust import TRUSTS
from fedcal.units import UNITS, Example
from fedcal.units.bounding import Bound

Edges = Literal["fine-tails", "equal-width", "equi-depth"]

BUCKETS = 240
"""Their edges are those of 2, 3, 5, 8, 10, 12, 15, 16, 20, 24 and 30 bins, too."""


@dataclass(frozen=True)
class Counting:
    """Settings of an evaluation's counts, independent of how they are collected.

    Attributes
    ----------
    federation
        public facts and budget
    others
        see `fedcal.strategies.methods.accuracy.FedEvaluate`
    """

    federation: Federation
    _: KW_ONLY
    only: str = ""
    score: str = ""
    bins: int = BUCKETS
    edges: Edges = "fine-tails"
    encoding: str = AUTO
    height: int = 0
    other: bool = False
    calibrator: str = ""
    groups: Sequence[str] = ()
    by: By = "group"
    within: Sequence[str] = ()
    cuts: Sequence[float] = ()
    threshold: float = 0.5
    estimand: str = "rows"
    rows_per_client: float | None = None
    rows_per_subject: int | None = None

    @property
    def named_estimand(self) -> Estimand:
        """Estimand of the intervals, checked."""
        check_kept(f"estimand={self.estimand}")
        return one_of("estimand", self.estimand, ESTIMANDS)

    @property
    def equi_depth(self) -> bool:
        """True if a first round finds the edges."""
        return self.edges == "equi-depth"

    @property
    def user(self) -> bool:
        """True if whole clients are protected."""
        return self.federation.private and UNITS[self.federation.unit].whole_client

    @cached_property
    def question(self) -> ScoreCounts:
        """The counts, not encoded."""
        f, fine = self.federation, self.edges == "fine-tails"
        return ScoreCounts(
            classes=f.classes,
            edges=own_edges(self.cuts)
            if len(self.cuts)
            else fine_tails(self.bins, nodes=self.score != "classes" and not encodes(f))
            if fine
            else np.array([float(self.bins)]),
            score=self.score,
            views="model,other"
            if self.other
            else "model,calibrated"
            if self.calibrator
            else "model",
            groups=names_text(self.groups),
            by=one_of("by", self.by, get_args(By)),
            within=names_text(self.within),
            calibrator=text_of(self.calibrator, f.classes) if self.calibrator else "",
            subject_rows=subject_rows(f.unit, self.rows_per_subject),
        )

    def check(self) -> None:
        """InputError for settings that are not allowed, or do not go together."""
        unused("FedAccuracy asks for one metric", only=self.only or None)
        one_of("edges", self.edges, get_args(Edges))
        whole("bins", self.bins, 2)
        if len(self.cuts):
            changed = {"edges": self.edges != "fine-tails", "bins": self.bins != BUCKETS}
            self._refuse("cuts are the edges of the buckets", **changed)
        _ = self.named_estimand
        if self.other and self.calibrator:
            raise InputError("give other or calibrator, not both: two views are compared at most")
        unary = encodes(self.federation)
        more = {name: getattr(self, name) for name in _MORE}
        if unary:
            self._refuse(
                "unary encoding hides one cell of a row, in a tree of buckets that are known",
                **more,
                encoding=self.encoding != AUTO,
                edges=self.equi_depth,
            )
        if self.user and not unary:
            nominal_rows("evaluate with unit 'user'", self.rows_per_client)
        self._check_threshold()

    @staticmethod
    def _refuse(why: str, **asked: Any) -> None:
        """NoEffect for the first of these that is asked for."""
        unused(why, **{name: value or None for name, value in asked.items()})

    def _check_threshold(self) -> None:
        """Refuse, before anything is asked, one that metrics could not be read at."""
        question, threshold = self.question, self.threshold
        if question.score != "positive":
            own = None if threshold == 0.5 else threshold
            unused(f"the score '{question.score}' has no threshold", threshold=own)
        elif not self.equi_depth:
            if threshold == 0.5 and 0.5 not in question.bucket_edges:
                raise InputError("bins must be even, so that the threshold 0.5 is an edge of two")
            edges = question.edges_read
            edge_index(Histogram.exact(edges, np.zeros((2, len(edges) - 1))), threshold)
        elif threshold != 0.5:
            raise InputError(
                "of equi-depth edges only 0.5 is known beforehand: threshold must be 0.5"
            )


def own_edges(cuts: Any) -> Floats:
    """Edges from 0 to 1 with these between, (cuts + 2,); a list or its JSON text."""
    inner = listed("cuts", cuts, "numbers")
    if not all(isinstance(at, (int, float)) and 0 < at < 1 for at in inner):
        raise InputError(f"cuts must be numbers between 0 and 1, got {str(cuts)[:80]}")
    return np.array([0.0, *inner, 1.0])


_MORE = ("other", "calibrator", "groups")
"""Settings that count more than the scores of one model and all rows."""


class Way(ABC):
    """A way of asking for counts.

    Attributes
    ----------
    question
        for the counts, as far as it is known beforehand
    opening
        the question that the plan is made for
    bound, law
        of an answer to it; the mechanism
    rounds
        what is asked in each round
    counted
        what is counted once each; "" = as the question says
    """

    question: ScoreCounts
    opening: Query
    bound: Bound
    law: type[Mechanism]
    rounds: ScoreRounds
    counted: Counted | Literal[""] = ""

    @classmethod
    @abstractmethod
    def serves(cls, wanted: Counting) -> bool:
        """Return whether this way can collect such counts."""

    @abstractmethod
    def __init__(self, wanted: Counting) -> None: ...

    def planned(self, plan: Plan) -> ScoreRounds:
        """Return the rounds, completed by what follows from the plan."""
        return self.rounds


class Levels(Way):
    """Unary encoding: the node of one row of each client, a level of a tree in each round."""

    law, counted = Unary, "clients"

    @classmethod
    @override
    def serves(cls, wanted: Counting) -> bool:
        return encodes(wanted.federation)

    def __init__(self, wanted: Counting) -> None:
        plain = wanted.question
        height = wanted.height or best_height(plain.buckets)
        self.question = replace(plain, encoding=TREE, height=height)
        nobody = np.ones(len(self.question.levels), np.int64)
        self.rounds = LevelByLevel(self.question, nobody, 0)
        self.opening = self.rounds.query(1)
        self.bound = self.opening.bound("client", (), self.law.order)

    def planned(self, plan: Plan) -> ScoreRounds:
        """Return the rounds, with the number of clients in each."""
        parts = [len(plan.sample(k + 1)) for k in range(plan.rounds)]
        return LevelByLevel(self.question, np.array(parts), plan.client_seed)


class Sums(Way):
    """Sums of the clients' counts, once; the other ways look at less before."""

    looks: ClassVar[int] = 1

    @classmethod
    @override
    def serves(cls, wanted: Counting) -> bool:
        return True

    def __init__(self, wanted: Counting) -> None:
        f = wanted.federation
        self.question, part = wanted.question, wanted.question.part(f.unit)
        self.law, last = _least_noise(f, self.question, self.looks, wanted.encoding, wanted.height)
        self.rounds, last = self.asked(wanted, last)
        clips = (1.0,) if part == "client" else ()
        self.opening, self.bound = last, drawn(last, part).bound(part, clips, self.law.order)

    def asked(self, wanted: Counting, last: ScoreCounts) -> tuple[ScoreRounds, ScoreCounts]:
        """Return the rounds of counts, and the last of their questions."""
        return AtOnce(last), last


def drawn(question: ScoreCounts, part: Part) -> ScoreCounts:
    """Return the question as it is asked of rows: each in one node of a tail, which is drawn."""
    return replace(question, seed=1) if part == Example.per and question.tail_nodes else question


class EdgesFirst(Sums):
    """A first look finds edges with about as many rows between each two."""

    looks = 2

    @classmethod
    @override
    def serves(cls, wanted: Counting) -> bool:
        return wanted.equi_depth

    def asked(self, wanted: Counting, last: ScoreCounts) -> tuple[ScoreRounds, ScoreCounts]:
        """Return the rounds: counts by log-odds, then between the edges found."""
        return Twice(replace(last, edges=log_odds_edges(wanted.bins)), last, equi_depth=True), last


class Residuals(Sums):
    """Whole clients: a first look at shares, then what differs from them (a residual query)."""

    looks = 2

    @classmethod
    @override
    def serves(cls, wanted: Counting) -> bool:
        return wanted.user

    def asked(self, wanted: Counting, last: ScoreCounts) -> tuple[ScoreRounds, ScoreCounts]:
        """Both questions in units of their clips."""
        rows = nominal_rows("evaluate", wanted.rows_per_client)
        first, last = _in_clips(wanted.federation, last, self.law, rows)
        nominal = wanted.federation.clients * rows
        return Twice(first, last, wanted.equi_depth, nominal), last


WAYS: tuple[type[Way], ...] = (Levels, Residuals, EdgesFirst, Sums)
"""Ways of asking: the first that serves is taken."""


def way_of(wanted: Counting) -> Way:
    """Return the way to collect these counts."""
    return next(way for way in WAYS if way.serves(wanted))(wanted)


FIRST, FIRST_L1, RESIDUAL = 0.5, 0.6, 2.2
"""Clips of a user's answers in units of one row's: of the first look in nominal rows m (L2 and L1
norm), of the residual in roots of m and of what the first look is off by. A residual clip of 0.88
would have half of the error; 2.2 cuts so little off that intervals hold what they say, also where
labels are dealt by Dirichlet(1). Chosen by looking at imdb-binary, 100 and 1,000 clients; measured
by `fedcal reproduce evaluation-intervals`."""

OFF = 0.3
"""Part of the first look's squared error that is expected in a client's residual."""


def _in_clips(
    federation: Federation, last: ScoreCounts, law: type[Mechanism], rows: float
) -> tuple[ScoreCounts, ScoreCounts]:
    """Both questions to users, in units of their clips: so one bound is right for both rounds.

    The first look is at few buckets: more would be noise, which a residual cannot do without.
    """
    few = min(8 if federation.clients * federation.epsilon < 300 else 16, last.buckets)
    first = replace(last, edges=arcsine_edges(few), encoding=FLAT, height=1, pad=0)
    first = replace(first, pad=sum(last.lengths()) - sum(first.lengths()))
    if law.order == 1:
        clips = FIRST_L1 * rows, FIRST_L1 * rows
    else:
        # What a client differs by from what is expected of it, and what that itself is off by: one
        # count by its noise / clients.
        made = law.calibrate(Target(federation.epsilon, federation.delta, 2))
        one = Bound((1,), (FIRST * rows * first.row_norm(law.order),))
        off = float(made.std(made.scale(one, 1), 1.0, one).max()) / federation.clients
        norm = math.sqrt(rows + OFF * math.prod(first.shape) * off**2)
        clips = FIRST * rows, RESIDUAL * norm
    first = replace(first, gain=1 / (clips[0] * first.row_norm(law.order)))
    return first, replace(last, gain=1 / (clips[1] * last.row_norm(law.order)))


def encodes(federation: Federation) -> bool:
    """Return whether each client's answer is encoded bit by bit."""
    asked, trust = federation.mechanism, TRUSTS[str(federation.trust)]
    if not federation.private:
        return False
    if asked != AUTO:
        return MECHANISMS[asked].answers == "onehot"
    return trust.accepts(Unary) and UNITS[federation.unit].whole_client


def best_height(buckets: int) -> int:
    """Return the tree height with the least noise in prefix sums, if levels have own clients."""
    law = Unary.order

    def noise(height: int) -> float:
        one = column_norm(TREE, buckets, height, law)
        levels = len(tree_levels(buckets, height))
        return math.sqrt(levels) * prefix_std(TREE, buckets, height, law) / one

    return min(HEIGHTS, key=noise)


def _least_noise(
    federation: Federation, question: ScoreCounts, rounds: int, encoding: str, height: int
) -> tuple[type[Mechanism], ScoreCounts]:
    """Mechanism and encoding of the least noise in prefix sums, of those that the user allows."""
    one_of("encoding", encoding, (AUTO, *ENCODINGS))
    if height and encoding not in (AUTO, TREE):
        raise InputError(f"height = {height} is for encoding 'tree', not for '{encoding}'")
    names = (TREE,) if height else tuple(ENCODINGS) if encoding == AUTO else (encoding,)
    if not federation.private:
        for name, value, unset in (("encoding", encoding, AUTO), ("height", height, 0)):
            if value != unset:
                raise InputError(f"{name} has no effect without privacy and noise")
        return Laplace, question

    def weight(name: str, levels: int, norm: Order) -> float:
        asked = replace(question, encoding=name, height=levels)
        return asked.row_norm(norm) / column_norm(name, asked.buckets, levels, norm)

    order = None if federation.mechanism == AUTO else MECHANISMS[federation.mechanism].order
    law: type[Mechanism] = Gaussian
    if UNITS[federation.unit].whole_client and federation.delta > 0 and order != Laplace.order:
        name = PREFIX if encoding == AUTO and not height else names[0]
        levels = height or 1
    else:
        heights = (height,) if height else HEIGHTS
        law, name, levels = quietest(federation, question.buckets, rounds, names, heights, weight)
    if law.order != Laplace.order and name == TREE:  # nodes beside a tree are large in L2
        question = replace(question, edges=question.edges_read)
    return law, replace(question, encoding=name, height=levels)
