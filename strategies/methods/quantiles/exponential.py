"""A threshold by a draw, as Angelopoulos, Bates, Zrnic & Jordan (2024) have it."""

from __future__ import annotations

from dataclasses import replace

from fedcal.conformal.levels.angelopoulos import best_bins, best_gamma, inflated_level, thresholds
from fedcal.conformal.pages.promises import of_whom
from fedcal.conformal.set_release import ANY_ROW
from fedcal.core.types import override
from fedcal.privacy.federation import Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.queries.conformal import SetRanks
from fedcal.queries.encodings import MOST_BUCKETS
from fedcal.strategies.methods.quantiles.base import Drawn, Wanted
from fedcal.units import UNITS


class ExponentialQuantile(Drawn):
    """The paper's rule (`fedcal.conformal.levels.angelopoulos`), with all labels where q~ >= 1.

    Privacy: epsilon-DP, delta = 0; trust `central`. Unit "example": a row added or removed; as a
    row raises every cost by 0 to 1, the draw spends only epsilon/2 of what is charged, and the
    whole where a row is replaced. Unit "user": one row of each counts, drawn by a hash, and n is
    the number of clients. Public: n, and so the level q~; of subjects it is private.
    """

    name = "exponential"
    takes_known = True
    opening: SetRanks

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        self._n = max(round(federation.clients if self.whole_client else self.expected), 1)
        alpha = wanted.goal.alpha
        bins = wanted.bins or min(best_bins(self._n, federation.epsilon, alpha), MOST_BUCKETS)
        self.opening = SetRanks(
            federation.classes, thresholds(bins), **wanted.asked, once=self.whole_client
        )
        part = self.opening.part(federation.unit)
        self.bound = self.opening.bound(part, (1.0,) if self.whole_client else ())

    @classmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """Return why the paper's rule does not apply, or that the server does not have the sums."""
        if why := super().refuses(federation, wanted):
            return why
        if wanted.goal.promise != "marginal":
            return "it covers in the mean, and guarantee 'pac' asks for more"
        if wanted.average:
            return "it counts rows, and weigh = 'clients' counts clients"
        if federation.sampling_rate < 1:
            return "its number of rows must be public, and sampling hides it"
        unit = UNITS[federation.unit]
        if unit.column is not None:
            return f"its n must be public, and how many {unit.plural} there are is not"
        if not unit.whole_client and not wanted.rows_known:
            return "its number of rows must be public: --set rows_known=true, rows_per_client=..."
        return ""

    def planned(self, plan: Plan) -> None:
        """gamma* and q~, by the epsilon of the draw."""
        m, epsilon, alpha = len(self.opening.thresholds), plan.epsilon_per_release, self._alpha
        gamma = best_gamma(self._n, m, epsilon, alpha)
        self.level = inflated_level(self._n, m, epsilon, alpha, gamma)
        self.enough = self.level < 1
        if self.enough:
            self.opening = replace(self.opening, quantile=float(self.level))

    @property
    def _alpha(self) -> float:
        return self.wanted.goal.alpha

    @override
    def reaches(self, rows: float | None) -> bool:
        return self.enough

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Theorem 2 of the paper."""
        lines = []
        if not self.enough:
            lines.append(
                f"Sets hold all labels: with {self._n:,} rows this budget is too small for a share "
                f"of {1 - self._alpha:.4g}."
            )
        whose = ANY_ROW
        if self.opening.once:
            whose = "for one row, drawn at random, of a unit that is exchangeable with these."
        lines.append(of_whom(self.wanted.goal, "none", whose))
        whom = "clients, all of which have a row" if self.whole_client else "rows"
        lines.append(
            f"The number of {whom}, {self._n:,}, was treated as public and exact: with another "
            "number this does not hold."
        )
        return tuple(lines)
