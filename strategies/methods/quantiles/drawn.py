"""Thresholds by looking ever closer at exact sums, or by a draw of the exponential mechanism."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedcal.clients.questions import SetGaps, SetRanks
from fedcal.conformal.levels.angelopoulos import best_bins, best_gamma, inflated_level, thresholds
from fedcal.conformal.levels.levels import OF_CLIENTS, OF_ROWS, Draw, client_clip
from fedcal.conformal.page import SOURCE
from fedcal.conformal.sets import ALL_LABELS
from fedcal.core.types import Floats, override
from fedcal.mechanisms import Exponential, Gaussian
from fedcal.metrics.encodings import MOST_BUCKETS
from fedcal.privacy.curator import Release
from fedcal.privacy.declared import Question, Range
from fedcal.privacy.federation import AUTO, Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.strategies.methods.quantiles.base import QuantileRule, Wanted
from fedcal.trust import TRUSTS
from fedcal.units import UNITS
from fedcal.units.bounding import Bound

POINTS = 100
"""Thresholds of a round: six rounds find a score up to 1e-12, which scores are rounded to."""


class Exact(QuantileRule):
    """The ceil((n + 1) (1 - alpha))-th smallest score of each part (Papadopoulos et al. 2002).

    Each round asks for the sums at thresholds between the last one that is too low and the first
    one that is not; of several parts all thresholds are asked of all. For other label shares the
    sums are of each label, and put together here (`fedcal.conformal.label_shift`).
    """

    name = "exact"
    rounds = 6
    opening: SetGaps

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        by_label = {"by": "class"} if wanted.shift else {}
        self.opening = SetGaps(
            federation.classes,
            np.array([0.5, 1.0]),
            **{**wanted.asked, **by_label},
            need=np.zeros(1),  # whole numbers of rows, which the ring adds up exactly
        )
        parts = 1 if wanted.shift else self.opening.parts
        self._low, self._high = np.full(parts, -1.0), np.ones(parts)
        self._each = max(POINTS // parts, 16)
        self.fewest = math.ceil(round((1.0 - self.alpha) / self.alpha, 9))
        self._ask()
        self.bound, self.prefers = Bound(self.opening.lengths()), (Gaussian,)

    @classmethod
    @override
    def obstacles(cls, federation: Federation, wanted: Wanted) -> dict[str, bool]:
        sampled = federation.sampling_rate < 1
        return {
            "it releases exact sums, and the run promises privacy": federation.private,
            "its rounds look ever closer at the same rows, and sampling takes others": sampled,
            "its number of thresholds is not open to choice": bool(wanted.bins),
        }

    def _ask(self) -> None:
        """Take thresholds between low and high, of every part."""
        between = [
            np.linspace(max(low, 0.0), high, self._each + 1)[0 if low < 0 else 1 :]
            for low, high in zip(self._low, self._high, strict=True)
        ]
        thresholds = np.unique(np.concatenate([*between, [1.0]]))
        self.opening = replace(self.opening, thresholds=thresholds)

    def questions(self) -> tuple[Question, ...]:
        """Return questions for sums at any thresholds."""
        most = len(self._low) * (self._each + 1) + 1
        longest = replace(self.opening, thresholds=np.linspace(0.0, 1.0, most))
        within = Range(0.0, 1.0, 1, most)
        return (Question.like(longest, (1, self.rounds), thresholds=within),)

    def learn(self, release: Release) -> Floats:
        """Return the first threshold with enough rows below it."""
        thresholds = self.opening.thresholds
        sums = release.values.reshape(self.opening.parts, -1)
        rows = np.round(sums[:, -1])  # at 1 all are in
        self.counted = tuple(rows.tolist()), 0.0
        levels = [self._level(int(n)) for n in rows]
        if shift := self.wanted.shift:
            need = (1.0 - self.alpha) * shift.weights
            sums, levels = (shift.weights @ sums - need @ rows)[None], [float(need.max())]
        for part, each in enumerate(sums):
            enough = np.flatnonzero(each >= levels[part] - 1e-6 * min(1.0, abs(levels[part])))
            if not len(enough):
                self._low[part] = self._high[part] = 1.0
                continue
            first = int(enough[0])
            self._high[part] = thresholds[first]
            self._low[part] = thresholds[first - 1] if first else self._low[part]
        self._ask()
        return self._high.copy()

    def _level(self, rows: int) -> float:
        """Return the sum that a threshold must reach; if it exceeds the rows, all labels are in."""
        return (rows + 1) * (1.0 - self.alpha)

    def reaches(self, rows: float | None) -> bool:
        """Return whether the rank exists in a part with as many rows as the others."""
        each = int((rows or 0.0) / len(self._low))
        return self._level(each) <= each

    @property
    @override
    def whose(self) -> str:
        return "for a row that is exchangeable with the clients' rows."

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Guarantee of split conformal prediction."""
        return (self.promise,)


