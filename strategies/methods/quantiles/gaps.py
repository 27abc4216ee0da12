"""Thresholds from the clients' centred counts with noise: whole clients, and no draw."""

from __future__ import annotations

import numpy as np

from fedcal.conformal.grids import after_last
from fedcal.conformal.levels.crossing import client_clip
from fedcal.conformal.levels.levels import Law, centred_level, centred_pac_level
from fedcal.conformal.levels.noise_law import Noise
from fedcal.conformal.levels.weighted import weighted_level
from fedcal.conformal.pages.promises import SOURCE, of_whom
from fedcal.conformal.set_release import ANY_ROW, FAILS
from fedcal.core.types import Floats
from fedcal.mechanisms import Gaussian, Laplace
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import Federation
from fedcal.queries.conformal import SetGaps
from fedcal.strategies.methods.quantiles.base import Noisy, Wanted, all_labels
from fedcal.units import UNITS

BINS = 24
"""Thresholds: each is noisy by itself, and all share the budget."""


class NoisyGaps(Noisy):
    """Centred counts at a few thresholds, each clipped and noisy by itself (ours).

    Privacy: the plan's; unit "user" (zero-out; replace under `local`): each of a client's centred
    counts is clipped to +-C. How many rows there are is taken from the public nominal number; of
    several parts from a noisy bound.
    """

    name = "gaps"
    needs_rows = True
    takes_aim = True
    opening: SetGaps

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        self._alpha = alpha = wanted.goal.alpha
        if (wanted.apart or wanted.aim) and wanted.goal.promise == "marginal":
            self._alpha -= FAILS * alpha  # the bound of a part's number of rows may fail
        hit, need = np.ones(1), np.array([1.0 - self._alpha])
        if wanted.aim is not None:
            hit, need = wanted.aim.terms(self._alpha)
        self.opening = SetGaps(
            federation.classes,
            self.thresholds(wanted.bins or BINS),
            **wanted.asked,
            need=need,
            hit=hit,
        )
        rows = (wanted.rows_per_client or 1.0) / self.opening.parts
        self._clip = client_clip(rows, alpha) * float(hit.max())
        self.bound = self.opening.bound("client", (self._clip,))
        self._rows = super().counted()
        self.prefers = (Gaussian, Laplace)

    @classmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """Without privacy, and where rows are protected: these need no clip."""
        if why := super().refuses(federation, wanted):
            return why
        if not UNITS[federation.unit].whole_client:
            return "it protects whole clients; of rows and subjects counts are better"
        if wanted.aim is not None and wanted.aim.counted:
            return "it releases no counts of labels: give source, their public shares"
        return ""

    def learn(self, release: Release) -> Floats:
        """Return each part's threshold: the one after the last noisy count below the level."""
        asked, goal = self.opening, self.wanted.goal
        if self.plan.unanswered(release.std):
            return all_labels(asked)
        std = float(release.std.max(initial=0.0))
        noise, law = self._noise(std)
        thresholds = []
        if asked.parts > 1:  # at 1 each row counts alpha, unless it is clipped
            last = release.values.reshape(asked.parts, -1)[:, -1]
            self._rows = tuple((last / self._alpha).tolist()), std / self._alpha
        for sums in release.values.reshape(asked.parts, -1):
            off = noise.bound(np.ones(1), 1.0 - FAILS * goal.alpha)
            if self.wanted.aim is not None:
                level = weighted_level(float(asked.need.max()), float(sums[-1]) - off, law)
            elif asked.parts > 1:  # at 1 all rows are in: alpha of each, unless it is clipped
                level = self._level((float(sums[-1]) - off) / self._alpha, law)
            else:
                level = self._level(self.expected, law)
            thresholds.append(after_last(asked.thresholds, sums[:-1] < level))
        return np.array(thresholds)

    def _noise(self, std: float) -> tuple[Noise, Law]:
        """Return the noise of each number, and its distribution."""
        noise = Noise(std, self.plan.noise_law(std))
        return noise, noise.of_sums(np.eye(1))[0]

    def _level(self, fewest: float, law: Law) -> float:
        goal = self.wanted.goal
        if goal.promise == "marginal":
            return centred_level(fewest, self._alpha, law)
        return centred_pac_level(1.0, self.expected, goal.alpha, law, goal.confidence)

    def counted(self) -> tuple[tuple[float, ...], float]:
        """Return the public number of rows; with several parts the released ones."""
        return self._rows

    def reaches(self, rows: float | None) -> bool:
        """Return whether the level is at most the sum over all rows of a part."""
        each = (rows or 0.0) / self.opening.parts
        level = self._level(each, self._noise(self.std)[1])
        return level <= self._alpha * each

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Guarantee, with its assumption about clipping."""
        by = self.wanted.parts_by
        goal = self.wanted.goal
        aim = self.wanted.aim
        clipped = (
            f"An assumption: what clipping to {self._clip:.4g} rows cuts off clients that have far "
            "more misses than others, near the threshold, is a small part of all rows; coverage "
            "may be lower by that part. No release tells it."
        )
        promise = self.if_not_clipped(of_whom(goal, by, ANY_ROW, aim), self._clip)
        if aim is not None:
            more = (SOURCE,) if aim.source else ()
            return (promise, *more, clipped)
        counts_on = f"at most {self.expected:,.6g} rows in all"
        if goal.promise == "marginal":
            counts_on = f"about {self.expected:,.6g} rows in all, or more"
        return (promise, f"This counts on {counts_on}.", clipped)
