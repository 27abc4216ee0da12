"""How good is a model, and how well calibrated? One release of counts by score (Cormode & Markov).

Cormode & Markov, "Federated calibration and evaluation of binary classifiers": the metrics of a
classifier follow from the histograms of its scores on positive and on negative examples, whatever
the partition. Encodings for Gaussian noise, residual queries and groups are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedcal.core.checks import one_of
from fedcal.core.removed import check_kept
from fedcal.core.types import override
from fedcal.evaluation.estimators.metrics import Accuracy
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.weighting import counted_of
from fedcal.privacy.curator import Release
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import Federation, make_plan
from fedcal.queries import Query, ScoreCounts
from fedcal.queries.declared import Question
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import check_rounds
from fedcal.strategies.methods.accuracy import FedAccuracy
from fedcal.strategies.methods.score_rounds import excluded
from fedcal.strategies.methods.score_ways import Counting, encodes, way_of


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
    only
        "accuracy": this metric for the whole budget (`FedAccuracy`); "" = all
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
    estimand
        what intervals are for: new "rows" like these, each drawn by itself, or "these" rows
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
        {"bins": 8, "estimand": "these"},
    )
    settings = Counting

    def __init__(
        self,
        federation: Federation,
        *,
        ledger: Ledger | None = None,
        secure_aggregation: str = "masks",
        **settings: Any,
    ) -> None:
        self._wanted = wanted = Counting(federation, **settings)
        wanted.check()
        way = way_of(wanted)
        check_rounds(self.name, federation, way.rounds.rounds)
        plan = make_plan(
            federation,
            rounds=way.rounds.rounds,
            bound=way.bound,
            prefers=(way.law,),
            row_sums=way.opening.row_sums,
            asked_once=way.opening.asked_once,
        )
        self._ways = way.planned(plan)
        question = way.question
        self._nothing = ScoreRelease(question, np.zeros(question.counts), known=False)
        self._counted = way.counted or counted_of(question.subject_rows)
        self._read, self._over = self._nothing, False
        super().__init__(plan, ledger=ledger, secure_aggregation=secure_aggregation)

    @classmethod
    @override
    def of(cls, settings: Mapping[str, Any]) -> Callable[..., Any]:
        if not (only := settings.get("only")):
            return cls
        check_kept(str(only))
        one_of("only", only, (Accuracy.name,))
        return FedAccuracy

    @classmethod
    @override
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        if settings.get("only"):
            return FedAccuracy.needs_rows(federation, settings)
        return not encodes(federation) and super().needs_rows(federation, settings)

    def query(self, round_number: int) -> Query | None:
        """Return the counts to ask for (`score_rounds`); None after an unanswered round.

        All rounds are needed, so a missing one ends the run.
        """
        query = None if self._over else self._ways.query(round_number)
        bound = self.plan.bound
        if isinstance(query, ScoreCounts) and query.tail_nodes and bound and bound.per == "row":
            return replace(query, seed=self.plan.client_seed)  # each row is a whole 1
        return query

    @override
    def questions(self) -> tuple[Question, ...]:
        return self._ways.questions()

    @override
    def update(self, release: Release) -> None:
        law = self.plan.noise_law(float(release.std.max(initial=0.0)))
        self._over = self._over or self.plan.unanswered(release.std)
        self._read = self._nothing if self._over else self._ways.learn(release, law)

    @override
    def result(self) -> ScoreRelease:
        return replace(
            self._read,
            threshold=self._wanted.threshold,
            estimand=self._wanted.named_estimand,
            unit=self.plan.unit if self.plan.private else "",
            counted=self._counted,
            excluded=excluded(self.plan),
            exact=not self.plan.private,
        )
