"""One temperature by a search that asks for noisy sums: Acc-T, NLL-T, ECE-T (Luo et al.)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from fedcal.calibrators import Calibrator, Identity, TemperatureScaling, TopLabelBinning
from fedcal.calibrators.top_label import Counts
from fedcal.clients.questions import (
    AccuracyGap,
    BinOutcomes,
    CalibrationGaps,
    ClippedNLL,
    OutcomeCell,
)
from fedcal.clients.questions.search import TemperatureQuery
from fedcal.core.checks import one_of, positive, unused, whole
from fedcal.core.errors import InputError
from fedcal.core.numerics import log_grid
from fedcal.core.types import Floats, override
from fedcal.mechanisms import MECHANISMS, Exponential, Laplace, Mechanism, Unary
from fedcal.metrics.binning import MOST_BINS
from fedcal.privacy.curator import Release
from fedcal.privacy.declared import SEED, Question, Range
from fedcal.privacy.federation import AUTO, MOST_ROUNDS
from fedcal.privacy.noise_plan import Federation
from fedcal.privacy.query import Order
from fedcal.storage.artifact import at_end
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.method import check_rounds, nominal_clip, nominal_rows, plan_for
from fedcal.strategies.methods.steps.noisy_search import (
    GoldenSection,
    PosteriorBisection,
    Search,
    interval,
)
from fedcal.strategies.methods.temperature import draws_index

Choice = Literal["auto", "golden", "posterior", "exponential"]

STEEP = (0.02, 0.5)
"""Public prior of "posterior": the change of mean confidence per unit of log T. At their best
temperatures the shipped networks have 0.1 and 0.3."""


class _TemperatureSearch(FederatedStrategy):
    """Base of the three searches over [low, high], with the noise of their evaluations.

    Each round evaluates the objective at one temperature, chosen from what was released before;
    "exponential" asks once, for a grid of them. Without privacy the sums are exact.

    Privacy: the federation's unit and trust. Public: the federation and all parameters below, which
    must not be tuned on the clients' rows. The sum of an evaluation gets Laplace noise (in shares
    of it under trust `distributed`) with epsilon / evaluations each, unless the federation names
    another mechanism; "exponential" spends all of epsilon on one draw (central only, delta = 0).

    * Unit `example`, add/remove of one row: the sensitivity is what a row adds, as the class says.
      No client is clipped. The Laplace scale is evaluations * sensitivity / epsilon.
    * Unit `user`, zero-out (replace under `local`, which doubles the noise): what a client adds is
      clipped to `clip`, in L1 norm, and that is the sensitivity.

    Parameters
    ----------
    federation
        public facts and budget; `rounds` is the number of evaluations
    search
        how the next temperature is chosen

        * "golden": golden section, as Algorithm 1; 6 evaluations
        * "posterior": by the size of the sum and of its noise (AccT only); 3 evaluations
        * "exponential": one draw from a grid, evenly spaced in log T (not AccT)
        * "auto": what measured best under the trust model, see the class
    iterations
        K of Algorithm 1, evaluations - 1; None = as above
    low, high
        interval of the search
    clip
        of unit `user` with privacy, and refused elsewhere; None = by `rows_per_client`
    rows_per_client
        m, the public nominal number of rows of a client; needed with privacy for
        unit `user` (unless `clip` is given), and for "posterior"
    """

    searches: ClassVar[tuple[Choice, ...]]
    _points: int | None = None
    clip_share: ClassVar[float]  # default clip, per nominal row
    least_clip: ClassVar[float]

    def __init__(
        self,
        federation: Federation,
        *,
        search: Choice = "golden",
        iterations: int | None = None,
        low: float = 0.5,
        high: float = 3.0,
        clip: float | None = None,
        rows_per_client: float | None = None,
        **base: Any,
    ) -> None:
        one_of("search", search, self.searches)
        self.search = self._best(federation) if search == "auto" else search
        self.classes = federation.classes
        self._low, self._high = interval(low, high)
        at_once = 1
        if self.search == "exponential":
            at_once = whole("points", 101 if self._points is None else self._points, 2, 4096)
        else:
            why = f"search '{self.search}' asks for one temperature at a time"
            unused(why, points=self._points)
        self._temperatures = np.exp(log_grid(self._low, self._high, at_once))
        rounds = _evaluations(self.search, federation.rounds, iterations)
        clips = (
            nominal_clip(
                self.name, federation, self.clip_share, self.least_clip, clip, rows_per_client
            ),
        )
        scored = self.search == "exponential"
        query = self.question(tuple(self._temperatures.tolist()) if scored else 1.0)
        law: type[Mechanism] = Exponential if scored else Laplace
        plan = plan_for(federation, query, clips, rounds, 1, prefers=(law,))
        self._drawn = 1.0
        self._heard = False
        self._search: Search | None = None
        if not scored:
            self._search = self._searcher(rounds, federation, rows_per_client, plan.tailed)
        super().__init__(plan, **base)

    @classmethod
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        """Return whether the clip of unit `user`, or the posterior's prior, needs the number."""
        search = settings.get("search")
        posterior = search == "posterior" or (
            search == "auto" and "posterior" in cls.searches and federation.private
        )
        return posterior or super().needs_rows(federation, settings)

    def _best(self, federation: Federation) -> Choice:
        """Return the search that measured best under the run's trust model and mechanism."""
        if not federation.private:
            return "golden"
        if "posterior" in self.searches:
            return "posterior"
        return "exponential" if draws_index(federation) else "golden"

    def _searcher(
        self, evaluations: int, federation: Federation, rows: float | None, tailed: bool
    ) -> Search:
        if self.search == "golden":
            return GoldenSection(self._low, self._high, evaluations - 1)
        n = nominal_rows("search 'posterior'", rows) * federation.clients * federation.sampling_rate
        slope = (STEEP[0] * n, STEEP[1] * n)
        return PosteriorBisection(self._low, self._high, evaluations, slope, tailed)

    @abstractmethod
    def question(self, temperatures: float | tuple[float, ...]) -> TemperatureQuery:
        """Return the question for the objective at one or several temperatures."""

    def query(self, round_number: int) -> TemperatureQuery | None:
        """Return the question at the next temperature, or at all of the grid."""
        if self._search is None:
            return self.question(tuple(self._temperatures.tolist()))
        t = self._search.next()
        return None if t is None else self.question(float(t[0]))

    def questions(self) -> tuple[Question, ...]:
        """Any temperature of the interval, also once the search is over; or all of the grid."""
        if self._search is None:
            return super().questions()
        within = Range(self._low, self._high)
        return (Question.like(self.question(1.0), self._all_rounds, temperatures=within),)

    def update(self, release: Release) -> None:
        """Tell the search, or keep the temperature that was drawn."""
        if self.plan.unanswered(release.std):
            return  # nobody was asked: the next round asks this again
        # without rows and without noise all is exactly 0, and nothing was learned
        self._heard = self._heard or bool(release.values.any()) or self.plan.private
        if self._search is None:
            index = int(release.values[0])
            if not self.plan.private:
                each = release.values.reshape(len(self._temperatures), -1)
                index = int(np.argmin([self.objective(values) for values in each]))
            self._drawn = float(self._temperatures[index])
            return
        t = self._search.next()
        if t is None:
            return
        signed = self.search == "posterior"
        value = float(release.values[0]) if signed else self.objective(release.values)
        self._search.tell(t, value, float(release.std[0]))

    def objective(self, values: Floats) -> float:
        """Return the value that golden section minimises, from one evaluation's numbers."""
        return float(np.abs(values).sum())

    def at_limits(self) -> list[str]:
        """Say that the last interval, or the likeliest or drawn temperature, touches an end."""
        low = high = self._drawn
        if self._search is not None:
            low, high = float(self._search.low[0]), float(self._search.high[0])
        return at_end("What the search ended with", low, high, (self._low, self._high))

    def result(self) -> TemperatureScaling:
        """Temperature scaling by the best temperature so far; by 1 before the first release."""
        if not self._heard:
            return TemperatureScaling(1.0, self.classes)
        t = self._drawn if self._search is None else float(self._search.answer()[0])
        return TemperatureScaling(t, self.classes)


