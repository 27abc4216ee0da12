"""Do intervals of metrics hold the truth? Coverage over simulated federations. Our own studies.

Each federation draws its rows anew from a population whose metrics are known (`worlds`), is asked
at epsilon = 1 (secagg: none), and reads its release. The estimand is that of new rows: the
population's value. Under unit `example`, and where each user has one row, what is released is a sum
over rows and nothing is clipped, so how rows are dealt to clients changes no bit of it (a test says
so); rows are not dealt there.

Three groups of rows: smooth metrics; calibration errors, a population whose true error is 0
included; and unit `user`: real clients, real clipping, dealt at random or by Dirichlet(1). Clipping
biases what users answer, and no interval knows by how much; `bias` says it, and `held_mean` the
coverage without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from experiments.studies.claims import between
from experiments.studies.evaluation import worlds
from experiments.studies.rows import counted, grouped, rng_of, where
from experiments.studies.spec import Record, Rows, RowsClaim, Study, study_file
from fedcal import partition
from fedcal.core.numerics import Floats, Integers
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.evaluation import METRICS, Estimate, Histogram, evaluate
from fedcal.metrics.score_table import fine_tails
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.evaluate import BUCKETS, FedEvaluate
from fedcal.strategies.server.outcome import Progress
from fedcal.units import Example, User

ROWS_PER_CLIENT = 50


def shards_of(drawn: Integers, clients: int, dealt: str, rng: np.random.Generator) -> Shards:
    """Deal counted rows, (2, CELLS), to clients, by "iid" or "dirichlet:BETA"."""
    cell = np.repeat(np.arange(2 * worlds.CELLS), drawn.ravel())
    score, labels = worlds.SCORES[cell % worlds.CELLS], cell // worlds.CELLS
    if dealt == "iid":
        owner = rng.integers(0, clients, len(labels))
    else:
        owner = partition.dirichlet(labels, clients, float(dealt.partition(":")[2]), rng)
    logits = np.stack([np.zeros(len(score)), np.log(score / (1 - score))], axis=1)
    return rows_by_owner(logits, labels, owner, clients)


# -- populations: how wide, and how often right --------------------------------------------------

LEVEL = 0.95

SMOOTH = ("accuracy", "precision", "recall", "roc_auc", "brier")
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
    metrics: Sequence[str]
    bins: int = BUCKETS
    unit: str = Example.name
    clients: int = 100
    dealt: str = "any"


CELLS_RUN = [
    Cell(*place, **line["of"])
    for line in study_file("evaluation")["shared"]["federations"]
    for place in product(line["worlds"], line["trusts"])
]


def _populations(
    progress: Progress | None = None, *, federations: int = 1000, cells: Sequence[Cell] = CELLS_RUN
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
    return [row for cell in counted(cells, progress) for row in _measured(cell, federations)]


def _measured(cell: Cell, federations: int) -> Iterator[Record]:
    population, edges = worlds.world(cell.world), fine_tails(cell.bins, nodes=False)
    shown = Histogram.exact(edges, worlds.bucket_counts(population.shares, edges))
    read = [
        [(e.value, e.low, e.high, e.binning, float(e.drowned)) for e in found.values()]
        for found in _estimates(cell, federations)
    ]
    for metric, each in zip(cell.metrics, np.array(read).transpose(1, 2, 0), strict=True):
        value, low, high, binning, drowned = each
        truth = population.truth(metric)
        known = value[np.isfinite(value)]
        mean, std = (float(known.mean()), float(known.std())) if len(known) else (math.nan, 0.0)
        width, smooth = float(np.mean(high - low)), metric in SMOOTH
        yield {
            "group": cell.unit if cell.unit == User.name else "smooth" if smooth else "error",
            **{name: entry for name, entry in vars(cell).items() if name != "metrics"},
            "metric": metric,
            "federations": federations,
            "truth": truth,
            "coverage": _share(low, truth, high),
            "random": _share(low + binning, METRICS[metric]().value(shown), high - binning)
            if smooth
            else None,
            "held_mean": _share(low, mean, high),
            "width": width,
            "oracle": width / (3.92 * std) if std > 0 else None,
            "bias": mean - truth,
            "drowned": float(drowned.mean()),
        }


def _share(low: Floats, truth: float, high: Floats) -> float:
    return float(np.mean((low <= truth) & (truth <= high)))


def _estimates(cell: Cell, federations: int) -> Iterator[Mapping[str, Estimate]]:
    """Metrics of each federation."""
    population, size = worlds.world(cell.world), cell.clients * ROWS_PER_CLIENT
    nominal = float(ROWS_PER_CLIENT) if cell.unit == User.name else None

    def asked(seed: int) -> FedEvaluate:
        facts = worlds.federation(cell.trust, cell.clients, cell.unit, seed)
        return FedEvaluate(
            facts, bins=cell.bins, rows_per_client=nominal, secure_aggregation="none"
        )  # the same bits, sooner

    shared = asked(0)
    what = (cell.world, cell.trust, cell.unit, cell.clients, cell.dealt, cell.bins)
    for seed in range(federations):
        rng = rng_of("evaluation intervals", seed, *what)
        drawn = population.draw(size, rng)
        if cell.unit == Example.name:
            release: Any = worlds.released(shared, [drawn], rng)
        else:
            release = run_inline(asked(seed), shards_of(drawn, cell.clients, cell.dealt, rng))
        seen = release.histograms["model", "", ""]
        found = evaluate(seen, "positive", level=LEVEL, only=cell.metrics)
        yield {metric: found[metric] for metric in cell.metrics}


def _claims(found: Rows) -> Iterator[RowsClaim]:
    """Coverage of each trust and kind of metric, and the width for whole users."""
    for (trust,), mine in grouped(where(found, group="smooth"), "trust").items():
        about = f"Unit example, {trust}: "
        text = f"{about}sampling and noise alone, intervals hold 92.5 to 97.5 %"
        yield between(text, mine, "random", "metric", NARROW, WIDE)
        text = f"{about}with the bound of binning added, intervals hold at least 92.5 %"
        yield between(text, mine, "coverage", "metric", NARROW, 1.0)
        for bins, more in ((BUCKETS, ""), (FINE, " for roc_auc and brier")):
            if rows := where(mine, bins=bins):
                text = f"{about}and so at most 97.5 %, with {bins} buckets{more}"
                yield between(text, rows, "coverage", "metric", 0.0, WIDE)
    for (name,), mine in grouped(where(found, group="error"), "world").items():
        text = f"Unit example, {name}: intervals of calibration errors hold at least 93 %"
        yield between(text, mine, "coverage", "metric", LEAST, 1.0)
    users = where(found, group=User.name)
    for (clients, dealt), mine in grouped(users, "clients", "dealt").items():
        about = f"Unit user, {clients:,} clients, {dealt}: "
        text = f"{about}intervals hold at least 93 %"
        yield between(text, mine, "coverage", "metric", LEAST, 1.0)
        text = f"{about}mean widths of {', '.join(SMOOTH)} at most 1.5 times the oracle's"
        yield between(text, mine, "oracle", "metric", 0.0, MOST_WIDTH)


populations = Study(_populations, _claims)
