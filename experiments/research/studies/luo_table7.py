"""Table 7 of Luo et al.: the same as Table 1 at severity 1, the least shift."""

from __future__ import annotations

from collections.abc import Sequence

from fedcal.experiments.research.studies import luo
from fedcal.experiments.research.studies.spec import Record, RowsClaim

SEVERITY = 1

rows = luo.table(SEVERITY, "table7")
"""The rows of the table; its parameters are those of `luo.experiment`'s."""


def claims(found: Sequence[Record]) -> list[RowsClaim]:
    """See `luo.table_claims`."""
    text = "In the median, of the private methods Acc-T alone leaves the model no worse than it was"
    return luo.table_claims(found, "table7", text, ("histogram", "ece-t", "nll-t"))