class Drawn(QuantileRule):
    """A rule whose threshold is drawn by the exponential mechanism.

    Attributes
    ----------
    enough
        whether public numbers allow for sets that do not hold all labels
    """

    prefers = (Exponential,)
    enough: bool

    @classmethod
    @override
    def obstacles(cls, federation: Federation, wanted: Wanted) -> dict[str, bool]:
        trust, asked = str(federation.trust), federation.mechanism
        unseen = not TRUSTS[trust].accepts(Exponential)
        other = asked not in (AUTO, Exponential.name)
        return super().obstacles(federation, wanted) | {
            "it draws one threshold, and by asks for several": wanted.apart,
            f"under trust '{trust}' the server does not have the exact sums": unseen,
            f"it draws by '{Exponential.name}', not by '{asked}'": other,
        }

    def learn(self, release: Release) -> Floats:
        """Return the drawn threshold, or all labels if public numbers say that rows are too few."""
        drawn = float(self.opening.thresholds[int(release.values[0])])
        return np.array([drawn if self.enough else ALL_LABELS])

    def too_few(self, rows: float, noun: str, more: str = "") -> list[str]:
        """Return the sentence that sets hold all labels, if they do."""
        if self.enough:
            return []
        return [
            f"Sets hold all labels: with {rows:,.6g} {noun} this budget is too small for a share "
            f"of {1 - self.alpha:.4g}{more}."
        ]


class Crossing(Drawn):
    """Exponential mechanism on the cost of the crossing (`fedcal.conformal.levels.levels`; ours).

    Privacy: epsilon-DP, delta = 0; trust `central`. Unit "user" (zero-out): each of a client's
    centred counts is clipped to +-C; unit "example" (add/remove): a row adds alpha or takes
    1 - alpha, and nothing is clipped; unit "subject": one of a subject's rows counts, drawn by a
    hash. How many rows there are is not released.
    """

    name = "crossing"
    needs_rows = True
    opening: SetGaps

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        hit = np.ones(1) if wanted.shift is None else wanted.shift.weights
        need = (1.0 - self.alpha) * hit
        self._clip = float(np.maximum(hit - need, need).max())
        if self.whole_client:
            rows = wanted.rows_per_client or 1.0
            self._clip = client_clip(rows, self.alpha) * float(hit.max())
        spacing = OF_CLIENTS if self.whole_client else OF_ROWS
        scale = 2.0 * self._clip / federation.epsilon
        self._draw = Draw.of(self.alpha * self.expected, scale, spacing)
        if wanted.bins:
            self._draw = Draw(wanted.bins, self._draw.tilt * self._draw.candidates / wanted.bins)
        self.opening = SetGaps(
            federation.classes,
            self.thresholds(self._draw.candidates),
            **wanted.asked,
            once=self.one_row_each,
            need=need,
            hit=hit,
        )
        part = self.opening.part(federation.unit)
        self.bound = self.opening.bound(part, (self._clip,) if self.whole_client else ())

    def planned(self, plan: Plan) -> None:
        """Compute the level from the epsilon of the draw."""
        scale = 2.0 * max(self.bound.norms) * plan.diameter / plan.epsilon_per_release
        self.slack = self._draw.slack(scale, whole_rows=self.wanted.shift is None)
        self.enough, self.fewest = self.reaches(self.expected), math.ceil(self.slack / self.alpha)
        level = float(np.max(self.opening.need)) + self.slack
        self.opening = replace(self.opening, level=level, tilt=float(self._draw.tilt * scale))

    @override
    def reaches(self, rows: float | None) -> bool:
        return self.slack <= self.alpha * ((rows or 0.0) + 1.0)

    @property
    @override
    def guarantee(self) -> tuple[str, ...]:
        lines = self.too_few(self.expected, self.noun, f"; {self.fewest:,} {self.noun} would do")
        promise, clipped = self.promise, list[str]()
        if self.whole_client:
            promise, *clipped = self.clipped(self._clip, " (0.0001 to 0.002 on the shipped data)")
        lines += [promise] if self.wanted.shift is None else [promise, SOURCE]
        lines += [f"This counts on at least {self.fewest:,} {self.noun} in all.", *clipped]
        if self.whole_client:
            lines.append("A client that is not among these may be covered less often.")
        return tuple(lines)


