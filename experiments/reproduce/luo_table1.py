"""Table 1 of Luo et al.: median and mean ECE over all perturbations of severity 5 and settings."""

from __future__ import annotations

from collections.abc import Sequence

from fedcal.experiments.luo.methods import COLUMNS
from fedcal.experiments.reproduce import luo
from fedcal.experiments.reproduce.luo import Row
from fedcal.experiments.reproduce.spec import RowsClaim

SEVERITY = 5
AHEAD = 1.3
"""Acc-T's lead over the next method in the paper: 1.35 (CIFAR-100), 1.38, 2.07 (ImageNet)."""


def summary(cells: list[Row]) -> list[Row]:
    """Summaries, then the cells they are made of; `what` tells them apart."""
    return [*luo.summary(cells, luo.printed("table1")), *cells]


rows = luo.experiment(SEVERITY, COLUMNS, summary)
"""The rows of the table; its parameters are those of `luo.experiment`'s."""


def claims(found: Sequence[Row]) -> list[RowsClaim]:
    """Table 1's order, and what secure aggregation and other searches buy."""
    return [
        *luo.order_claims(found, luo.printed("table1"), AHEAD),
        luo.harm_claim(
            found,
            luo.printed("table1"),
            "No private method leaves the model worse than no recalibration, in the median",
            (),
        ),
        *luo.aggregation_claims(found),
        *luo.search_claims(found),
    ]