def _evaluations(search: str, rounds: int | None, iterations: int | None) -> int:
    """Return the number of rounds of a search."""
    if search == "exponential":
        if rounds not in (None, 1) or iterations is not None:
            raise InputError("search 'exponential' asks once: rounds must be 1, no iterations")
        return 1
    if iterations is not None:
        whole("iterations", iterations, 1, MOST_ROUNDS - 1)
        if rounds not in (None, iterations + 1):
            raise InputError(
                f"iterations = {iterations} take {iterations + 1} rounds, got rounds = {rounds}"
            )
        return iterations + 1
    if search == "golden" and rounds == 1:
        raise InputError("search 'golden' starts with two evaluations: rounds must be at least 2")
    return rounds or (3 if search == "posterior" else 6)


class AccT(_TemperatureSearch):
    """Acc-T: the temperature at which mean confidence equals accuracy (Luo et al., Algorithm 1).

    The objective sum_i (correct_i - conf_i(T)) rises with T, so that it has a sign: "posterior"
    (ours) looks for its root, golden section for the smallest absolute value.

    Privacy: the federation's unit (adjacency zero-out, replace under `local`, or add/remove of
    a row) and trust. A row adds correct - conf, less than 1 in absolute value: sensitivity 1 for
    unit `example`. For unit `user` a client's sum is clipped to max(0.08 m, 2). Public: the
    federation and all parameters.

    Measured: ECE in %, mean (and std) of 20 seeds at epsilon = 1, 100 clients of 50 rows, by

        fedcal compare --data resnet110-cifar10,densenet-cifar100 --epsilon 1 --seeds 20
        --method "acct[search=golden],acct[search=posterior]"

    with each --unit and --trust. Uncalibrated it is 4.75 and 14.47. Luo et al.'s own is golden
    section, unit example, local, with iid sources; clients here are drawn by dirichlet:0.1.

    ====================  =================  ===========  ===========
    unit, trust           data               golden       posterior
    ====================  =================  ===========  ===========
    user, central         resnet110-cifar10  1.54 (1.27)  0.87 (0.21)
    user, central         densenet-cifar100  1.78 (0.49)  1.50 (0.09)
    user, distributed     resnet110-cifar10  1.50 (0.73)  0.92 (0.22)
    user, distributed     densenet-cifar100  1.59 (0.03)  1.49 (0.06)
    user, local           resnet110-cifar10  2.54 (1.18)  2.35 (1.04)
    user, local           densenet-cifar100  5.07 (4.20)  3.66 (1.67)
    example, central      resnet110-cifar10  0.90 (0.31)  0.81 (0.07)
    example, central      densenet-cifar100  1.57 (0.03)  1.43 (0.04)
    example, distributed  resnet110-cifar10  0.78 (0.27)  0.84 (0.05)
    example, distributed  densenet-cifar100  1.58 (0.03)  1.43 (0.05)
    example, local        resnet110-cifar10  2.41 (1.40)  0.94 (0.39)
    example, local        densenet-cifar100  2.18 (0.71)  1.51 (0.08)
    ====================  =================  ===========  ===========

    Bisection by signs (0.96 in the first line) and one draw by the exponential mechanism (0.99)
    were removed in 0.3; commit 94dfdbff has them. "auto" is "posterior" with privacy, "golden"
    without.

    Parameters
    ----------
    federation
        public facts and budget; `rounds` is the number of evaluations
    search
        "golden", "posterior" or "auto"
    iterations
        K of Algorithm 1, evaluations - 1; None = 5, with "posterior" 2
    low, high
        interval of the search
    clip
        of unit `user` with privacy, in rows; None = max(0.08 m, 2)
    rows_per_client
        m, the public nominal number of rows of a client
    """

    name = "acct"
    searches = "auto", "golden", "posterior"
    examples = ({}, {"search": "posterior"})
    clip_share, least_clip = 0.08, 2.0

    def question(self, temperatures: float | tuple[float, ...]) -> AccuracyGap:
        """sum_i (correct_i - conf_i(T))."""
        return AccuracyGap(temperatures)


