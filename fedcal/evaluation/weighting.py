"""Unit that counts once in a release (a row, a subject or a client), and its wording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedcal.core.checks import unused, whole
from fedcal.metrics.score_table import MOST_SUBJECT_ROWS
from fedcal.units import UNITS

Estimand = Literal["rows", "these"]

ESTIMANDS: Mapping[Estimand, str] = {
    "rows": "new rows of the same clients, independent of one another",
    "these": "these rows",
}
"""Population of the intervals, in words."""

Counted = Literal["rows", "subjects", "clients"]


@dataclass(frozen=True)
class Weighting:
    """Unit that counts once.

    Attributes
    ----------
    counted
        "rows", "subjects", or "clients" where each answers by one of its rows: the plural of the
        unit
    subject_rows
        maximum number of rows that one subject counts as; see `Shards.weights`. 0 = all
    """

    counted: Counted = "rows"
    subject_rows: int = 0

    @property
    def words(self) -> str:
        """The weighting as part of a sentence."""
        return {
            "rows": "each row counts once"
            + (f", all rows of one subject as at most {self.subject_rows:,}" * self.limits),
            "subjects": "each subject counts once, whatever the number of its rows",
            "clients": "each client counts once, by one of its rows",
        }[self.counted]

    @property
    def head(self) -> str:
        """The weighting in few words, for the head of a table."""
        return self.words.split(", ")[0]

    @property
    def limits(self) -> bool:
        """True if rows of one subject may count for less."""
        return self.subject_rows > 1

    def intervals(self, estimand: Estimand) -> str:
        """Return the population of the intervals, in words."""
        if self.counted == "clients" and estimand == "rows":
            return "new clients like these"
        return ESTIMANDS[estimand].replace("rows", self.counted)


ROWS = Weighting()


def subject_rows(unit: str, asked: int | None = None) -> int:
    """Return the rows that a subject's rows count as at most: 1 unless asked; 0 = no subjects."""
    if UNITS[unit].column is None:
        unused(f"unit '{unit}' does not weight subjects", rows_per_subject=asked)
        return 0
    return whole("rows_per_subject", 1 if asked is None else asked, 1, MOST_SUBJECT_ROWS)


def counted_of(subject_rows: int) -> Counted:
    """Return what counts once where a subject's rows count as so many at most."""
    return "subjects" if subject_rows == 1 else "rows"
