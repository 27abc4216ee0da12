"""Coverage of private prediction sets, compared with their guarantee.

Each run draws all clients' rows anew from a law of conformity scores, releases a threshold, and is
told exactly how often that threshold covers a new row of the law.

`promises`: sets must cover in 1 - alpha of cases in the mean over runs. A law may be unkind: ties,
masses at or just above the thresholds that are looked at, masses that end below and far above
1 - alpha, a single score.
Sets of all labels cover always and say nothing, so that their share, and coverage without them,
stand beside. Most cells draw sums by their law (`laws`); some run clients and engine. The cells
stand in `prediction_sets.toml`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from fedcal.conformal.levels import NoiseFree, marginal_level
from fedcal.core.types import Floats
from fedcal.experiments.research.studies.prediction_sets.laws import (
    ALPHA,
    Setup,
    engine_thresholds,
    exact_thresholds,
    law_of,
    thresholds_of,
)
from fedcal.experiments.research.studies.rows import counted, grouped, rng_of, span
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim, Study, study_file
from fedcal.strategies.server.outcome import Progress

ERRORS = 3.5
"""Standard errors of the mean that coverage may be below what is promised."""
_LEAST = 1e-6

GRID = (np.arange(64) + 1) / 64
"""At which masses lie where a rule has no thresholds of its own."""


@dataclass(frozen=True)
class Cell:
    """Runs of one kind; `how` is "laws" or "engine"."""

    setup: Setup
    law: str
    how: str = "laws"


def _cells() -> Iterator[Cell]:
    shared = study_file("prediction_sets")["shared"]
    setups = {name: Setup(**facts) for name, facts in shared["setups"].items()}
    for entry in shared["cells"]:
        for name, law in product(entry["setups"], entry["laws"]):
            yield Cell(setups[name].of(law), law, entry.get("how", "laws"))


CELLS_RUN = tuple(_cells())


def _promised(
    progress: Progress | None = None,
    *,
    runs: int = 2000,
    engine_runs: int = 100,
    cells: Sequence[Cell] = CELLS_RUN,
) -> Rows:
    """Coverage of each rule's sets under each law.

    Parameters
    ----------
    progress
        called after each cell
    runs, engine_runs
        of each cell, by its law and by the engine
    cells
        what is run

    Returns
    -------
    list of dict
        `how`, `rule`, `unit`, `trust`, `noise`, `epsilon`, `n`, `n_is` (public, private), `law`,
        `runs`; mean `coverage` and its standard `error`; the share of runs with `all_labels`, and
        `coverage_else`, without these
    """
    return [
        _promise(cell, engine_runs if cell.how == "engine" else runs)
        for cell in counted(cells, progress)
    ]


def _promise(cell: Cell, runs: int) -> Record:
    setup = cell.setup
    key = list(vars(setup).values())
    key.insert(8, "marginal")  # of earlier versions, so that the draws are theirs
    rng = rng_of("prediction sets coverage", 0, *key, cell.law, cell.how)
    thresholds = _found(cell, runs, rng)
    strategy = setup.strategy()
    query, private = strategy.query(1), strategy.plan.private
    grid = GRID if setup.quantile == "exact" else query.thresholds
    covered = law_of(cell.law, grid).covered(thresholds)
    every = thresholds >= 1.0
    return {
        "how": cell.how,
        "rule": setup.quantile,
        "unit": setup.unit if private else "",
        "trust": strategy.plan.trust,
        "noise": strategy.plan.mechanism.name if private else "none",
        "epsilon": setup.epsilon if private else None,
        "n": setup.total,
        "n_is": "public" if setup.known else "private",
        "law": cell.law,
        "runs": runs,
        "coverage": float(covered.mean()),
        "error": float(covered.std() / math.sqrt(runs)),
        "all_labels": float(every.mean()),
        "coverage_else": float(covered[~every].mean()) if not every.all() else None,
    }


def _found(cell: Cell, runs: int, rng: np.random.Generator) -> Floats:
    setup = cell.setup
    if cell.how == "engine":
        return engine_thresholds(setup, cell.law, runs, rng)
    if setup.quantile != "exact":
        return thresholds_of(setup, cell.law, runs, rng)
    level = marginal_level(setup.total, ALPHA, NoiseFree())
    rank = math.floor(level) + 1  # a level is just above the last rank that is too low
    return exact_thresholds(law_of(cell.law, GRID), setup.total, rank, runs, rng)


_KIND = ("rule", "unit", "trust")


def _promised_claims(found: Rows) -> Iterator[RowsClaim]:
    """Coverage of each rule, unit and trust; and that engine and laws agree."""
    for (rule, unit, trust), mine in grouped(found, *_KIND).items():
        text = f"{rule}, {f'unit {unit}, {trust}' if unit else 'no privacy'}: "
        text += "sets cover 90 % of rows in the mean over runs"
        low = [r for r in mine if r["coverage"] < 1 - ALPHA - ERRORS * r["error"] - 1e-9]
        shown = _span(r["coverage"] for r in mine)
        if low:
            shown += f"; less: {', '.join(map(_name, low))}"
        if empty := [r for r in mine if r["all_labels"] > 0.5]:
            shown += f"; mostly all labels, which shows nothing: {', '.join(map(_name, empty))}"
        yield text, not low, shown
    alike = grouped(found, *_KIND, "noise", "epsilon", "n", "n_is", "law").values()
    off = [
        _apart(engine, law)
        for mine in alike
        for engine, law in product(mine, mine)
        if (engine["how"], law["how"]) == ("engine", "laws")
    ]
    if off:
        text = "Runs of the engine cover as often as the laws say, within 3.5 standard errors"
        yield text, max(off) <= ERRORS, f"{len(off)} pairs, at most {max(off):.1f}"


def _apart(row: Record, law: Record) -> float:
    """Return the standard errors between coverage by the engine and by the law."""
    more = math.sqrt(1.0 + law["runs"] / row["runs"])  # of a difference, to that of the law's
    return float(abs(row["coverage"] - law["coverage"]) / max(law["error"] * more, _LEAST))


def _name(row: Record) -> str:
    return f"{row['law']}, {row['noise']}, n = {row['n']:,}"


def _span(shares: Iterable[float]) -> str:
    return f"{span(shares, '.1f', 100)} %"


promises = Study(_promised, _promised_claims)
