"""Metrics and calibration of a model from one release of counts by score (Cormode & Markov).

Cormode & Markov, "Federated calibration and evaluation of binary classifiers": the metrics of a
classifier follow from the histograms of its scores on positive and on negative examples, whatever
the partition. Encodings for Gaussian noise, residual queries and groups are ours.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedcal.calibrators.base import text_of
from fedcal.clients.questions.scores import ScoreCounts
from fedcal.core import checks, options
from fedcal.core.checks import InputError
from fedcal.core.numerics import override
from fedcal.core.options import Positive
from fedcal.evaluation import findings, score_release
from fedcal.evaluation.estimators.metrics import edge_index
from fedcal.metrics import histogram, score_table
from fedcal.privacy import AUTO, Federation, Plan, Query, Question, Release
from fedcal.strategies import base
from fedcal.strategies.base import FederatedStrategy, Names, Settings
from fedcal.strategies.methods.counting import choose_counting, encodes, excluded

Edges = Literal["fine-tails", "equal-width", "equi-depth"]

BUCKETS = 240
"""Their edges are those of 2, 3, 5, 8, 10, 12, 15, 16, 20, 24 and 30 bins, too."""


class EvaluationSettings(Settings):
    """Settings of an evaluation, independent of how counts are collected; see `FedEvaluate`."""

    score: str = ""
    bins: Annotated[int, base.integer(2)] = BUCKETS
    edges: Edges = "fine-tails"
    encoding: Annotated[str, base.among((AUTO, *score_table.ENCODINGS))] = AUTO
    height: Annotated[int, base.integer(0)] = 0
    other: bool = False
    calibrator: str = ""
    groups: Names = ()
    by: score_table.By = "group"
    within: Names = ()
    cuts: base.Numbers = ()
    threshold: options.Finite = 0.5
    rows_per_client: Positive | None = None
    rows_per_subject: base.Count | None = None

    @property
    def equi_depth(self) -> bool:
        """True if a first round finds the edges."""
        return self.edges == "equi-depth"

    @cached_property
    def question(self) -> ScoreCounts:
        """The counts, not encoded."""
        f, edges = self.federation, np.array([float(self.bins)])
        two: score_table.Views = "model,other" if self.other else "model,calibrated"
        if self.cuts:
            cuts = (checks.fraction("each number of cuts", at) for at in self.cuts)
            edges = np.array([0.0, *cuts, 1.0])
        elif self.edges == "fine-tails":
            nodes = self.score != "classes" and not encodes(f)
            edges = score_table.fine_tails(self.bins, nodes=nodes)
        return ScoreCounts(
            classes=f.classes,
            edges=edges,
            score=self.score,
            views=two if self.other or self.calibrator else "model",
            groups=score_table.names_text(self.groups),
            by=self.by,
            within=score_table.names_text(self.within),
            calibrator=text_of(self.calibrator, f.classes) if self.calibrator else "",
            subject_rows=findings.subject_rows(f.unit, self.rows_per_subject),
        )

    def check(self) -> None:
        """InputError for settings that do not go together."""
        if self.cuts:
            self.unused("cuts are the edges of the buckets", "edges", "bins")
        if self.other:
            self.unused("two views are compared at most: with other, no calibrator", "calibrator")
        if encodes(self.federation):
            edges = ["edges"] if self.equi_depth else []
            why = "unary encoding hides one cell of a row, in a tree of buckets that are known"
            self.unused(why, "other", "calibrator", "groups", "encoding", *edges)
        elif self.hides_clients:
            self.nominal_rows("evaluate with unit 'user'")
        question = self.question
        if question.score != "positive":
            self.unused(f"the score '{question.score}' has no threshold", "threshold")
        elif self.equi_depth:
            self.unused("of equi-depth edges only 0.5 is known beforehand", "threshold")
        else:  # refused before anything is asked
            if self.threshold == 0.5 and 0.5 not in question.bucket_edges:
                raise InputError("bins must be even, so that the threshold 0.5 is an edge of two")
            read = question.edges_read
            none = histogram.Histogram.exact(read, np.zeros((2, len(read) - 1)))
            edge_index(none, self.threshold)


class FedEvaluate(EvaluationSettings, FederatedStrategy):
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
        see `fedcal.metrics.score_table`; "" = positive for two classes, else confidence
    bins
        buckets of the score
    edges
        "fine-tails": of equal width, the first and the last bucket halved again and again towards
        its end, where the scores of good models crowd; "equal-width"; or "equi-depth": a first
        round finds edges with about as many rows between each two; half of the budget is for it
    encoding, height
        see `fedcal.metrics.score_table`; "auto" and 0 = as above
    other
        count a second model's scores beside the model's, too
    calibrator
        file of a calibrator: count also the model's scores after it
    groups
        names of groups that are counted apart
    by
        "group": groups are those of the rows' column; "site": they are the clients themselves, each
        counted under its own name
    within
        names of groups of rows that each site's counts are parted into; for by = "site"
    cuts
        scores between buckets, increasing, in place of `bins` and `edges`
    threshold
        an edge: a row is predicted positive from this score on (score `positive`)
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
        {"bins": 8, "edges": "equi-depth"},
        {"cuts": (0.1, 0.5, 0.9)},
    )

    def prepare(self) -> Plan:
        """Return the plan of the rounds in which these counts are asked for."""
        self.check()
        self._counting = counting = choose_counting(self)
        self.check_rounds(counting.rounds)
        asked, question, prefers = counting.opening, counting.question, (counting.mechanism,)
        more = {"row_sums": asked.row_sums, "asked_once": asked.asked_once}
        plan = self.plan_with(counting.rounds, counting.bound, prefers=prefers, **more)
        counting.planned(plan)
        self._nothing = score_release.ScoreRelease(question, np.zeros(question.counts), known=False)
        self._counted = counting.counted or findings.counted_of(question.subject_rows)
        self._read, self._over = self._nothing, False
        return plan

    @classmethod
    @override
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        return not encodes(federation) and super().needs_rows(federation, settings)

    def query(self, round_number: int) -> Query | None:
        """Return the counts to ask for (`score_rounds`); None after an unanswered round.

        All rounds are needed, so a missing one ends the run.
        """
        query = None if self._over else self._counting.query(round_number)
        bound = self.plan.bound
        if isinstance(query, ScoreCounts) and query.tail_nodes and bound and bound.per == "row":
            return replace(query, seed=self.plan.client_seed)  # each row is a whole 1
        return query

    @override
    def questions(self) -> tuple[Question, ...]:
        return self._counting.questions()

    @override
    def update(self, release: Release) -> None:
        noise_distribution = self.plan.noise_distribution(float(release.std.max(initial=0.0)))
        self._over = self._over or self.plan.unanswered(release.std)
        self._read = (
            self._nothing if self._over else self._counting.learn(release, noise_distribution)
        )

    @override
    def result(self) -> score_release.ScoreRelease:
        return replace(
            self._read,
            threshold=self.threshold,
            unit=self.plan.unit if self.plan.private else "",
            counted=self._counted,
            excluded=excluded(self.plan),
            exact=not self.plan.private,
        )
