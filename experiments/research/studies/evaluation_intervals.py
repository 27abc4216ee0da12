"""Do intervals of metrics hold the truth? Coverage over simulated federations. Our own study.

Each federation draws its rows anew from a population whose metrics are known (`score_worlds`), is
asked by `FedEvaluate` at epsilon = 1, and reads its release. Three groups of rows:

* unit `example`: 100 clients of 50 rows. What is released is a sum over rows and nothing is
  clipped, so how rows are dealt to clients changes no bit of it (a test says so); rows are not
  dealt here;
* unit `example`, calibration errors, a population whose true error is 0 included;
* unit `user`: real clients, real clipping, dealt at random or by Dirichlet(1).

The estimand is that of new rows: the population's value. Clipping biases what users answer, and no
interval knows by how much; `bias` says it, and `held_mean` the coverage without it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers
from fedcal.evaluation import METRICS, Histogram, evaluate
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.experiments.research.studies.score_worlds import (
    CELLS,
    SCORES,
    WORLDS,
    bucket_counts,
    released,
    rng_of,
    world,
)
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim, counted
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.metrics.buckets import fine_tails
from fedcal.partition import owners
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies import FedEvaluate
from fedcal.strategies.methods.score_ways import BUCKETS
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Central, Distributed, Local, SecAgg
from fedcal.units import Example, User

FEDERATIONS = 1000
ROWS_PER_CLIENT = 50
EPSILON = 1.0
LEVEL = 0.95

SMOOTH = ("accuracy", "precision", "recall", "roc_auc", "brier")
ERRORS = ("ece", "ece_debiased", "smooth_ece", "ks")
OF_USERS = (*SMOOTH, "ks")

TRUSTS = (SecAgg.name, Central.name, Distributed.name, Local.name)
NARROW, WIDE = 0.925, 0.975
"""Between which coverage of smooth metrics must lie: 95 % but for three and a half standard errors
of 1,000 federations."""
LEAST = 0.93
"""Coverage of calibration errors, and of whole users."""
MOST_WIDTH = 1.5
"""Mean width over the oracle's, for whole users."""

FINE = 960
"""Buckets with which the bound of binning is small beside what is random, even without noise."""


@dataclass(frozen=True)
class Cell:
    """Federations of one kind."""

    world: str
    trust: str
    metrics: tuple[str, ...]
    bins: int = BUCKETS
    unit: str = Example.name
    clients: int = 100
    dealt: str = "any"


CELLS_RUN = (
    *(Cell(w, t, SMOOTH) for w, t in product(WORLDS, TRUSTS)),
    *(Cell(w, SecAgg.name, ("roc_auc", "brier"), FINE) for w in WORLDS),
    *(Cell("calibrated", t, ERRORS) for t in (SecAgg.name, Central.name, Local.name)),
    *(
        Cell("imdb-binary", Central.name, OF_USERS, unit=User.name, clients=k, dealt=dealt)
        for k, dealt in product((100, 1000), ("iid", "dirichlet:1"))
    ),
)


def rows(
    progress: Progress | None = None,
    *,
    federations: int = FEDERATIONS,
    cells: Sequence[Cell] = CELLS_RUN,
) -> Rows:
    """Coverage and width of each metric's intervals.

    Parameters
    ----------
    progress
        called after each cell
    federations
        that are simulated for each cell
    cells
        what is run

    Returns
    -------
    list of dict
        `group` (smooth, error, user), `world`, `trust`, `bins`, `unit`, `clients`, `dealt`,
        `metric`; `truth` of the population, `coverage` of it, `random` (coverage, by the intervals
        without the bound of binning, of what the population shows in these buckets; of smooth
        metrics alone), `held_mean` (coverage of the estimates' own mean, that is without their
        bias), mean `width`, its ratio to the `oracle`'s (3.92 standard deviations of the estimates;
        None where they have none), `bias`, and the share `drowned`
    """
    found: Rows = []
    for cell in counted(cells, progress):
        found += _measured(cell, federations)
    return found


def _measured(cell: Cell, federations: int) -> Rows:
    population = world(cell.world)
    coarse = bucket_counts(population.shares, fine_tails(cell.bins))
    shown = Histogram.exact(fine_tails(cell.bins), coarse)
    read = np.array([_read(one, cell.metrics) for one in _releases(cell, federations)])
    found: Rows = []
    for k, metric in enumerate(cell.metrics):
        value, low, high, binning, drowned = read[:, k].T
        truth = population.truth(metric)
        known = value[np.isfinite(value)]
        mean, std = (float(known.mean()), float(known.std())) if len(known) else (math.nan, 0.0)
        width = float(np.mean(high - low))
        row: Record = {
            "group": _group(cell, metric),
            **{name: entry for name, entry in vars(cell).items() if name != "metrics"},
            "metric": metric,
            "federations": federations,
            "truth": truth,
            "coverage": _share(low, truth, high),
            "random": None,
            "held_mean": _share(low, mean, high),
            "width": width,
            "oracle": width / (3.92 * std) if std > 0 else None,
            "bias": mean - truth,
            "drowned": float(drowned.mean()),
        }
        if metric in SMOOTH:
            seen = METRICS[metric]().value(shown)
            row["random"] = _share(low + binning, seen, high - binning)
        found.append(row)
    return found


def _group(cell: Cell, metric: str) -> str:
    if cell.unit == User.name:
        return cell.unit
    return "smooth" if metric in SMOOTH else "error"


