"""Thresholds for every alpha, from one release of noisy counts."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fedcal.buckets import equal_width
from fedcal.conformal.noise import Noise
from fedcal.conformal.release import SetRelease
from fedcal.encodings import decoder_of
from fedcal.errors import InputError
from fedcal.mechanisms import MECHANISMS
from fedcal.privacy.federation import AUTO, Federation
from fedcal.privacy.plan import Plan
from fedcal.queries.conformal import SetCounts
from fedcal.release import Release
from fedcal.strategies.encoding_choice import quietest
from fedcal.strategies.quantiles.base import QuantileRule, Wanted, all_labels, draws_of, of_whom
from fedcal.types import Floats
from fedcal.units import UNITS

BINS, BINS_OF_PARTS = 256, 64
"""Thresholds, of one part and of several: at so many the grid adds at most 0.2 and 0.8 points of
coverage to evenly spread scores."""


class PrefixCounts(QuantileRule):
    """Counts of rows by score, encoded for prefix sums, and the exact law of their noise (ours).

    Privacy: the plan's, by the noise on all counts together; unit "example" (add/remove of a row,
    which is a 1 in one count) and unit "subject" (one of a subject's rows counts, drawn by a
    hash). With the number of rows private the level suits a noisy bound of it.
    """

    name = "prefix"
    takes_known = True

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        bins = wanted.bins or (BINS_OF_PARTS if wanted.apart else BINS)
        law, encoding, height = quietest(federation, bins, 1)
        self.opening = self._query = SetCounts(
            federation.classes,
            spread_thresholds(bins),
            **wanted.score,
            once=self.one_row_each,
            encoding=encoding,
            height=height,
        )
        part = self._query.part(federation.unit)
        self.bound, self.prefers = self._query.bound(part, (), law.order), (law,)
        self._release: SetRelease | None = None

    @classmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """Without privacy, and for whole clients: their counts are of more than one row."""
        if not federation.private:
            return "nothing is private here: the exact rule serves"
        if UNITS[federation.unit].whole_client:
            return "it protects rows, or subjects, not whole clients"
        if federation.mechanism != AUTO and MECHANISMS[federation.mechanism].answers != "sum":
            return f"it releases sums, which '{federation.mechanism}' does not make noisy"
        if wanted.average:
            return "it counts rows, and weigh = 'clients' counts clients"
        return ""

    def planned(self, plan: Plan) -> None:
        """Hear how many draws are in the noise of a sum."""
        self._plan = plan

    def query(self, number: int) -> SetCounts:
        """The counts."""
        return self._query

    def learn(self, release: Release) -> Floats:
        """Thresholds from the counts."""
        std = float(release.std.max(initial=0.0))
        if not std:
            return all_labels(self._query)  # trust `local`, and nobody was asked
        rows = round(self.expected) if self.wanted.known else None
        self._release = self._of(self._query.decode(release.values), std, rows)
        return self._release.found(self.wanted.goal)

    def _of(self, counts: Floats, std: float, rows: int | None) -> SetRelease:
        """A release of (parts, bins) counts, with so much noise on the sums."""
        asked, law = self._query, self._plan.law
        noise = Noise(std / asked.gain, law.tailed, draws_of(self._plan, std))
        decoder = decoder_of(asked.encoding, asked.buckets, asked.height)
        return SetRelease(np.asarray(asked.thresholds), counts, decoder, noise, rows)

    def reaches(self, rows: float | None) -> bool:
        """What is found of counts without noise, of rows whose scores all are least."""
        if rows is None:
            return True
        counts = np.zeros((self._query.parts, self._query.buckets))
        counts[:, 0] = rows / len(counts)
        known = round(rows) if self.wanted.known else None
        found = self._of(counts, max(self._plan.noise_std or (0.0,)), known)
        return bool((found.found(self.wanted.goal) < 1).any())

    @property
    def release(self) -> SetRelease | None:
        """The counts."""
        return self._release

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Exact: of exchangeable rows, and the law of the noise."""
        whose = "for a row that is exchangeable with all clients' rows taken together."
        if self.one_row_each:
            whose = (
                "for one row, drawn at random, of a subject that is exchangeable with all clients' "
                "subjects taken together."
            )
        by = str(self.wanted.score.get("by", "none"))
        if by != "none":
            whose = whose.replace("all clients' rows taken together", "the clients' rows there")
        found = [of_whom(self.wanted.goal, by, whose)]
        if self.wanted.known:
            found.append(
                f"The number of rows, {round(self.expected):,}, was taken for public and exact: "
                "with another one this does not hold."
            )
        return tuple(found)

    @property
    def facts(self) -> Mapping[str, float]:
        """The largest noise std of a prefix sum, in rows."""
        if self._release is None:
            return {}
        return {"prefix_std": self._release.prefix_std, "total_std": self._release.total_std}


def spread_thresholds(bins: int) -> Floats:
    """Thresholds evenly spaced in arcsin sqrt(score), the last one 1, (bins,).

    Scores of good models crowd at 0, and those by order at 1.
    """
    if bins < 2:
        raise InputError(f"bins must be a whole number >= 2, got {bins}")
    found = np.sin(equal_width(bins)[1:] * (math.pi / 2)) ** 2
    found[-1] = 1.0
    return np.asarray(found)
