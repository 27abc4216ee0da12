"""One temperature by a search that asks for noisy sums: Acc-T, NLL-T, ECE-T (Luo et al.)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import numpy as np

from fedcal.calibrators import TemperatureScaling
from fedcal.checks import one_of, positive, whole
from fedcal.errors import InputError
from fedcal.metrics.binning import MOST_BINS
from fedcal.numerics import log_grid
from fedcal.privacy.bounding import Bound
from fedcal.privacy.mechanisms import LAPLACIAN
from fedcal.privacy.plan import Federation, make_plan
from fedcal.query import Ask, Param
from fedcal.release import Release
from fedcal.search import Bisection, GoldenSection, PosteriorBisection, Search, interval
from fedcal.types import Floats
from strategies.base import CalibrationStrategy

Kind = Literal["golden", "bisection", "posterior", "exponential"]
Choice = Literal["auto", "golden", "bisection", "posterior", "exponential"]

_STEEP = (0.02, 0.5)
"""Public prior: change of mean confidence per unit of log T, of a row."""


class _TemperatureSearch(CalibrationStrategy):
    """What the three share: a search over [low, high] and the noise of its evaluations.

    Each round evaluates the objective at one temperature that is chosen from earlier releases;
    `exponential` asks once, for a grid of them. A subclass names its client statistic and what
    one row adds to it at most.

    Parameters
    ----------
    federation : public facts and budget. `rounds` is the number of evaluations
    search :
        "golden"       golden section, as Algorithm 1; default 6 evaluations
        "bisection"    on the sign of the noisy sum; Acc-T only; default 6
        "posterior"    on its size, too; Acc-T only; default 3
        "exponential"  one round: the exponential mechanism draws from `points` temperatures, evenly
                       spaced in log T. Trust central only
        "auto"         what measured best, see the class
    iterations : K of Algorithm 1, evaluations - 1; None = by `search`
    low, high : interval of the search
    points : of the grid of "exponential"
    clip : unit "user": what one client adds to an evaluation at most; None = by rows_per_client
    rows_per_client : public nominal number of rows of a client; needed for unit "user" with
        privacy (unless `clip` is given) and for "posterior"
    """

    statistic: ClassVar[str]
    signed: ClassVar[bool] = False
    clip_share: ClassVar[float]  # default clip, per nominal row
    least_clip: ClassVar[float]
    numbers = 1  # in an evaluation
    row_bound = 1.0  # L1 norm of what a row adds to an evaluation

    def __init__(
        self,
        federation: Federation,
        *,
        search: Choice = "golden",
        iterations: int | None = None,
        low: float = 0.5,
        high: float = 3.0,
        points: int = 101,
        clip: float | None = None,
        rows_per_client: float | None = None,
        **base: Any,
    ) -> None:
        one_of("search", search, get_args(Choice))
        self.search = self._best(federation) if search == "auto" else search
        if self.search in ("bisection", "posterior") and not self.signed:
            raise InputError(
                f"search '{self.search}' needs an objective with a sign, and {self.name} has none; "
                "allowed: golden, exponential"
            )
        self.classes = federation.classes
        self._low, self._high = interval(low, high)
        at_once = whole("points", points, 2, 4096) if self.search == "exponential" else 1
        self._grid = np.exp(log_grid(self._low, self._high, at_once))
        rounds = _evaluations(self.search, federation.rounds, iterations)
        norm = self._norm(federation, clip, rows_per_client)
        scored = self.search == "exponential"
        # a candidate's numbers are a block, or its only number
        lengths = (self.numbers,) * at_once if self.numbers > 1 else (at_once,)
        rule: Literal["per_block", "per_value", "joint"] = "joint"
        if scored:
            rule = "per_block" if self.numbers > 1 else "per_value"
        plan = make_plan(
            federation,
            rounds=rounds,
            bound=Bound(lengths, (norm,) * len(lengths), rule, 1),
            mechanism="exponential" if scored else "laplace",
            row_sums=True,
        )
        self._lengths = lengths
        self._drawn: float | None = None
        self._heard = False
        self._search: Search | None = None
        if not scored:
            noisy_sum = plan.mechanism in LAPLACIAN and plan.trust != "local"
            self._search = self._searcher(rounds, federation, rows_per_client, noisy_sum)
        super().__init__(plan, **base)

    def _best(self, federation: Federation) -> Kind:
        """The search that measured best under the run's trust model."""
        if self.signed and federation.private:
            return "posterior"
        return "exponential" if federation.trust == "central" else "golden"

    def _norm(
        self, federation: Federation, clip: float | None, rows_per_client: float | None
    ) -> float:
        """What one client, or one row, adds to an evaluation at most."""
        if federation.unit == "example":
            if clip is not None:
                raise InputError("clip is for unit 'user'; what one row adds is known")
            return self.row_bound
        if clip is not None:
            return positive("clip", clip)
        if rows_per_client is not None:
            share = self.clip_share * positive("rows_per_client", rows_per_client)
            return max(share, self.least_clip)
        if federation.private:
            raise InputError(
                f"{self.name} with unit 'user' needs rows_per_client, a public nominal number of "
                "rows > 0, or clip"
            )
        return 1.0  # not used

    def _searcher(
        self, evaluations: int, federation: Federation, rows: float | None, laplace: bool
    ) -> Search:
        if self.search == "golden":
            return GoldenSection(self._low, self._high, evaluations - 1)
        if self.search == "bisection":
            return Bisection(self._low, self._high, evaluations)
        if rows is None:
            raise InputError(
                "search 'posterior' needs rows_per_client, a public nominal number of rows > 0"
            )
        n = positive("rows_per_client", rows) * federation.clients * federation.sampling_rate
        slope = (_STEEP[0] * n, _STEEP[1] * n)
        law: Literal["laplace", "gaussian"] = "laplace" if laplace else "gaussian"
        return PosteriorBisection(self._low, self._high, evaluations, slope, law)

    def params(self) -> dict[str, Param]:
        """Further parameters of the statistic."""
        return {}

    def query(self, round_number: int) -> Ask | None:
        """The objective at the next temperature, or at all of the grid."""
        asked: float | Floats | None = self._grid
        if self._search is not None:
            asked = self._search.next()
        if asked is None:
            return None
        return Ask(self.statistic, self._lengths, {"temperatures": asked, **self.params()})

    def update(self, release: Release) -> None:
        """Tell the search, or keep the temperature that was drawn."""
        # without rows and without noise all is exactly 0, and nothing was learned
        self._heard = self._heard or bool(release.values.any()) or self.plan.private
        if self._search is None:
            index = int(release.values[0])
            if not self.plan.private:
                each = release.values.reshape(len(self._grid), -1)
                index = int(np.argmin([self.objective(values) for values in each]))
            self._drawn = float(self._grid[index])
            return
        t = self._search.next()
        if t is None:
            return
        signed = self.search in ("bisection", "posterior")
        value = float(release.values[0]) if signed else self.objective(release.values)
        self._search.tell(t, value, float(release.std[0]))

    def objective(self, values: Floats) -> float:
        """What golden section minimises, of one evaluation's numbers."""
        return float(np.abs(values).sum())

    def result(self) -> TemperatureScaling:
        """Temperature scaling by the best temperature so far; by 1 before the first release."""
        if not self._heard:
            return TemperatureScaling(1.0, self.classes)
        t = self._drawn if self._search is None else self._search.answer()
        return TemperatureScaling(1.0 if t is None else t, self.classes)


