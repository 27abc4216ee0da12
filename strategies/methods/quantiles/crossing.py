"""A threshold by a draw: where the clients' centred counts cross a level."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedcal.conformal.levels.crossing import OF_CLIENTS, OF_ROWS, Draw, client_clip
from fedcal.conformal.levels.levels import Shortfall, centred_pac_level
from fedcal.conformal.pages.promises import SOURCE, of_whom
from fedcal.core.types import Floats, override
from fedcal.mechanisms import Exponential
from fedcal.privacy.federation import AUTO, Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.queries.conformal import SetGaps
from fedcal.strategies.methods.quantiles.base import Drawn, Wanted


class Crossing(Drawn):
    """Exponential mechanism on the cost of the crossing (`fedcal.conformal.levels.crossing`; ours).

    Privacy: epsilon-DP, delta = 0; trust `central`. Unit "user" (zero-out): each of a client's
    centred counts is clipped to +-C; unit "example" (add/remove): a row adds alpha or takes
    1 - alpha, and nothing is clipped; unit "subject": one of a subject's rows counts, drawn by a
    hash. How many rows there are is not released. Clients that count equally are not clipped: where
    they have few rows each, many have nothing but misses.
    """

    name = "crossing"
    needs_rows = True
    takes_aim = True
    opening: SetGaps

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        alpha, rows = wanted.goal.alpha, wanted.rows_per_client or 1.0
        hit: Floats = np.ones(1)
        need: Floats = np.array([1.0 - alpha])
        if wanted.aim is not None:
            hit, need = wanted.aim.terms(alpha)
        if wanted.average:
            need, hit = need * rows, hit * rows
        self._clip = float(np.maximum(hit - need, np.abs(need)).max())
        clips = self.whole_client and not wanted.average
        if clips:
            self._clip = client_clip(rows, alpha) * float(hit.max())
        spacing = OF_CLIENTS if clips else OF_ROWS
        self._draw = Draw.of(alpha * self.expected, 2.0 * self._clip / federation.epsilon, spacing)
        if wanted.bins:
            self._draw = Draw(wanted.bins, self._draw.tilt * self._draw.candidates / wanted.bins)
        self._need = float(need.max())
        self.opening = SetGaps(
            federation.classes,
            self.thresholds(self._draw.candidates),
            **wanted.asked,
            once=self.one_row_each,
            need=need,
            hit=hit,
            average=wanted.average,
        )
        part = self.opening.part(federation.unit)
        self.bound = self.opening.bound(part, (self._clip,) if self.whole_client else ())

    @classmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """Without privacy, for several thresholds, and where the server does not have the sums."""
        if why := super().refuses(federation, wanted):
            return why
        if wanted.aim is not None and wanted.aim.counted:
            return "it releases no counts of labels: give source, their public shares"
        if federation.mechanism not in (AUTO, Exponential.name):
            return f"it draws by '{Exponential.name}', not by '{federation.mechanism}'"
        return ""

    def planned(self, plan: Plan) -> None:
        """Compute the level from the epsilon of the draw."""
        norm = max(self.bound.norms) * plan.diameter
        self._scale = 2.0 * norm / plan.epsilon_per_release
        goal = self.wanted.goal
        if goal.promise == "marginal":
            whole_rows = not (self.wanted.average or self.wanted.aim)
            level = self._need + self._draw.slack(self._scale, whole_rows=whole_rows)
        else:
            law = Shortfall(self._draw.weight, self._scale)
            level = centred_pac_level(1.0, self.expected, goal.alpha, law, goal.confidence)
        self.slack = level - self._need
        self.enough = self.reaches(self.expected)
        self.opening = replace(
            self.opening, level=float(level), tilt=float(self._draw.tilt * self._scale)
        )

    @override
    def reaches(self, rows: float | None) -> bool:
        one = (self.wanted.rows_per_client or 1.0) if self.wanted.average else 1.0
        return self.slack <= self.wanted.goal.alpha * ((rows or 0.0) + one)

    @override
    def _fewest(self, parts: int) -> int:
        return math.ceil(self.slack / self.wanted.goal.alpha)

    @property
    @override
    def guarantee(self) -> tuple[str, ...]:
        goal, rows = self.wanted.goal, self.expected
        fewest, noun = self.slack / goal.alpha, "rows"
        if self.wanted.average:
            each = self.wanted.rows_per_client or 1.0
            rows, fewest, noun = rows / each, fewest / each, "clients"
        elif self.one_row_each:
            noun = "subjects"
        fewest = math.ceil(fewest)
        lines = []
        if not self.enough:
            lines.append(
                f"Sets hold all labels: with {rows:.6g} {noun} this budget is too small for a "
                f"share of {1 - goal.alpha:.4g}; {fewest:,} {noun} would do."
            )
        whose = self.whose
        if self.wanted.average:
            whose = "for a row of a new client that is exchangeable with these clients."
        aim = self.wanted.aim
        clips = self.whole_client and not self.wanted.average
        promise = of_whom(goal, "none", whose, aim)
        lines.append(self.if_not_clipped(promise, self._clip) if clips else promise)
        if aim is not None and aim.kind == "among":
            noun += " with such a label"
        if aim is not None and aim.source:
            lines.append(SOURCE)
        if goal.promise == "marginal":
            lines.append(f"This counts on at least {fewest:,} {noun} in all.")
        else:
            lines.append(f"This counts on at most {rows:,.6g} {noun} in all.")
        if clips:
            lines.append(
                f"An assumption: the part that clipping to {self._clip:.4g} rows cuts off the "
                "clients that have far more misses than others, near the threshold, is a small "
                "part of all rows (0.0001 to 0.002 on the shipped data); coverage may be lower "
                "by that part. No release tells it."
            )
            lines.append(
                "A client that is not among these may be covered less often: --set weigh=clients "
                "is for new clients."
            )
        return tuple(lines)
