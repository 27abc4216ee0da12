"""Do private prediction sets cover as often as they say? Over fresh rows, our own study.

Each run draws all clients' rows anew from a law of conformity scores, releases a threshold, and is
told exactly how often that threshold covers a new row of the law. Marginal sets must cover in
1 - alpha of cases in the mean over runs; PAC sets must cover so often in a share `CONFIDENCE` of
runs. A law may be unkind: ties, masses at or just above the thresholds that are looked at, masses
that end below and far above 1 - alpha, a single score. Sets of all labels cover always and say
nothing, so that their share, and coverage without them, stand beside.

Most cells draw sums by their law (`set_worlds`); some run clients and engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from fedcal.conformal.levels.levels import Nothing, marginal_level, pac_level
from fedcal.core.types import Floats
from fedcal.experiments.research.studies.rows import counted
from fedcal.experiments.research.studies.score_worlds import rng_of
from fedcal.experiments.research.studies.set_worlds import (
    ALPHA,
    Setup,
    engine_thresholds,
    exact_thresholds,
    law_of,
    thresholds_of,
)
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.mechanisms import Gaussian, Laplace, Unary
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Distributed, Local
from fedcal.units import Subject, User

RUNS, ENGINE_RUNS = 2000, 100
CONFIDENCE = 0.9
ERRORS = 3.5
"""Standard errors of the mean that coverage may be below what is promised."""
_LEAST = 1e-6

UNKIND = ("ties", "edges", "above edges", ".85 / .98", "one score")
LAWS = ("smooth", *UNKIND)
SOME = ("smooth", "edges", ".85 / .98")
DATA = "densenet-cifar100"
SCORES = tuple(
    f"{DATA} {score}"
    for score in ("lac", "aps", "aps randomised", "raps", "raps randomised", "margin")
)


@dataclass(frozen=True)
class Cell:
    """Runs of one kind; `how` is "laws" or "engine"."""

    setup: Setup
    law: str
    how: str = "laws"


def _prefix(delta: float = 0.0, **more: Any) -> Setup:
    return Setup(
        "prefix", delta=delta, bins=64, mechanism=Gaussian.name if delta else Laplace.name, **more
    )


EXACT = Setup("exact")
EXACT_PAC = Setup("exact", guarantee="pac")
CROSSING = Setup("crossing")
CROSSING_PAC = Setup("crossing", guarantee="pac")
SUBJECTS = Setup("crossing", unit=Subject.name)
USERS = Setup("crossing", unit=User.name, rows=50)
USERS_PAC = Setup("crossing", unit=User.name, rows=50, guarantee="pac")
GAPS = Setup("gaps", unit=User.name, clients=300, rows=50, epsilon=4.0)
GAPS_SECRET = Setup(
    "gaps", unit=User.name, trust=Distributed.name, clients=300, rows=50, epsilon=4.0
)
GAPS_PAC = Setup("gaps", unit=User.name, clients=300, rows=50, epsilon=4.0, guarantee="pac")
ENCODED = Setup(Unary.name, unit=User.name, trust=Local.name, clients=5000, rows=1)
ENCODED_FEW = Setup(Unary.name, unit=User.name, trust=Local.name, clients=500, rows=1, epsilon=4.0)
ENCODED_PAC = Setup(
    Unary.name, unit=User.name, trust=Local.name, clients=5000, rows=1, guarantee="pac"
)
LOCAL = _prefix(trust=Local.name, clients=100, rows=50, known=True)
GAUSSIAN, LAPLACE = _prefix(1e-5), _prefix()
SECRET = Setup("prefix", bins=64, trust=Distributed.name)
SECRET_GAUSSIAN = Setup("prefix", bins=64, trust=Distributed.name, delta=1e-5, epsilon=2.0)
FEW = (  # n = 50: less than epsilon = 8 leaves all labels
    Setup("exact", clients=10, rows=5),
    Setup("crossing", clients=10, rows=5, epsilon=8.0),
    _prefix(clients=10, rows=5, epsilon=8.0),
    _prefix(clients=10, rows=5, epsilon=8.0, known=True),
    _prefix(1e-5, clients=10, rows=5, epsilon=8.0),
    Setup("crossing", clients=10, rows=5),
)

CELLS_RUN = (
    *(Cell(s, law) for s, law in product((EXACT, CROSSING, USERS, GAUSSIAN, LAPLACE), LAWS)),
    *(Cell(s.of(law), law) for s, law in product((CROSSING, GAUSSIAN), SCORES)),
    *(Cell(s, law) for s, law in product((SUBJECTS, GAPS, ENCODED, LOCAL, SECRET), SOME)),
    *(Cell(s, law) for s, law in product((_prefix(1e-5, known=True), _prefix(known=True)), SOME)),
    Cell(_prefix(trust=Local.name, clients=100, rows=50), "smooth"),
    *(Cell(s, "smooth") for s in (GAPS_SECRET, SECRET_GAUSSIAN, ENCODED_FEW)),
    *(Cell(s, law) for s, law in product((EXACT_PAC, CROSSING_PAC), SOME)),
    *(Cell(s, "smooth") for s in (USERS_PAC, GAPS_PAC, ENCODED_PAC)),
    *(Cell(_prefix(1e-5, guarantee="pac", known=k), "smooth") for k in (False, True)),
    *(Cell(_prefix(guarantee="pac", known=k), "edges") for k in (False, True)),
    *(Cell(s, law) for s, law in product(FEW, ("smooth", "ties", "edges"))),
    *(
        Cell(s, "smooth", "engine")
        for s in (EXACT, CROSSING, SUBJECTS, USERS, GAUSSIAN, LAPLACE, SECRET, GAPS, ENCODED_FEW)
    ),
    Cell(USERS, ".85 / .98", "engine"),
)


def rows(
    progress: Progress | None = None,
    *,
    runs: int = RUNS,
    engine_runs: int = ENGINE_RUNS,
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
        `how`, `rule`, `unit`, `trust`, `noise`, `epsilon`, `n`, `n_is` (public, private),
        `guarantee`, `law`, `runs`; mean `coverage` and its standard `error`; `sure`, the share of
        runs that cover at least 1 - alpha, and `sure_error`; the share of runs with `all_labels`,
        and `coverage_else`, without these
    """
    found: Rows = []
    for cell in counted(cells, progress):
        found.append(_measured(cell, engine_runs if cell.how == "engine" else runs))
    return found