def _evaluations(search: str, rounds: int | None, iterations: int | None) -> int:
    """How many rounds a search takes."""
    if search == "exponential":
        if rounds not in (None, 1) or iterations is not None:
            raise InputError("search 'exponential' asks once: rounds must be 1, no iterations")
        return 1
    if iterations is not None:
        whole("iterations", iterations, 1)
        if rounds not in (None, iterations + 1):
            raise InputError(
                f"iterations = {iterations} take {iterations + 1} rounds, got rounds = {rounds}"
            )
        return iterations + 1
    if search == "golden" and rounds == 1:
        raise InputError("search 'golden' starts with two evaluations: rounds must be at least 2")
    return rounds or (3 if search == "posterior" else 6)


class AccT(_TemperatureSearch):
    name = "acct"
    statistic = "accuracy_gap"
    signed = True
    clip_share, least_clip = 0.08, 1.0


class NLLT(_TemperatureSearch):
    name = "nllt"
    statistic = "clipped_nll"
    clip_share, least_clip = 0.08, 1.0

    def __init__(self, federation: Federation, *, nll_clip: float = 10.0, **options: Any) -> None:
        self.row_bound = positive("nll_clip", nll_clip)
        super().__init__(federation, **options)

    def params(self) -> dict[str, Param]:
        """What a row adds at most."""
        return {"nll_clip": self.row_bound}

    def objective(self, values: Floats) -> float:
        """The sum itself: noise may make it negative, which is smaller still."""
        return float(values[0])


class ECET(_TemperatureSearch):
    name = "ecet"
    statistic = "calibration_gaps"
    clip_share, least_clip = 0.08, 1.0

    def __init__(self, federation: Federation, *, bins: int = 15, **options: Any) -> None:
        self.numbers = whole("bins", bins, 1, MOST_BINS)
        super().__init__(federation, **options)

    def params(self) -> dict[str, Param]:
        """Bins of the confidence."""
        return {"bins": self.numbers}