class _GridSearch(_TemperatureSearch):
    """Base of searches that may draw from a grid at once.

    Parameters
    ----------
    points
        of the grid of "exponential" (101), and refused elsewhere
    """

    searches = "auto", "golden", "exponential"
    examples = ({}, {"search": "exponential", "points": 11})

    def __init__(
        self, federation: Federation, *, points: int | None = None, **options: Any
    ) -> None:
        self._points = points
        super().__init__(federation, **options)


class NLLT(_GridSearch):
    """NLL-T: temperature scaling by golden section (Luo et al., C.2.1).

    The objective is sum_i min(-log p_i(y_i; T), nll_clip). It has no sign: "golden" or
    "exponential" only; "auto" is the latter with privacy under trust `central`, unless a mechanism
    that adds noise is named: over six data sets, 100 and 500 clients, both units and epsilon 0.3 to
    8 the mean ECE is lower by it in 82 of 96 cells, of ECE-T in 85 (10 seeds; users, 100 clients,
    epsilon 1: 4.1 % for 6.2 %, of ECE-T 2.3 % for 6.5 %).

    Privacy: the federation's unit (adjacency zero-out, replace under `local`, or add/remove of a
    row) and trust. A row adds between 0 and nll_clip: that is the sensitivity for unit `example`.
    For unit `user` a client's sum is clipped to max(m, 10). Public: the federation and all
    parameters. The sums differ little between temperatures and the noise is that of their whole
    range: at epsilon = 1 this needs many clients, and `fednewton` minimises the same loss better.

    Parameters
    ----------
    nll_clip
        nats that a row adds at most; the paper's 10
    federation, search, iterations, low, high, points, clip, rows_per_client
        as for AccT
    """

    name = "nllt"
    clip_share, least_clip = 1.0, 10.0

    def __init__(self, federation: Federation, *, nll_clip: float = 10.0, **options: Any) -> None:
        self.nll_clip = positive("nll_clip", nll_clip)
        super().__init__(federation, **options)

    def question(self, temperatures: float | tuple[float, ...]) -> ClippedNLL:
        """sum_i min(-log p_i(y_i; T), nll_clip)."""
        return ClippedNLL(temperatures, self.nll_clip)

    def objective(self, values: Floats) -> float:
        """Return the sum itself: noise may make it negative, which is smaller still."""
        return float(values[0])


