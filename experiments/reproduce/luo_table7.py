"""Table 7 of Luo et al.: the same as Table 1 at severity 1, the least shift."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.luo.methods import COLUMNS
from experiments.luo.suite import TRIALS
from experiments.reproduce import luo
from experiments.reproduce.luo import Claim, Row
from strategies.job import Progress

SEVERITY = 1
AHEAD = 1.3
"""Acc-T's lead over the next method in the paper: 1.35."""

WORSE = ("histogram", "ece-t", "nll-t")
"""Private methods that leave the model worse than it was, in the paper."""


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
    """As `luo_table1.rows`, at severity 1."""
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
    return [*luo.summary(cells, luo.TABLE_7), *cells]


def claims(found: Sequence[Row]) -> list[Claim]:
    """Table 7's order, and what secure aggregation and other searches buy."""
    local = {
        r["method"]: r["median"] for r in found if r["what"] == "method" and r["noise"] == "local"
    }
    said = ", ".join(f"{luo.TITLES[m]} {local[m]:.4f}" for m in ("none", *WORSE))
    text = "Histogram binning, ECE-T and NLL-T leave the model worse than no recalibration"
    return [
        *luo.order_claims(found, AHEAD),
        (text, all(local[m] > local["none"] for m in WORSE), said),
        *luo.aggregation_claims(found),
        *luo.search_claims(found),
    ]
