"""What trust models and units cost: each method under each of them at epsilon = 1. Our own study.

100 clients with 50 rows each, drawn by Dirichlet(0.1); methods with their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from experiments.comparison import compare
from strategies.job import Progress

Row = dict[str, Any]

DATA = "resnet110-cifar10"
BASELINES = ("none", "pooled-temperature")
METHODS = ("fednewton", "fedoneshot", "fedtemp", "acct", "dp-histogram", "nllt", "ecet")
UNITS = ("user", "example")
TRUSTS = ("central", "distributed", "local")
SEEDS = 5


def rows(
    seeds: int = SEEDS,
    out: Path | None = None,
    resume: bool = False,
    jobs: int | None = None,
    ray_address: str | None = None,
    progress: Progress | None = None,
) -> list[Row]:
    """Run all methods under all trust models for both units.

    Parameters
    ----------
    seeds : how many, from 0
    out, resume, jobs, ray_address, progress : of `compare`; its results are kept in `out/compare`

    Returns
    -------
    list of dict
        `method`, `unit` and `trust` ("" for the baselines), `mechanism`, `ece` and `ece_std`, mean
        and standard deviation over seeds, as fractions
    """
    found = compare(
        DATA,
        method=[*BASELINES, *METHODS],
        epsilon=1.0,
        unit=list(UNITS),
        trust=list(TRUSTS),
        partition="dirichlet:0.1",
        seeds=seeds,
        out=None if out is None else out / "compare",
        resume=resume,
        jobs=jobs,
        ray_address=ray_address,
        progress=progress,
    )
    return [
        {
            "method": line["method"],
            "unit": line["unit"] or "",
            "trust": line["trust"] or "",
            "mechanism": line["mechanism"] or "",
            "ece": line["after"]["ece"]["mean"],
            "ece_std": line["after"]["ece"]["std"],
        }
        for line in found.cells
    ]


def by_columns(found: Sequence[Row]) -> dict[str, list[Row]]:
    """Method -> its rows of unit user, then example, under each of `TRUSTS`."""
    there = {(r["method"], r["unit"], r["trust"]): r for r in found}
    columns = list(product(UNITS, TRUSTS))
    return {m: [there[m, unit, trust] for unit, trust in columns] for m in METHODS}


def no_better(found: Sequence[Row], unit: str, trust: str) -> list[str]:
    """Methods whose ECE is within a standard deviation of the model's own, or above it."""
    before = next(r["ece"] for r in found if r["method"] == "none")
    return [
        r["method"]
        for r in found
        if (r["unit"], r["trust"]) == (unit, trust) and r["ece"] + r["ece_std"] >= before
    ]


def claims(found: Sequence[Row]) -> list[tuple[str, bool, str]]:
    """Which combinations are worth anything."""
    return list(_claims(found))


def _claims(found: Sequence[Row]) -> Iterator[tuple[str, bool, str]]:
    for unit, trust in product(UNITS, TRUSTS):
        bad = no_better(found, unit, trust)
        yield (
            f"Unit {unit}, trust {trust}: every method is better than no calibrator, by more than "
            "a standard deviation",
            not bad,
            f"not {', '.join(bad)}" if bad else "all of them",
        )