class ECET(_GridSearch):
    """ECE-T: the temperature with the least binned calibration error (Luo et al., C.2.2).

    The query asks for sum_{i in b} (correct_i - conf_i(T)) of each bin b; the objective is the sum
    of their absolute values. It has no sign: "golden" or "exponential" only; "auto" as for NLLT.
    Noise in each bin adds to the sum at every temperature alike.

    Privacy: the federation's unit (adjacency zero-out, replace under `local`, or add/remove of a
    row) and trust. A row is in one bin at each temperature and adds less than 1 there: L1
    sensitivity 1 for unit `example`. For unit `user` a client's bins are clipped to
    max(0.08 m, 2) in L1 norm. Public: the federation and all parameters.

    Parameters
    ----------
    bins
        of equal width
    federation, search, iterations, low, high, points, clip, rows_per_client
        as for AccT
    """

    name = "ecet"
    clip_share, least_clip = 0.08, 2.0

    def __init__(self, federation: Federation, *, bins: int = 15, **options: Any) -> None:
        self.bins = whole("bins", bins, 1, MOST_BINS)
        super().__init__(federation, **options)

    def question(self, temperatures: float | tuple[float, ...]) -> CalibrationGaps:
        """sum_{i in b} (correct_i - conf_i(T)) of each bin."""
        return CalibrationGaps(temperatures, self.bins)


