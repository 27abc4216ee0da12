"""Thresholds for every alpha, from one release of noisy counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedcal.conformal.levels.noise_law import Noise
from fedcal.conformal.pages.promises import of_release, of_whom
from fedcal.conformal.pages.reported import Reported
from fedcal.conformal.set_release import SetRelease, thresholds_of
from fedcal.conformal.sets import ALL_LABELS
from fedcal.core.types import Floats, override
from fedcal.privacy.curator import Release
from fedcal.privacy.federation import Federation
from fedcal.queries.conformal import SetCounts
from fedcal.queries.declared import Question, Range
from fedcal.queries.encodings import column_norm
from fedcal.queries.evaluation import names_text
from fedcal.strategies.methods.quantiles.base import Noisy, Wanted, all_labels
from fedcal.strategies.methods.quantiles.encoding_choice import quietest
from fedcal.units import UNITS

BINS, BINS_OF_PARTS = 256, 64
"""Thresholds, of one part and of several: at so many the grid adds at most 0.2 and 0.8 points of
coverage to evenly spread scores."""


class PrefixCounts(Noisy):
    """Counts of rows by score, encoded for prefix sums, and the exact law of their noise (ours).

    Privacy: the plan's, by the noise on all counts together; unit "example" (add/remove of a row,
    which is a 1 in one count) and unit "subject" (one of a subject's rows counts, drawn by a
    hash). With the number of rows private the level suits a noisy bound of it.
    """

    name = "prefix"
    takes_known, takes_aim, takes_report = True, True, True
    opening: SetCounts

    def __init__(self, federation: Federation, wanted: Wanted) -> None:
        super().__init__(federation, wanted)
        by_label = {"by": "class"} if wanted.aim else {}
        apart = wanted.apart or wanted.aim is not None
        bins = wanted.bins or (BINS_OF_PARTS if apart else BINS)
        self.rounds = 2 if wanted.report else 1
        law, encoding, height = quietest(federation, bins, self.rounds)
        asked = SetCounts(
            federation.classes,
            self.thresholds(bins, arcs=True),
            **{**wanted.asked, **by_label},
            once=self.one_row_each,
            encoding=encoding,
            height=height,
        )
        norm = column_norm(encoding, bins, height, law.order)
        if wanted.aim is not None and wanted.aim.counted:
            asked = replace(asked, totals=norm)
        self.opening = self._second = asked
        if wanted.report:
            if asked.totals:
                norm *= 2.0 ** (1.0 / law.order)
            self._make_second(norm)
        part = self.opening.part(federation.unit)
        self.bound, self.prefers = self.opening.bound(part, (), law.order), (law,)
        self._release: SetRelease | None = None
        self._reported: Reported | None = None
        self._found = all_labels(self.opening)

    def _make_second(self, norm: float) -> None:
        """Make the last round's question, at one threshold; both answers get the same length."""
        asked = self.opening
        parts: dict[str, Any] = {"by": "group", "groups": names_text(self.wanted.report)}
        flat: dict[str, Any] = {"encoding": "flat", "height": 1, "totals": 0.0, "gain": norm}
        second = replace(asked, thresholds=np.array([0.5, 1.0]), **parts, **flat)
        first, then = (sum(q.lengths()) for q in (asked, second))
        self.opening = replace(asked, pad=max(0, then - first))
        self._second = replace(second, pad=max(0, first - then))

    @classmethod
    def refuses(cls, federation: Federation, wanted: Wanted) -> str:
        """Without privacy, and for whole clients: their counts are of more than one row."""
        if why := super().refuses(federation, wanted):
            return why
        if UNITS[federation.unit].whole_client:
            return "it protects rows, or subjects, not whole clients"
        if wanted.rows_known and wanted.aim is not None:
            return "rows that count by their label are counted: rows_known has no effect"
        if wanted.rows_known and wanted.apart:
            return "the rows of each part are counted: rows_known is for all parts together"
        return ""

    def query(self, number: int) -> SetCounts | None:
        """Return the question for the counts; in the last round for those of each group."""
        if number == 1:
            return self.opening
        threshold = float(self._found[0])
        if threshold >= ALL_LABELS:
            return None  # all rows are covered
        return replace(self._second, thresholds=np.array([threshold, 1.0]))

    def questions(self) -> tuple[Question, ...]:
        """Return the questions for the counts, and for those on both sides of any threshold."""
        first = Question.like(self.opening, (1, 1))
        if self.rounds == 1:
            return (first,)
        return first, Question.like(self._second, (2, 2), thresholds=Range(0.0, 1.0))

    def learn(self, release: Release) -> Floats:
        """Thresholds from the counts."""
        if self.plan.unanswered(release.std):
            return self._found
        std = float(release.std.max(initial=0.0))
        if release.round == 1:
            self._release = self._made(release, std)
            self._found = thresholds_of(self._release, self.wanted.goal, self.wanted.aim)
        else:
            counts, names = self._second.decode(release.values), self._second.names
            self._reported = Reported(names, counts[: len(names)], std / self._second.gain)
        return self._found

    def _made(self, release: Release, std: float) -> SetRelease:
        asked, plan = self.opening, self.plan
        noise = Noise(std / asked.gain, plan.noise_law(std))
        labels = asked.rows_of(release.values) if asked.totals else None
        return SetRelease(
            np.asarray(asked.thresholds),
            asked.decode(release.values),
            asked.decoder,
            noise,
            round(self.expected) if self.wanted.rows_known else None,
            self.whose,
            labels,
            std / (asked.totals * asked.gain) if asked.totals else 0.0,
        )

    @property
    def reported(self) -> Reported | None:
        """Coverage by group, from the last round or from the same counts."""
        return self._reported

    def reaches(self, rows: float | None) -> bool:
        """Return whether exact counts of rows that all have the least score give a threshold."""
        if rows is None:
            return True
        nothing = np.zeros(sum(self.opening.lengths()))
        made = self._made(Release(1, self.opening.kind, nothing, nothing), self.std)
        counts = np.zeros_like(made.counts)
        counts[:, 0] = rows / len(counts)
        known = None if made.rows is None else round(rows)
        ideal = replace(made, counts=counts, rows=known)
        return bool((ideal.found(self.wanted.goal) < 1).any())

    @property
    @override
    def release(self) -> SetRelease | None:
        return self._release

    @override
    def counted(self) -> tuple[tuple[float, ...], float]:
        if (release := self._release) is None:
            return (), 0.0
        return tuple(release.total.tolist()), release.total_std

    @property
    @override
    def whose(self) -> str:
        if not self.wanted.apart:
            return super().whose
        return super().whose.replace("all clients' rows taken together", "the clients' rows there")

    @property
    def guarantee(self) -> tuple[str, ...]:
        """Exact: of exchangeable rows, and the law of the noise."""
        w = self.wanted
        by = w.parts_by
        if self._release is None:
            return (of_whom(w.goal, by, self.whose, w.aim),)
        return of_release(self._release, w.goal, by, w.aim)
