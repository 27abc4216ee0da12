"""How good is a model, and how well calibrated? One release of counts by score (Cormode & Markov).

Cormode & Markov, "Federated calibration and evaluation of binary classifiers": the metrics of a
classifier follow from the histograms of its scores on positive and on negative examples, whatever
the partition. Encodings for Gaussian noise, residual queries and groups are ours.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fedcal.calibrators.base import text_of
from fedcal.clients.questions.scores import ScoreCounts
from fedcal.clients.questions.search import MeanGaps
from fedcal.core import checks, fields, pages
from fedcal.core.checks import InputError
from fedcal.core.numerics import override
from fedcal.evaluation import findings, histogram, intervals, score_release
from fedcal.evaluation.estimators.metrics import Accuracy, edge_index
from fedcal.evaluation.intervals import Estimate
from fedcal.evaluation.page import texts
from fedcal.mechanisms import Exponential, Laplace, Mechanism
from fedcal.metrics import binning, names, score_table
from fedcal.privacy import AUTO, Federation, Plan, Query, Question, Range, Release
from fedcal.storage.artifact import Artifact
from fedcal.strategies import base
from fedcal.strategies.base import FederatedStrategy, Names, Positive, Settings
from fedcal.strategies.methods.counting import choose_counting, encodes, excluded
from fedcal.strategies.methods.search import root_posterior

Edges = Literal["fine-tails", "equal-width", "equi-depth"]

BUCKETS = 240
"""Their edges are those of 2, 3, 5, 8, 10, 12, 15, 16, 20, 24 and 30 bins, too."""


class EvaluationSettings(Settings):
    """Settings of an evaluation, independent of how counts are collected; see `FedEvaluate`."""

    only: str = ""
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
    threshold: fields.Finite = 0.5
    estimand: findings.Estimand = "rows"
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
            edges = binning.fine_tails(self.bins, nodes=self.score != "classes" and not encodes(f))
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
        self.unused("FedAccuracy asks for one metric", "only")
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
    only
        "accuracy": this metric for the whole budget (`FedAccuracy`); "" = all
    score
        see `fedcal.metrics.binning`; "" = positive for two classes, else confidence
    bins
        buckets of the score
    edges
        "fine-tails": of equal width, the first and the last bucket halved again and again towards
        its end, where the scores of good models crowd; "equal-width"; or "equi-depth": a first
        round finds edges with about as many rows between each two; half of the budget is for it
    encoding, height
        see `fedcal.metrics.score_table`; "auto" and 0 = as said above
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
    def of(cls, settings: Mapping[str, Any]) -> Callable[..., Any]:
        if not (only := settings.get("only")):
            return cls
        checks.check_kept(str(only))
        checks.one_of("only", only, (Accuracy.name,))
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
        law = self.plan.noise_law(float(release.std.max(initial=0.0)))
        self._over = self._over or self.plan.unanswered(release.std)
        self._read = self._nothing if self._over else self._counting.learn(release, law)

    @override
    def result(self) -> score_release.ScoreRelease:
        return replace(
            self._read,
            threshold=self.threshold,
            estimand=self.estimand,
            unit=self.plan.unit if self.plan.private else "",
            counted=self._counted,
            excluded=excluded(self.plan),
            exact=not self.plan.private,
        )


LEVEL = 0.95
"""Of the intervals."""

_TAILS = math.log(1.0 / (1.0 - LEVEL)) / math.sqrt(2.0)
"""Quantile of Laplace noise in standard deviations; a normal one has less, 1.96."""

POINTS = 1001
"""Candidates of a draw, in [0, 1]."""

ASKED = 5
"""Rounds where no candidate is drawn: each asks at one candidate."""

_STRETCH = 3.0
"""Units of `root_posterior`, which is made for logarithms, in one unit of a share."""

How = Literal["exact", "draw", "rounds"]
"""The sums at 0 and 1, without noise; an index of `POINTS` candidates, drawn by the exponential
mechanism; or a sum with noise at one candidate in each of `ASKED` rounds, at the mean of what the
last ones leave (`root_posterior`)."""


def draw_std(scale: float, diameter: int, epsilon: float, rows: float) -> float:
    """Std of a candidate that the exponential mechanism draws, where no client is clipped.

    The sums fall by `rows` per unit of a, so that the draw is Laplace's around the crossing, with
    scale 2 C / (epsilon rows).

    Parameters
    ----------
    scale
        C, what a client may add to a sum
    diameter
        how many times that a neighbour may change it by
    """
    return math.sqrt(2.0) * 2.0 * scale * diameter / (epsilon * rows)


_NUMBERS = ("value", "low", "high", "sampling", "noise", "binning")

UNKNOWN = Estimate(float("nan"), 0.0, 1.0, float("nan"), float("nan"), 0.0, True)
"""Before anything was released."""


@dataclass(frozen=True)
class SingleMetric(Artifact):
    """One metric of the clients' rows, with its interval for new rows like these.

    Attributes
    ----------
    name
        name of the metric
    estimate
        its estimate
    excluded
        sources of error that the interval does not contain, in words
    counted
        see `Weighting`
    """

    form = "metric"
    noun = "metric"

    name: str
    estimate: Estimate
    excluded: tuple[str, ...] = ()
    counted: findings.Counted = "rows"

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Name, numbers, and whether the noise drowns it."""
        return {
            "name": np.array(self.name),
            "numbers": np.array([getattr(self.estimate, n) for n in _NUMBERS]),
            "drowned": np.array(self.estimate.drowned),
            "warning": np.array(self.estimate.warning),
            "excluded": np.array(json.dumps(self.excluded)),
            "counted": np.array(self.counted),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the metric from the arrays of `arrays`."""
        numbers = dict(zip(_NUMBERS, arrays["numbers"].astype(float).tolist(), strict=True))
        warning, drowned = str(arrays["warning"]), bool(arrays["drowned"])
        estimate = Estimate(**numbers, drowned=drowned, warning=warning)
        excluded = json.loads(str(arrays["excluded"]))
        counted = checks.one_of("counted", str(arrays["counted"]), get_args(findings.Counted))
        return cls(str(arrays["name"]), estimate, tuple(map(str, excluded)), counted)

    def results(self) -> dict[str, Any]:
        """Return the metric, the population of its interval and the errors that it excludes."""
        return {
            "weighting": findings.Weighting(self.counted).words,
            "estimand": findings.Weighting(self.counted).intervals("rows"),
            "intervals_exclude": list(self.excluded),
            "metrics": {self.name: self.estimate.to_json()},
        }

    def page(self) -> list[Any]:
        """Return a table with one row."""
        row = (names.heading(self.name), *texts(self.name, self.estimate))
        what = findings.Weighting(self.counted)
        note = f"Interval: the noise of the release and sampling of {what.counted}."
        note += intervals.beyond(self.excluded)
        title = f"Metric: {what.head}"
        return [pages.Table(title, ("metric", "value", "95 % interval"), (row,), note)]


class FedAccuracy(FederatedStrategy):
    """Accuracy, asked alone (ours): the share of rows whose largest probability is the label's.

    Each client answers by how many rows its correct predictions differ from the share a of its
    rows: a residual, of about the root of its number of rows, not the number itself. Of all
    clients together the residual crosses zero at the accuracy of the pooled rows; how many there
    are need not be known.

    Trust `central`: a is drawn from 1,001 candidates in [0, 1] by the exponential mechanism, with
    probability ~ `exp(-epsilon |S(a)| / (2 C))` (Asi & Duchi 2020). Under the others, and where the
    user names a mechanism that adds noise: five rounds, in each a noisy residual at one a.

    Root mean square error in points against the exact pooled accuracy; epsilon = 1, unit user,
    central trust, 100 clients of 50 rows, 200 seeds. "Counts" are of correct and of wrong rows,
    clipped to m; "mean" is that of the clients' accuracies, which nothing protects:

    =================  ==========  =========  ======  ====
    data               partition   this       counts  mean
    =================  ==========  =========  ======  ====
    resnet110-cifar10  iid         0.28       1.30    0.05
    resnet110-cifar10  Dir 1       0.27       1.51    0.12
    resnet110-cifar10  Dir 0.1     0.34       2.11    0.59
    imdb-binary        iid         0.29       1.38    0.07
    imdb-binary        Dir 1       0.31       1.58    0.41
    imdb-binary        Dir 0.1     0.42       3.30    1.58
    game-forecasts     iid         0.36       1.04    0.10
    game-forecasts     Dir 1       0.94       1.41    1.07
    game-forecasts     Dir 0.1     4.24       3.54    3.08
    =================  ==========  =========  ======  ====

    Under trust `distributed` it is 0.45, 0.56 and 0.72 in the first three lines (60 seeds).

    Where clients differ much (game-forecasts by labels: its accuracy is another one for each label)
    clipping biases it, and the interval does not hold that: it held the exact value in 26 % of the
    runs of the last line, in 87 % of the one before, in at least 97 % of all others.

    Privacy: as the plan says; delta = 0. Unit "user": each residual of a client is clipped to +-C,
    C = max(0.7 sqrt(m), 1) rows, or wider, up to noise of 0.1 points; unit "example": a row adds at
    most 1.

    Parameters
    ----------
    federation
        public facts and budget
    rows_per_client
        m, the public nominal number of rows of a client; needed with privacy, for the clip and
        for the interval
    """

    name, family = "evaluate", "evaluate"
    rows_per_client: Positive | None = None

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """Return True with privacy, in any unit: an interval needs a number of rows."""
        return federation.private

    def __init__(
        self, federation: Federation, *, only: str = Accuracy.name, **settings: Any
    ) -> None:
        named = {"rows_per_client", "ledger", "secure_aggregation"}
        checks.unused(f"{only} is asked alone", **{k: settings[k] for k in settings.keys() - named})
        super().__init__(federation, **settings)

    def prepare(self) -> Plan:
        """Return the plan of one draw, or of rounds with a noisy residual each."""
        private, rows = self.federation.private, 1.0
        self._how: How = "rounds" if private else "exact"
        if private and self.draws_index:
            self._how = "draw"
        rounds = ASKED if self._how == "rounds" else 1
        self.check_rounds(rounds, f" --only {Accuracy.name}")
        if private:  # else nothing is made of them
            rows = self.nominal_rows(f"{self.name} with privacy")
        self._rows = rows * self.federation.clients * self.federation.sampling_rate
        self._scale = max(0.7 * math.sqrt(rows), 1.0) if self.hides_clients else 1.0
        self._subject_rows = findings.subject_rows(self.federation.unit)
        self._value, self._noise, self._known = 0.5, 0.0, False
        self._heard: list[tuple[float, float]] = []  # candidate, and its sum
        law: type[Mechanism] = Exponential if self._how == "draw" else Laplace
        bound = self.query(1).bound("client", (1.0,))
        return self.plan_with(rounds, bound, prefers=(law,), row_sums=True)

    def query(self, round_number: int) -> MeanGaps:
        """Correct predictions less what is expected of them."""
        low, high, points = 0.0, 1.0, POINTS if self._how == "draw" else 2
        if self._how == "rounds":
            low, high, points = self._value, self._value, 1
        return MeanGaps(low, high, points, 1.0 / self._scale, self._subject_rows)

    def moving(self) -> dict[str, Range]:
        """Return the range of candidates, if each round has one."""
        share = Range(0.0, 1.0)
        return {"low": share, "high": share} if self._how == "rounds" else {}

    def update(self, release: Release) -> None:
        """Find where the residual crosses zero."""
        plan, sums = self.plan, release.values
        if plan.unanswered(release.std):
            return
        self._known = True
        if self._how == "draw":
            self._value = float(sums[0]) / (POINTS - 1)
            epsilon, rows = plan.mechanism.epsilon, max(self._rows, 1.0)
            self._noise = draw_std(self._scale, plan.diameter, epsilon, rows)
        elif self._how == "exact":
            self._rows = float(sums[0] - sums[1])  # sums at 0 and at 1
            self._value = float(sums[0]) / self._rows if self._rows > 0 else math.nan
        else:
            self._heard.append((self._value, float(sums[0])))
            asked, heard = np.array(self._heard).T
            roots = np.linspace(0.0, 1.0, POINTS)
            std = float(release.std[0])
            belief = root_posterior(_STRETCH * asked, heard, std, _STRETCH * roots, plan.tailed)
            self._value = float(belief @ roots)
            self._noise = math.sqrt(max(float(belief @ (roots - self._value) ** 2), 0.0))

    @override
    def result(self) -> SingleMetric:
        value, name, found = self._value, Accuracy.name, UNKNOWN
        if self._known and not math.isnan(value):
            sampling = math.sqrt(max(value * (1.0 - value), 0.0) / max(self._rows, 1.0))
            half = math.hypot(_TAILS * self._noise, intervals.normal_quantile(LEVEL) * sampling)
            span = intervals.Span(value, value - half, value + half, sampling, self._noise)
            found = intervals.estimate(span, 0.0, Accuracy.bounds, Accuracy.scale, LEVEL)
        beyond, counted = excluded(self.plan), findings.counted_of(self._subject_rows)
        return SingleMetric(name, intervals.warned({name: found}, beyond)[name], beyond, counted)