class DPHistogram(FederatedStrategy):
    """Histogram binning of the confidence in the prediction, by one round of noisy counts.

    Each bin of the confidence gets its share of correct predictions; no prediction changes (see
    `TopLabelBinning`, also for counts below 0 and empty bins).

    Privacy: the federation's unit and trust, one release with Laplace noise unless the federation
    names another mechanism. Public: the federation and all parameters.

    * Unit `example`, add/remove of one row: a row adds 1 to one of the correct and wrong counts:
      L1 sensitivity 1 (ours). With counts="correct_total", the paper's, a correct row adds 1 to
      two of them: sensitivity 2, four times the variance of the noise.
    * Unit `user`, zero-out (replace under `local`): a client's counts are clipped to `clip` in L1
      norm, all by the same factor.
    * Unit `user`, trust `local` and mechanism `unary`: each client sends the cell of one of its
      rows, by optimal unary encoding (Wang et al. 2017). No clip; a client counts once.

    Parameters
    ----------
    federation
        public facts and budget; one round
    bins
        of equal width
    counts
        "correct_wrong" or "correct_total"
    clip
        of unit `user` with privacy, in rows, and refused elsewhere; None = max(0.08 m, 1)
    rows_per_client
        m, the public nominal number of rows of a client; needed with privacy for
        unit `user` unless `clip` is given
    """

    name = "dp-histogram"
    examples = ({}, {"counts": "correct_total"})

    def __init__(
        self,
        federation: Federation,
        *,
        bins: int = 15,
        counts: Counts = "correct_wrong",
        clip: float | None = None,
        rows_per_client: float | None = None,
        **base: Any,
    ) -> None:
        check_rounds(self.name, federation, 1)
        self.classes = federation.classes
        self.bins = whole("bins", bins, 1, 2**16)
        one_of("counts", counts, get_args(Counts))
        self.counts: Counts = counts
        self.unary = federation.private and _encodes(federation)
        if self.unary and counts != "correct_wrong":
            raise InputError("mechanism 'unary' hides one cell: it needs counts = correct_wrong")
        query = self._question(federation.seed)
        if self.unary:
            unused("unary encoding sends one cell of each client", clip=clip)
            clips: tuple[float, ...] = ()
        else:
            limits = (0.08, 1.0, clip, rows_per_client)
            clips = (nominal_clip(self.name, federation, *limits),)
        self._values = np.zeros(0)
        law: type[Mechanism] = Unary if self.unary else Laplace
        order: Order = 2 if self.unary else 1
        super().__init__(plan_for(federation, query, clips, 1, order, prefers=(law,)), **base)

    @classmethod
    @override
    def needs_rows(cls, federation: Federation, settings: Mapping[str, Any]) -> bool:
        return not _encodes(federation) and super().needs_rows(federation, settings)

    @override
    def query(self, round_number: int) -> BinOutcomes | OutcomeCell:
        return self._question(self.plan.client_seed)

    def moving(self) -> dict[str, Range]:
        """Return the range of the drawn cell's seed."""
        return {"seed": SEED} if self.unary else {}

    def _question(self, seed: int) -> BinOutcomes | OutcomeCell:
        if self.unary:
            return OutcomeCell(self.bins, seed)
        return BinOutcomes(self.bins, self.counts)

    def update(self, release: Release) -> None:
        """Keep the counts; all are exactly 0 if no client was asked, or none has rows."""
        if release.values.any():
            self._values = release.values

    def result(self) -> Calibrator:
        """Return the bins' confidences as a calibrator; the identity if nothing was learned."""
        if not len(self._values):
            return Identity(self.classes)
        first, second = np.split(self._values, 2)
        return TopLabelBinning.from_counts(first, second, self.classes, self.counts)


def _encodes(federation: Federation) -> bool:
    """Return whether each client's answer is encoded, which is so only if the user asks for it."""
    asked = federation.mechanism
    return asked != AUTO and MECHANISMS[asked].answers == "onehot"
