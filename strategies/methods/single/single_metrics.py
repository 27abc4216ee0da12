"""One metric for the whole budget: what is asked alone is known several times as well.

`FedEvaluate` releases all metrics at once. Where whole users are protected and there are few of
them, what it can say is little; one of these says one thing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedcal.core.streams import Purpose, stream
from fedcal.core.types import override
from fedcal.evaluation.estimators.all_metrics import METRICS
from fedcal.evaluation.intervals.intervals import Estimate, Span, estimate, normal_quantile, warned
from fedcal.evaluation.single import UNKNOWN, SingleMetric
from fedcal.evaluation.weighting import counted_of, subject_rows
from fedcal.mechanisms import Exponential, Gaussian, Laplace, Mechanism
from fedcal.metrics.buckets import check_score
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import Federation
from fedcal.privacy.mechanism_choice import order_of
from fedcal.privacy.noise_plan import make_plan
from fedcal.queries import MeanGaps, ScoreGaps
from fedcal.queries.declared import Range
from fedcal.queries.encodings import column_norm, decoder_of
from fedcal.queries.single_metrics import one_part
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import check_rounds, nominal_rows
from fedcal.strategies.methods.score_rounds import excluded
from fedcal.strategies.methods.single.mean_search import MeanSearch, draw_std, how_to_ask
from fedcal.units import UNITS
from fedcal.units.bounding import Bound

LEVEL = 0.95
"""Of the intervals."""

_TAILS = math.log(1.0 / (1.0 - LEVEL)) / math.sqrt(2.0)
"""Quantile of Laplace noise in standard deviations; a normal one has less, 1.96."""

_DRAWS = 2000

WIDE, WIDE_KS = 0.001, 0.004
"""Noise std of a mean, and of `FedKS`, up to which clips are widened: where there are many clients
clipping would do more harm than that."""

KS_DROWNED = 0.05
"""Noise alone may make as large a gap: then the value is not for print."""


class SingleMetricStrategy(FederatedStrategy):
    """Base of the evaluations of one metric; the nominal number of rows is public, not counted."""

    family = "evaluate"
    by_nominal: ClassVar[bool] = True
    """Return whether a sum is divided by the nominal number of rows."""

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """Return True with privacy, in any unit: an interval needs a number of rows."""
        return federation.private

    def artifact_of(self, name: str, estimate: Estimate) -> SingleMetric:
        """Return the artifact of an estimate, with the errors that its interval excludes."""
        beyond = excluded(self.plan)
        if self.by_nominal and self.plan.private:
            beyond += ("what rows_per_client is off by",)
        counted = counted_of(subject_rows(self.plan.unit))
        return SingleMetric(name, warned({name: estimate}, beyond)[name], beyond, counted)

    def public(
        self, federation: Federation, rounds: int, rows_per_client: float | None
    ) -> tuple[float, bool]:
        """Nominal rows of a client, and whether clients are clipped as a whole.

        Without privacy 1 row, which nothing is made of.
        """
        check_rounds(self.name, federation, rounds)
        if not federation.private:
            return 1.0, False
        rows = nominal_rows(f"{self.name} with privacy", rows_per_client)
        return rows, UNITS[federation.unit].whole_client


def mean_estimate(
    name: str, value: float, noise: float, sampling: float, binning: float = 0.0
) -> Estimate:
    """Return a mean with its interval; `noise` may be Laplace noise."""
    half = math.hypot(_TAILS * noise, normal_quantile(LEVEL) * sampling)
    span = Span(value, value - half, value + half, sampling, noise)
    metric = METRICS[name]
    return estimate(span, binning, metric.bounds, metric.scale, LEVEL)


class FedAccuracy(SingleMetricStrategy):
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

    name = "evaluate-accuracy"
    metric: ClassVar[str] = "accuracy"
    by_nominal = False

    def __init__(
        self, federation: Federation, *, rows_per_client: float | None = None, **base: Any
    ) -> None:
        self._mean = MeanSearch(how_to_ask(federation), subject_rows(federation.unit))
        rows, whole = self.public(federation, self._mean.rounds, rows_per_client)
        self.classes = federation.classes
        self._rows = rows * federation.clients * federation.sampling_rate
        self._scale = max(0.7 * math.sqrt(rows), 1.0) if whole else 1.0
        law: type[Mechanism] = Exponential if self._mean.how == "draw" else Laplace
        bound = self.query(1).bound("client", (1.0,))
        plan = make_plan(
            federation, rounds=self._mean.rounds, bound=bound, prefers=(law,), row_sums=True
        )
        super().__init__(plan, **base)
        self._known = False

    def _std_at_one(self) -> float:
        """Noise std of a sum, in rows, were the clip 1."""
        plan = self.plan
        if plan.law.answers == "index":
            return draw_std(1.0, plan.diameter, plan.epsilon_per_release, 1.0)
        return float(max(plan.noise_std or (0.0,)))

    def query(self, round_number: int) -> MeanGaps:
        """Correct predictions less what is expected of them."""
        correct = np.array([[0.0, 0.0], [1.0, 1.0]])  # the outcome, whatever the score
        return self._mean.question(self.classes, "confidence", correct, self._scale)

    def moving(self) -> dict[str, Range]:
        """Return the range of candidates, if each round has one."""
        share = Range(0.0, 1.0)
        return {"low": share, "high": share} if self._mean.how == "rounds" else {}

    def update(self, release: Release) -> None:
        """Find where the residual crosses zero."""
        plan = self.plan
        if plan.unanswered(release.std):
            return
        self._known = True
        if not plan.private:
            self._rows = float(release.values[0] - release.values[1])
        std = self._scale * self._std_at_one() / max(self._rows, 1.0)
        self._mean.hear(release.values, release.std, plan.tailed, std)

    @override
    def result(self) -> SingleMetric:
        value = self._mean.value
        if not self._known or math.isnan(value):
            return self.artifact_of(self.metric, UNKNOWN)
        sampling = math.sqrt(max(value * (1.0 - value), 0.0) / max(self._rows, 1.0))
        estimate = mean_estimate(self.metric, value, self._mean.noise, sampling)
        return self.artifact_of(self.metric, estimate)


class FedKS(SingleMetricStrategy):
    """Calibration error by the largest gap, asked alone (ours).

    KS: the largest absolute value, over t, of the sum of (outcome - score) over rows with score
    <= t, divided by the rows (Gupta et al. 2021); t over the edges of 30 buckets (at most .05
    points below that over all t, on the shipped sets). The gaps of a calibrated model are 0 on
    average: they are residuals as they are, and a client's add up to about the root of its number
    of rows. They are encoded for
    prefix sums (`fedcal.queries.encodings`) and get Gaussian noise; with delta = 0, or where the
    user names Laplace noise, 15 buckets are sent as they are.

    The largest of noisy gaps lies above that of exact ones. The interval is by the triangle
    inequality, value +- the .95 quantile of the largest of noise and sampling alone: it holds the
    truth at least as often as it says, also where that is 0. Rows are taken for as spread as they
    can be (variance 1/4).

    Root mean square error in points; epsilon = 1, unit user, central trust, all rows, 200 seeds.
    Intervals held the exact value in 96 to 100 of 100 runs; they are 2.2 to 5.4 points wide, of
    which noise is half:

    =================  ==========  ===========  =====
    data               partition   100 clients  1,000
    =================  ==========  ===========  =====
    imdb-binary        iid         0.47         0.49
    imdb-binary        Dir 1       0.31         0.49
    imdb-binary        Dir 0.1     0.92         0.35
    game-forecasts     iid         0.42         0.45
    game-forecasts     Dir 1       0.89         0.39
    game-forecasts     Dir 0.1     0.94         0.81
    resnet110-cifar10  iid         0.73         0.39
    resnet110-cifar10  Dir 1       0.73         0.39
    resnet110-cifar10  Dir 0.1     0.74         0.39
    =================  ==========  ===========  =====

    Privacy: as the plan says. Unit "user": a client's encoded gaps are clipped as a whole, to the
    norm that sqrt(m) rows in one bucket have, or wider, up to noise of 0.4 points: where clients
    differ clipping biases the result, and noise of that size does little harm. Unit "example": a
    row adds at most 1 in one bucket.

    Parameters
    ----------
    federation
        public facts and budget; one round
    score
        "positive" or "confidence", see `fedcal.metrics.buckets`; "" = positive for two classes,
        else confidence
    rows_per_client
        m, the public nominal number of rows of a client; needed with privacy: the sum of gaps is
        divided by the nominal number of all rows, which no release tells
    """

    name = "evaluate-ks"

    def __init__(
        self,
        federation: Federation,
        *,
        score: str = "",
        rows_per_client: float | None = None,
        **base: Any,
    ) -> None:
        rows, whole = self.public(federation, 1, rows_per_client)
        self._rows = rows * federation.clients * federation.sampling_rate
        private, order = federation.private, order_of(federation) if federation.delta > 0 else 1
        prefix = private and order == 2
        query = ScoreGaps(
            federation.classes,
            one_part(check_score(score, federation.classes), federation.classes),
            30 if prefix or not private else 15,
            "prefix" if prefix else "flat",
            count=not private,
            subject_rows=subject_rows(federation.unit),
        )
        plan = make_plan(
            federation,
            rounds=1,
            bound=Bound(query.lengths(), (1.0,) * len(query.lengths()), order=order),
            prefers=(Gaussian if prefix else Laplace,),
            row_sums=True,
        )
        # from noisy answers to sums of gaps up to each edge
        self._sums = np.cumsum(decoder_of(query.encoding, query.buckets), axis=0)
        gain = 1.0
        if whole:
            noise = self._noise_of_sums(float(max(plan.noise_std or (0.0,))))
            clip = max(float(query.matrix.max()) * math.sqrt(rows), WIDE_KS * self._rows / noise)
            gain = 1.0 / clip
        elif private:
            gain = 1.0 / column_norm(query.encoding, query.buckets, 1, order)
        self._query = replace(query, gain=gain)
        super().__init__(plan, **base)
        self._estimate = UNKNOWN

    def _noise_of_sums(self, std: float) -> float:
        """Largest std of a sum of gaps, by that of the answers' noise."""
        return std * float(np.linalg.norm(self._sums, axis=1).max())

    @override
    def query(self, round_number: int) -> ScoreGaps:
        return self._query

    def update(self, release: Release) -> None:
        """Keep the largest sum of gaps up to an edge."""
        answers = self._sums.shape[1]
        rows = self._rows if self.plan.private else float(release.values[-1])
        if rows < 1 or self.plan.unanswered(release.std):
            return
        per_row = 1.0 / (self._query.gain * rows)
        value = float(np.abs(self._sums @ release.values[:answers]).max()) * per_row
        self._estimate = self._with_interval(value, float(release.std[0]) * per_row, rows)

    def _with_interval(self, value: float, std: float, rows: float) -> Estimate:
        """Return the estimate with an interval by simulated noise and sampling.

        `std` is that of the answers' noise, divided by the number of rows.
        """
        draw = stream(0, Purpose.BOOTSTRAP, 1, self.name)
        size = (_DRAWS, self._sums.shape[1])
        z = draw.laplace(0.0, math.sqrt(0.5), size) if self.plan.tailed else draw.normal(size=size)
        noise = std * z @ self._sums.T
        steps = draw.normal(0.0, 0.5 / math.sqrt(rows * len(self._sums)), noise.shape)
        both, alone = (
            float(np.quantile(np.abs(x).max(axis=1), LEVEL))
            for x in (noise + np.cumsum(steps, axis=1), noise)
        )
        return Estimate(
            value=min(value, 1.0),
            low=max(value - both, 0.0),
            high=min(value + both, 1.0),
            sampling=0.5 / math.sqrt(rows),
            noise=self._noise_of_sums(std),
            binning=0.0,
            drowned=alone > KS_DROWNED,
        )

    @override
    def result(self) -> SingleMetric:
        return self.artifact_of("ks", self._estimate)
