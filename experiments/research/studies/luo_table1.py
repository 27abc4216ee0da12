"""Table 1 of Luo et al.: median and mean ECE over all perturbations of severity 5 and settings."""

from __future__ import annotations

from collections.abc import Sequence

from fedcal.experiments.research.studies import luo
from fedcal.experiments.research.studies.spec import Record, RowsClaim

SEVERITY = 5

rows = luo.table(SEVERITY, "table1")
"""The rows of the table; its parameters are those of `luo.experiment`'s."""


def claims(found: Sequence[Record]) -> list[RowsClaim]:
    """See `luo.table_claims`."""
    text = "No private method leaves the model worse than no recalibration, in the median"
    return luo.table_claims(found, "table1", text, ())