def _share(low: Floats, truth: float, high: Floats) -> float:
    return float(np.mean((low <= truth) & (truth <= high)))


def _read(histogram: Histogram, metrics: Collection[str]) -> list[tuple[float, ...]]:
    said = evaluate(histogram, "positive", level=LEVEL, only=metrics)
    each = (said[metric] for metric in metrics)
    return [(e.value, e.low, e.high, e.binning, float(e.drowned)) for e in each]


def _releases(cell: Cell, federations: int) -> Iterator[Histogram]:
    population, size = world(cell.world), cell.clients * ROWS_PER_CLIENT
    facts = Federation(
        cell.clients,
        2,
        epsilon=math.inf if cell.trust == SecAgg.name else EPSILON,
        unit=cell.unit,
        trust=cell.trust,
    )
    nominal = float(ROWS_PER_CLIENT) if cell.unit == User.name else None
    asked = FedEvaluate(facts, bins=cell.bins, rows_per_client=nominal)
    what = (cell.world, cell.trust, cell.unit, cell.clients, cell.dealt, cell.bins)
    for seed in range(federations):
        rng = rng_of("evaluation intervals", seed, *what)
        drawn = population.draw(size, rng)
        if cell.unit == Example.name:
            release = released(asked, [drawn], rng)
        else:
            again = replace(facts, seed=seed)
            once = FedEvaluate(again, bins=cell.bins, rows_per_client=nominal)
            once.secure_aggregation = "none"  # the same bits, sooner
            found = run_inline(once, shards_of(drawn, cell.clients, cell.dealt, rng))
            if not isinstance(found, ScoreRelease):
                raise TypeError(f"an evaluation released {found!r}")
            release = found
        yield release.histograms["model", "", ""]


def shards_of(drawn: Integers, clients: int, dealt: str, rng: np.random.Generator) -> Shards:
    """Counted rows, (2, CELLS), as rows of clients, dealt "iid" or by "dirichlet:BETA"."""
    cell = np.repeat(np.arange(2 * CELLS), drawn.ravel())
    labels, score = cell // CELLS, SCORES[cell % CELLS]
    logits = np.stack([np.zeros(len(score)), np.log(score / (1 - score))], axis=1)
    if dealt == "iid":
        owner = rng.integers(0, clients, len(labels))
    else:
        owner = owners.dirichlet(labels, clients, float(dealt.partition(":")[2]), rng)
    return Shards.from_owner(logits, labels, owner, clients)


def claims(found: Rows) -> list[RowsClaim]:
    """Coverage of each trust and kind of metric, and the width for whole users."""
    said: list[RowsClaim] = []
    for trust in dict.fromkeys(r["trust"] for r in found if r["group"] == "smooth"):
        mine = [r for r in found if r["group"] == "smooth" and r["trust"] == trust]
        usual = [r for r in mine if r["bins"] == BUCKETS]
        fine = [r for r in mine if r["bins"] == FINE]
        where = f"Unit example, {trust}"
        text = f"{where}: sampling and noise alone, intervals hold 92.5 to 97.5 %"
        said.append((text, *_covered(mine, NARROW, WIDE, "random")))
        text = f"{where}: with the bound of binning added, intervals hold at least 92.5 %"
        said.append((text, *_covered(mine, NARROW, 1.0)))
        text = f"{where}: and so at most 97.5 %, with {BUCKETS} buckets"
        said.append((text, *_covered(usual, 0.0, WIDE)))
        if fine:
            text = f"{where}: and so at most 97.5 %, with {FINE} buckets for roc_auc and brier"
            said.append((text, *_covered(fine, 0.0, WIDE)))
    for name in dict.fromkeys(r["world"] for r in found if r["group"] == "error"):
        mine = [r for r in found if r["group"] == "error" and r["world"] == name]
        text = f"Unit example, {name}: intervals of calibration errors hold at least 93 %"
        said.append((text, *_covered(mine, LEAST, 1.0)))
    users = [r for r in found if r["group"] == User.name]
    for clients, dealt in dict.fromkeys((r["clients"], r["dealt"]) for r in users):
        mine = [r for r in users if (r["clients"], r["dealt"]) == (clients, dealt)]
        where = f"Unit user, {clients:,} clients, {dealt}"
        said.append((f"{where}: intervals hold at least 93 %", *_covered(mine, LEAST, 1.0)))
        smooth = [r for r in mine if r["metric"] in SMOOTH]
        wide = [r for r in smooth if r["oracle"] is None or r["oracle"] > MOST_WIDTH]
        ratios = [r["oracle"] for r in smooth if r["oracle"] is not None]
        shown = f"{min(ratios):.2f} to {max(ratios):.2f} times" if ratios else "no ratio"
        if wide:
            shown += f"; wider: {', '.join(r['metric'] for r in wide)}"
        text = f"{where}: mean widths of {', '.join(SMOOTH)} at most 1.5 times the oracle's"
        said.append((text, not wide, shown))
    return said


def _covered(found: Rows, least: float, most: float, key: str = "coverage") -> tuple[bool, str]:
    shares = [r[key] for r in found]
    text = f"{100 * min(shares):.1f} to {100 * max(shares):.1f} %"
    bad = [r for r in found if not least <= r[key] <= most]
    if bad:
        each = (f"{r['metric']} ({_place(r)}) {100 * r[key]:.1f} %" for r in bad)
        text += f"; outside: {', '.join(each)}"
    return not bad, text


def _place(row: Record) -> str:
    return f"{row['world']}, {row['trust']}" if row["unit"] == Example.name else row["world"]
