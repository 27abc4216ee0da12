"""Accuracy for the whole budget: where noisy sums of (correct - a) cross zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from fedcal.core.types import Floats, override
from fedcal.evaluation.estimators.all_metrics import METRICS
from fedcal.evaluation.intervals.intervals import Estimate, Span, estimate, normal_quantile, warned
from fedcal.evaluation.single import UNKNOWN, SingleMetric
from fedcal.evaluation.weighting import counted_of, subject_rows
from fedcal.mechanisms import Exponential, Laplace, Mechanism
from fedcal.metrics.buckets import Score
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import Federation
from fedcal.privacy.noise_plan import make_plan
from fedcal.queries import MeanGaps
from fedcal.queries.declared import Range
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import check_rounds, nominal_rows
from fedcal.strategies.methods.score_rounds import excluded
from fedcal.strategies.methods.steps.noisy_search import root_posterior
from fedcal.strategies.methods.temperature import draws_index
from fedcal.units import UNITS

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


def how_to_ask(federation: Federation) -> How:
    """Return "draw" if trust and mechanism allow a draw, else "rounds"; "exact" without privacy."""
    if not federation.private:
        return "exact"
    return "draw" if draws_index(federation) else "rounds"


@dataclass
class MeanSearch:
    """Search for one mean in [0, 1]: the current estimate and the next question.

    The sum of (value - a) over all rows falls with a and crosses zero at their mean, whatever
    the number of rows. Clients that are clipped near the crossing move it (by little: there sums
    of rows like all others are around 0).

    Parameters
    ----------
    how
        "exact": the sums at 0 and 1, without noise; "draw": an index of `POINTS` candidates, by
        the exponential mechanism; "rounds": a sum with noise at one candidate in each of `ASKED`
        rounds, at the mean of what the last ones leave (`root_posterior`)
    subject_rows
        as of `ScoreCounts`
    value
        the mean: so far, and where the first round asks
    noise
        its std by the releases' noise
    """

    how: How
    subject_rows: int = 0
    value: float = 0.5
    noise: float = 0.0
    _asked: list[float] = field(default_factory=list)
    _heard: list[float] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """Number of questions."""
        return ASKED if self.how == "rounds" else 1

    def question(self, classes: int, score: Score, values: Floats, scale: float) -> MeanGaps:
        """Return the next question; answers are in units of `scale`."""
        low, high, points = 0.0, 1.0, 2
        if self.how == "draw":
            points = POINTS
        elif self.how == "rounds":
            low, high, points = self.value, self.value, 1
        gain, some = 1.0 / scale, self.subject_rows
        return MeanGaps(classes, score, values.ravel(), low, high, points, gain, subject_rows=some)

    def hear(self, sums: Floats, std: Floats, tailed: bool, draw_std: float) -> None:
        """Learn from a release.

        Parameters
        ----------
        sums
            (points,) as released, in units of the scale; (1,) the drawn index
        std
            of their noise
        tailed
            whether that is Laplace's; False = normal, or nearly so
        draw_std
            of a drawn candidate
        """
        if self.how == "draw":
            self.value, self.noise = float(sums[0]) / (POINTS - 1), draw_std
        elif self.how == "exact":
            rows = float(sums[0] - sums[1])  # sums at 0 and at 1
            self.value = float(sums[0]) / rows if rows > 0 else math.nan
        else:
            self._asked.append(self.value)
            self._heard.append(float(sums[0]))
            roots = np.linspace(0.0, 1.0, POINTS)
            belief = root_posterior(
                _STRETCH * np.array(self._asked),
                np.array(self._heard),
                float(std[0]),
                _STRETCH * roots,
                tailed,
            )
            self.value = float(belief @ roots)
            self.noise = math.sqrt(max(float(belief @ (roots - self.value) ** 2), 0.0))


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


def mean_estimate(name: str, value: float, noise: float, sampling: float) -> Estimate:
    """Return a mean with its interval; `noise` may be Laplace noise."""
    half = math.hypot(_TAILS * noise, normal_quantile(LEVEL) * sampling)
    span = Span(value, value - half, value + half, sampling, noise)
    metric = METRICS[name]
    return estimate(span, 0.0, metric.bounds, metric.scale, LEVEL)


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

    name, family = "evaluate-accuracy", "evaluate"
    metric: ClassVar[str] = "accuracy"

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """Return True with privacy, in any unit: an interval needs a number of rows."""
        return federation.private

    def __init__(
        self, federation: Federation, *, rows_per_client: float | None = None, **base: Any
    ) -> None:
        self._mean = MeanSearch(how_to_ask(federation), subject_rows(federation.unit))
        check_rounds(self.name, federation, self._mean.rounds)
        rows, whole = 1.0, False  # without privacy nothing is made of them
        if federation.private:
            rows = nominal_rows(f"{self.name} with privacy", rows_per_client)
            whole = UNITS[federation.unit].whole_client
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
        value, found = self._mean.value, UNKNOWN
        if self._known and not math.isnan(value):
            sampling = math.sqrt(max(value * (1.0 - value), 0.0) / max(self._rows, 1.0))
            found = mean_estimate(self.metric, value, self._mean.noise, sampling)
        beyond, counted = excluded(self.plan), counted_of(subject_rows(self.plan.unit))
        told = warned({self.metric: found}, beyond)[self.metric]
        return SingleMetric(self.metric, told, beyond, counted)
