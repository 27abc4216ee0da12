"""Table 7 of Luo et al.: the same as Table 1 at severity 1, the least shift."""

from __future__ import annotations

from collections.abc import Sequence

from fedcal.experiments.luo.methods import COLUMNS
from fedcal.experiments.reproduce import luo
from fedcal.experiments.reproduce.luo import Row
from fedcal.experiments.reproduce.spec import RowsClaim

SEVERITY = 1
AHEAD = 1.3
"""Acc-T's lead over the next method in the paper: 1.35."""

WORSE = ("histogram", "ece-t", "nll-t")
"""Private methods that leave the model worse than it was, in the paper."""


def summary(cells: list[Row]) -> list[Row]:
    """Summaries, then the cells they are made of; `what` tells them apart."""
    return [*luo.summary(cells, luo.printed("table7")), *cells]


rows = luo.experiment(SEVERITY, COLUMNS, summary)
"""The rows of the table; its parameters are those of `luo.experiment`'s."""


def claims(found: Sequence[Row]) -> list[RowsClaim]:
    """Table 7's order, and what secure aggregation and other searches buy."""
    text = "In the median, of the private methods Acc-T alone leaves the model no worse than it was"
    return [
        *luo.order_claims(found, luo.printed("table7"), AHEAD),
        luo.harm_claim(found, luo.printed("table7"), text, WORSE),
        *luo.aggregation_claims(found),
        *luo.search_claims(found),
    ]
