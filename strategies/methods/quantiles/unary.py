"""A threshold under trust in nobody: each client encodes the bucket of one of its rows."""

from __future__ import annotations

import numpy as np

from fedcal.conformal.grids import after_last
from fedcal.conformal.levels.encoded import most_misses
from fedcal.conformal.pages.promises import of_whom
from fedcal.core.streams import Purpose, key_of, stream
from fedcal.core.types import Floats, override
from fedcal.mechanisms import MECHANISMS, Unary
from fedcal.mechanisms.unary import unary_flip
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import AUTO, Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.queries.conformal import SetCell
from fedcal.strategies.methods.quantiles.base import QuantileRule, Wanted, all_labels
from fedcal.trust import TRUSTS
from fedcal.units import UNITS

BINS = 8
"""Buckets: the noise of each is that of all clients."""


class EncodedBuckets(QuantileRule):
    """One bucket of each client, by optimal unary encoding (Wang et al. 2017), and its exact law.

    Privacy: epsilon-DP for a client's rows replaced by any others; no server need be trusted, and
    nothing is clipped. Each client's row is drawn by a hash, and sets are for such a row.
    """

    name = Unary.name

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        thresholds = self.thresholds(wanted.bins or BINS, arcs=True)
        self.opening = SetCell(federation.classes, thresholds, **{**wanted.asked, "once": True})
        self.bound, self.prefers = self.opening.bound("client"), (Unary,)

    @classmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """Return why the rule does not help, or is not the one that the settings name."""
        trust, asked = TRUSTS[str(federation.trust)], federation.mechanism
        if why := super().refuses(federation, wanted):
            return why
        if not trust.accepts(Unary) or not UNITS[federation.unit].whole_client:
            return "it is for whole clients that trust no other party"
        if asked != AUTO and MECHANISMS[asked].answers != "onehot":
            return f"it encodes answers, and '{asked}' does not"
        if wanted.apart:
            return "it encodes one bucket of a row, and by asks for several thresholds"
        if wanted.average:
            return "it counts one row of each client: omit weigh"
        return ""

    def planned(self, plan: Plan) -> None:
        """And the chance of a coin."""
        super().planned(plan)
        self._flip = unary_flip(plan.epsilon_per_release)

    def learn(self, release: Release) -> Floats:
        """Return the threshold after the last one with too many encoded misses."""
        if self.plan.unanswered(release.std):
            return all_labels(self.opening)
        buckets = len(self.opening.thresholds)
        std, flip = float(release.std.max(initial=0.0)), self._flip
        # the std is that of a count that nobody is in, of all who answered
        clients = round((std * (0.5 - flip)) ** 2 / (flip * (1.0 - flip)))
        bits = np.round(release.values * (0.5 - flip) + clients * flip)
        above = np.cumsum(bits[::-1])[::-1][1:]
        draw = stream(0, Purpose.BOOTSTRAP, 2, key_of(release.values))
        above += draw.binomial(clients * np.arange(buckets - 1), flip)
        allowed = most_misses(clients, buckets - 1, flip, self.wanted.goal)
        return np.array([after_last(self.opening.thresholds, above > allowed)])

    @override
    def reaches(self, rows: float | None) -> bool:
        f, cells = self.federation, len(self.opening.thresholds) - 1
        clients = round(f.clients * f.sampling_rate)
        allowed = most_misses(clients, cells, self._flip, self.wanted.goal)
        return allowed >= cells * clients * self._flip

    @property
    @override
    def guarantee(self) -> tuple[str, ...]:
        whose = "for one row, drawn at random, of a client that is exchangeable with these."
        return (
            of_whom(self.wanted.goal, "none", whose),
            "This counts on a row of each client that answers.",
        )