class ExponentialQuantile(Drawn):
    """The paper's rule (`fedcal.conformal.levels.angelopoulos`), with all labels where q~ >= 1.

    Privacy: epsilon-DP, delta = 0; trust `central`. Unit "example": a row added or removed; as a
    row raises every cost by 0 to 1, the draw spends only epsilon/2 of what is charged, and the
    whole where a row is replaced. Unit "user": one row of each counts, drawn by a hash, and n is
    the number of clients. Public: n, and so the level q~; of subjects it is private.
    """

    name = "exponential"
    takes_known, takes_shift = True, False
    opening: SetRanks

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        self._n = max(round(federation.clients if self.whole_client else self.expected), 1)
        bins = wanted.bins or best_bins(self._n, federation.epsilon, self.alpha)
        self.opening = SetRanks(
            federation.classes,
            thresholds(min(bins, MOST_BUCKETS)),
            **wanted.asked,
            once=self.whole_client,
        )
        part = self.opening.part(federation.unit)
        self.bound = self.opening.bound(part, (1.0,) if self.whole_client else ())

    @classmethod
    @override
    def obstacles(cls, federation: Federation, wanted: Wanted) -> dict[str, bool]:
        unit = UNITS[federation.unit]
        private, unknown = unit.column is not None, not (unit.whole_client or wanted.rows_known)
        return super().obstacles(federation, wanted) | {
            "its n must be public, and sampling hides it": federation.sampling_rate < 1,
            f"its n must be public, and how many {unit.plural} there are is not": private,
            "its n must be public: --set rows_known=true, rows_per_client=...": unknown,
        }

    def planned(self, plan: Plan) -> None:
        """gamma* and q~, by the epsilon of the draw."""
        m, epsilon = len(self.opening.thresholds), plan.epsilon_per_release
        gamma = best_gamma(self._n, m, epsilon, self.alpha)
        self.level = inflated_level(self._n, m, epsilon, self.alpha, gamma)
        self.enough = self.level < 1
        if self.enough:
            self.opening = replace(self.opening, quantile=float(self.level))

    @override
    def reaches(self, rows: float | None) -> bool:
        return self.enough

    @property
    @override
    def whose(self) -> str:
        if not self.whole_client:
            return super().whose
        return "for one row, drawn at random, of a unit that is exchangeable with these."

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Theorem 2 of the paper."""
        whom = "clients, all of which have a row" if self.whole_client else "rows"
        return (
            *self.too_few(self._n, "rows"),
            self.promise,
            f"The number of {whom}, {self._n:,}, was treated as public and exact: with another "
            "number this does not hold.",
        )
