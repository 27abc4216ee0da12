"""How good is a model, and how well calibrated? One release of counts by score (Cormode & Markov).

Cormode & Markov, "Federated calibration and evaluation of binary classifiers": the metrics of a
classifier follow from the histograms of its scores on positive and on negative examples, whatever
the partition. Encodings for Gaussian noise, residual queries and groups are ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from fedcal.calibrators.as_text import text_of
from fedcal.core.checks import one_of, positive, unused, whole
from fedcal.core.errors import InputError
from fedcal.evaluation.estimators.metrics import edge_index
from fedcal.evaluation.histogram import Histogram, NoiseLaw
from fedcal.evaluation.intervals.clusters import ESTIMANDS, Estimand
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.weighting import Counted, counted_of, subject_rows
from fedcal.mechanisms import MECHANISMS, Gaussian, Laplace, Mechanism, Target, Unary
from fedcal.metrics.buckets import arcsine_edges, fine_tails
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import AUTO
from fedcal.privacy.noise_plan import Federation, make_plan
from fedcal.queries import Part, Query, ScoreCounts
from fedcal.queries.base import Order
from fedcal.queries.declared import Question
from fedcal.queries.encodings import (
    ENCODINGS,
    Flat,
    Prefix,
    Tree,
    column_norm,
    prefix_std,
    tree_levels,
)
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.methods.quantiles.encoding_choice import HEIGHTS, quietest
from fedcal.strategies.methods.score_rounds import (
    AtOnce,
    LevelByLevel,
    ScoreRounds,
    Twice,
    excluded,
    log_odds_edges,
)
from fedcal.strategies.methods.spread import ThenSpread, with_room
from fedcal.trust import TRUSTS
from fedcal.units import UNITS
from fedcal.units.bounding import Bound

Edges = Literal["fine-tails", "equal-width", "equi-depth"]

BUCKETS = 240
"""Their edges are those of 2, 3, 5, 8, 10, 12, 15, 16, 20, 24 and 30 bins, too."""


class FedEvaluate(FederatedStrategy):
    """Rows by score and outcome, counted once: every metric, curve and calibrator follows.

    Privacy: the federation's unit and trust. Public: the federation and all parameters.

    * Unit `example`, add/remove of one row: a row is a 1 in each of `ScoreCounts.ones` counts; what
      an encoding makes of that is the bound, and clips nothing.
    * Unit `subject`: each of a subject's m rows at a client counts min(1, R / m), R =
      `rows_per_subject`, so that together they add at most R times what one row may, which clips
      nothing. R = 1: each subject counts once. R > 1: rows do, and noise is R times as large.
    * Unit `user`, zero-out (replace under `local`): in two rounds. The first asks for counts, the
      second for what differs from m times the shares that the first found: rows of one client
      add up to m, their difference from what is expected of them to about the root of m (a
      residual query, ours). Each answer is clipped as a whole.
    * Unit `user`, trust `local` (and mechanism `unary`, unless another one is named): each client
      sends the node of one of its rows in one level of a tree of buckets, by optimal unary encoding
      (Wang et al. 2017); a round for each level, each of other clients (level sampling). No clip.
      Counts are of clients then, one row of each.

    Encoding and mechanism are those under which a prefix sum has the least noise: Gaussian noise on
    the Toeplitz square root of prefix sums, or Laplace noise on a tree.

    Parameters
    ----------
    federation
        public facts and budget
    score
        see `fedcal.metrics.buckets`; "" = positive for two classes, else confidence
    bins
        buckets of the score
    edges
        "fine-tails": of equal width, the first and the last bucket halved again and again towards
        its end, where the scores of good models crowd; "equal-width"; or "equi-depth": a first
        round finds edges with about as many rows between each two; half of the budget is for it
    encoding, height
        see `fedcal.queries.encodings`; "auto" and 0 = as said above
    other
        count a second model's scores beside the model's, too
    calibrator
        file of a calibrator: count also the model's scores after it
    groups
        JSON list of the names of groups that are counted apart
    confusion
        count predicted class by label, too
    threshold
        an edge: a row is predicted positive from this score on (score `positive`)
    estimand
        what intervals are for: new "rows" like these, each drawn by itself; "these" rows; or new
        "clients" like these: one more round then asks how much metrics vary from client to client
        (`fedcal.evaluation.intervals.clusters`), for its share of the budget. Of all rows and one
        model only
    rows_per_client
        m, the public nominal number of rows of a client; needed with privacy for unit `user`
    rows_per_subject
        R, of unit `subject`, with privacy or without: 1 (the default) = each subject counts once,
        whatever the number of its rows; more = each row counts once, all rows of a subject with
        more than R as R, for R times the noise
    """

    name, family = "evaluate", "evaluate"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"bins": 12},
        {"bins": 8, "edges": "equi-depth", "confusion": True},
        {"bins": 8, "estimand": "clients"},
    )

    def __init__(
        self,
        federation: Federation,
        *,
        score: str = "",
        bins: int = BUCKETS,
        edges: str = "fine-tails",
        encoding: str = "auto",
        height: int = 0,
        other: bool = False,
        calibrator: str = "",
        groups: str = "",
        confusion: bool = False,
        threshold: float = 0.5,
        estimand: str = "rows",
        rows_per_client: float | None = None,
        rows_per_subject: int | None = None,
        **base: Any,
    ) -> None:
        one_of("edges", edges, get_args(Edges))
        whole("bins", bins, 2)
        self._estimand: Estimand = one_of("estimand", estimand, ESTIMANDS)
        clusters = self._estimand == "clients"
        user = federation.private and UNITS[federation.unit].whole_client
        if other and calibrator:
            raise InputError("give other or calibrator, not both: two views are compared at most")
        unary = _encodes(federation)
        more: dict[str, Any] = {
            "other": other,
            "calibrator": calibrator,
            "groups": groups,
            "confusion": confusion,
        }
        if unary:
            _refuse(
                "unary encoding hides one cell of a row, in a tree of buckets that are known",
                **more,
                encoding=encoding != AUTO,
                edges=edges == "equi-depth",
                estimand=clusters,
            )
        if clusters:
            _refuse(
                "estimand 'clients' is for all rows of one model, one score of each",
                **more,
                score=score == "classes",
            )
            if federation.clients < 2:
                raise InputError("estimand 'clients' needs 2 clients at least")
        if user and not unary and rows_per_client is None:
            raise InputError(
                "evaluate with unit 'user' needs rows_per_client, a public nominal number of rows "
                "> 0"
            )
        limit = subject_rows(federation.unit, rows_per_subject)
        fine = edges == get_args(Edges)[0]
        question = ScoreCounts(
            classes=federation.classes,
            edges=fine_tails(bins) if fine else np.array([float(bins)]),
            score=score,
            views="model,other" if other else "model,calibrated" if calibrator else "model",
            groups=groups,
            confusion=confusion,
            calibrator=text_of(calibrator, federation.classes) if calibrator else "",
            subject_rows=limit,
        )
        _check_threshold(threshold, question, edges)
        self._threshold = threshold
        part: Part = question.part(federation.unit)
        if unary:
            question = replace(
                question, encoding=Tree.name, height=height or best_height(question.buckets)
            )
            levels = len(question.levels)
            levelled = LevelByLevel(question, np.ones(levels, np.int64), 0)
            self._ways: ScoreRounds = levelled
            law: type[Mechanism] = Unary
            opening: Query = levelled.query(1)
            bound = opening.bound("client", (), law.order)
        else:
            equi = edges == "equi-depth"
            rounds = 1 + (equi or user) + clusters
            law, last = _least_noise(federation, question, rounds, encoding, height)
            last = with_room(last) if clusters else last
            self._ways = AtOnce(last)
            if user:
                rows = positive("rows_per_client", rows_per_client)
                first, last = _in_clips(federation, last, law, rows)
                self._ways = Twice(first, last, equi, federation.clients * rows)
            elif equi:
                self._ways = Twice(replace(last, edges=log_odds_edges(bins)), last, equi)
            opening = last
            bound = last.bound(part, (1.0,) if part == "client" else (), law.order)
            if clusters:
                row = bound.norms[0] / max(limit, 1) if federation.private and not user else None
                asked = federation.clients * federation.sampling_rate
                self._ways = ThenSpread(
                    self._ways, last, threshold, asked, row, law.order, rows_per_client
                )
        if federation.rounds not in (None, self._ways.rounds):
            raise InputError(
                f"evaluate asks {self._ways.rounds} times here: rounds = {federation.rounds}"
            )
        plan = make_plan(
            federation,
            rounds=self._ways.rounds,
            bound=bound,
            prefers=(law,),
            row_sums=opening.row_sums,
            asked_once=opening.asked_once,
        )
        if unary:
            parts = [len(plan.sample(k + 1)) for k in range(plan.rounds)]
            self._ways = LevelByLevel(question, np.array(parts), plan.client_seed)
        elif user and isinstance(self._ways, ThenSpread):
            self._ways.noise = max(plan.noise_std or (0.0,))
        self._nothing = ScoreRelease(question, np.zeros(question.counts), known=False)
        self._counted: Counted = "clients" if unary else counted_of(limit)
        self._read, self._over = self._nothing, False
        super().__init__(plan, **base)

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """For the clips of unit `user`; what unary encoding hides needs none."""
        return not _encodes(federation) and super().needs_rows(federation, settings)

    def query(self, round_number: int) -> Query | None:
        """Counts; see `score_rounds`. None once a round was unanswered: all are needed."""
        return None if self._over else self._ways.query(round_number)

    def questions(self) -> tuple[Question, ...]:
        """As `score_rounds` says."""
        return self._ways.questions()

    def update(self, release: Release) -> None:
        """Read counts."""
        law: NoiseLaw = "double-exponential" if self.plan.tailed else "normal"
        self._over = self._over or self.plan.unanswered(release.std)
        self._read = self._nothing if self._over else self._ways.learn(release, law)

    def result(self) -> ScoreRelease:
        """What is known so far."""
        return replace(
            self._read,
            threshold=self._threshold,
            estimand=self._estimand,
            unit=self.plan.unit if self.plan.private else "",
            counted=self._counted,
            excluded=excluded(self.plan, new_clients=self._estimand == "clients"),
            exact=not self.plan.private,
        )


FIRST, FIRST_L1, RESIDUAL = 0.5, 0.6, 2.2
"""Clips of a user's answers in units of one row's: of the first look in nominal rows m (L2 and L1
norm), of the residual in roots of m and of what the first look is off by. A residual clip of 0.88
would have half of the error; 2.2 cuts so little off that intervals hold what they say, also where
labels are dealt by Dirichlet(1). Chosen by looking at imdb-binary, 100 and 1,000 clients; measured
by `fedcal reproduce evaluation-intervals`."""

OFF = 0.3
"""Part of the first look's squared error that is expected in a client's residual."""


def _refuse(why: str, **asked: Any) -> None:
    """NoEffect for the first of these that is asked for."""
    unused(why, **{name: value or None for name, value in asked.items()})


def _in_clips(
    federation: Federation, last: ScoreCounts, law: type[Mechanism], rows: float
) -> tuple[ScoreCounts, ScoreCounts]:
    """Both questions to users, in units of their clips: so one bound is right for both rounds.

    The first look is at few buckets: more would be noise, which a residual cannot do without.
    """
    few = 8 if federation.clients * federation.epsilon < 300 else 16
    first = replace(last, edges=arcsine_edges(few), encoding=Flat.name, height=1, pad=0)
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


def _check_threshold(threshold: float, question: ScoreCounts, edges: str) -> None:
    """Refuse, before anything is asked, one that metrics could not be read at."""
    if question.score != "positive":
        given = None if threshold == 0.5 else threshold
        unused(f"the score '{question.score}' has no threshold", threshold=given)
    elif edges != "equi-depth":
        if threshold == 0.5 and 0.5 not in question.bucket_edges:
            raise InputError("bins must be even, so that the threshold 0.5 is an edge of two")
        nothing = np.zeros((2, question.buckets))
        edge_index(Histogram.exact(question.bucket_edges, nothing), threshold)
    elif threshold != 0.5:
        raise InputError("of equi-depth edges only 0.5 is known beforehand: threshold must be 0.5")


def _encodes(federation: Federation) -> bool:
    """Whether each client's answer is encoded bit by bit."""
    asked, trust = federation.mechanism, TRUSTS[str(federation.trust)]
    if not federation.private:
        return False
    if asked != AUTO:
        return MECHANISMS[asked].answers == "onehot"
    return trust.takes(Unary) and UNITS[federation.unit].whole_client