def _measured(cell: Cell, runs: int) -> Record:
    setup = cell.setup
    rng = rng_of("prediction sets coverage", 0, *vars(setup).values(), cell.law, cell.how)
    thresholds = _found(cell, runs, rng)
    strategy = setup.strategy()
    query = strategy.query(1)
    law = law_of(cell.law, np.ones(1) if query is None else query.thresholds)
    if setup.quantile == "exact":
        law = law_of(cell.law, GRID)
    covered = law.covered(thresholds)
    sure = float(np.mean(covered >= 1.0 - ALPHA - 1e-9))
    every = thresholds >= 1.0
    return {
        "how": cell.how,
        "rule": setup.quantile,
        "unit": setup.unit if strategy.plan.private else "",
        "trust": strategy.plan.trust,
        "noise": strategy.plan.mechanism if strategy.plan.private else "none",
        "epsilon": setup.epsilon if strategy.plan.private else None,
        "n": setup.total,
        "n_is": "public" if setup.known else "private",
        "guarantee": setup.guarantee,
        "law": cell.law,
        "runs": runs,
        "coverage": float(covered.mean()),
        "error": float(covered.std() / math.sqrt(runs)),
        "sure": sure,
        "sure_error": math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / runs),
        "all_labels": float(every.mean()),
        "coverage_else": float(covered[~every].mean()) if not every.all() else None,
    }


GRID = (np.arange(64) + 1) / 64
"""At which masses lie where a rule has no thresholds of its own."""


def _found(cell: Cell, runs: int, rng: np.random.Generator) -> Floats:
    setup = cell.setup
    if cell.how == "engine":
        return engine_thresholds(setup, cell.law, runs, rng)
    if setup.quantile != "exact":
        return thresholds_of(setup, cell.law, runs, rng)
    if setup.guarantee == "pac":
        level = pac_level(setup.total, ALPHA, Nothing(), CONFIDENCE)
    else:
        level = marginal_level(setup.total, ALPHA, Nothing())
    rank = math.floor(level) + 1  # a level is just above the last rank that is too low
    return exact_thresholds(law_of(cell.law, GRID), setup.total, rank, runs, rng)


def claims(found: Rows) -> list[RowsClaim]:
    """Coverage of each rule, unit, trust and guarantee; and that engine and laws agree."""
    said: list[RowsClaim] = []
    for key in dict.fromkeys(map(_kind, found)):
        mine = [r for r in found if _kind(r) == key]
        rule, unit, trust, guarantee = key
        where = f"{rule}, {f'unit {unit}, {trust}' if unit else 'no privacy'}"
        if guarantee == "marginal":
            text = f"{where}: sets cover 90 % of rows in the mean over runs"
            low = [r for r in mine if r["coverage"] < 1 - ALPHA - ERRORS * r["error"] - 1e-9]
            shown = _span([r["coverage"] for r in mine])
        else:
            text = f"{where}: in 90 % of runs sets cover 90 % of rows"
            low = [r for r in mine if r["sure"] < CONFIDENCE - ERRORS * r["sure_error"]]
            shown = f"in {_span([r['sure'] for r in mine])} of runs"
        empty = [r for r in mine if r["all_labels"] > 0.5]
        if low:
            shown += f"; less: {', '.join(_name(r) for r in low)}"
        if empty:
            shown += f"; mostly all labels, which shows nothing: {', '.join(map(_name, empty))}"
        said.append((text, not low, shown))
    off = [
        (r, abs(r["coverage"] - law["coverage"]) / max(law["error"] * _more(law, r), _LEAST))
        for r in found
        for law in found
        if r["how"] == "engine" and law["how"] == "laws" and _same(r) == _same(law)
    ]
    if off:
        worst = max(z for _, z in off)
        text = "Runs of the engine cover as often as the laws say, within 3.5 standard errors"
        said.append((text, worst <= ERRORS, f"{len(off)} pairs, at most {worst:.1f}"))
    return said


def _more(law: Record, row: Record) -> float:
    """How much larger the standard error of a difference is than that of the first."""
    return math.sqrt(1.0 + law["runs"] / row["runs"])


def _kind(row: Record) -> tuple[str, str, str, str]:
    return row["rule"], row["unit"], row["trust"], row["guarantee"]


def _same(row: Record) -> tuple[object, ...]:
    names = ("noise", "epsilon", "n", "n_is", "law")
    return (*_kind(row), *(row[name] for name in names))


def _name(row: Record) -> str:
    return f"{row['law']}, {row['noise']}, n = {row['n']:,}"


def _span(shares: Sequence[float]) -> str:
    return f"{100 * min(shares):.1f} to {100 * max(shares):.1f} %"
