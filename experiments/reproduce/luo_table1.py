"""Table 1 of Luo et al.: median and mean ECE over all perturbations of severity 5 and settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.luo.methods import COLUMNS
from experiments.luo.suite import TRIALS
from experiments.reproduce import luo
from experiments.reproduce.luo import Claim, Row
from strategies.job import Progress

SEVERITY = 5
AHEAD = 1.3
"""Acc-T's lead over the next method in the paper: 1.35 (CIFAR-100), 1.38, 2.07 (ImageNet)."""


def rows(
    data: Sequence[str] | None = None,
    out: Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
    *,
    trials: int = TRIALS,
    every: int = 1,
) -> list[Row]:
    """Summaries, then the cells they are made of; `what` tells them apart.

    Parameters
    ----------
    data : files, one for each perturbation; None = the shipped ones
    out, resume, jobs, ray_address, progress, trials, every : see `luo.cells`
    """
    cells = luo.cells(
        data or luo.shifted(SEVERITY),
        COLUMNS,
        out=out,
        resume=resume,
        jobs=jobs,
        ray_address=ray_address,
        progress=progress,
        trials=trials,
        every=every,
    )
    return [*luo.summary(cells, luo.TABLE_1), *cells]


def claims(found: Sequence[Row]) -> list[Claim]:
    """Table 1's order, and what secure aggregation and other searches buy."""
    return [
        *luo.order_claims(found, AHEAD),
        *luo.aggregation_claims(found),
        *luo.search_claims(found),
    ]