def best_height(buckets: int) -> int:
    """Levels under which prefix sums have the least noise, if each is asked of other clients."""
    law = Unary.order

    def noise(height: int) -> float:
        one = column_norm(Tree.name, buckets, height, law)
        levels = len(tree_levels(buckets, height))
        return math.sqrt(levels) * prefix_std(Tree.name, buckets, height, law) / one

    return min(HEIGHTS, key=noise)


def _least_noise(
    federation: Federation, question: ScoreCounts, rounds: int, encoding: str, height: int
) -> tuple[type[Mechanism], ScoreCounts]:
    """Mechanism and encoding of the least noise in prefix sums, of those that the user allows."""
    one_of("encoding", encoding, (AUTO, *ENCODINGS))
    if height and encoding not in (AUTO, Tree.name):
        raise InputError(f"height = {height} is of encoding 'tree', not of '{encoding}'")
    names = (Tree.name,) if height else tuple(ENCODINGS) if encoding == AUTO else (encoding,)
    if not federation.private:
        for name, value, unset in (("encoding", encoding, AUTO), ("height", height, 0)):
            if value != unset:
                raise InputError(f"{name} has no effect without privacy: nothing is noisy")
        return Laplace, question
    order = None if federation.mechanism == AUTO else MECHANISMS[federation.mechanism].order
    if UNITS[federation.unit].whole_client and federation.delta > 0 and order != Laplace.order:
        name = Prefix.name if encoding == AUTO and not height else names[0]
        return Gaussian, replace(question, encoding=name, height=height or 1)

    def weight(name: str, levels: int, norm: Order) -> float:
        asked = replace(question, encoding=name, height=levels)
        return asked.row_norm(norm) / column_norm(name, asked.buckets, levels, norm)

    heights = (height,) if height else HEIGHTS
    law, name, levels = quietest(federation, question.buckets, rounds, names, heights, weight)
    return law, replace(question, encoding=name, height=levels)
