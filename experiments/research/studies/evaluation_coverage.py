"""Coverage of every interval that `evaluate` prints, on worlds that are hard for them.

Worlds (`score_worlds.HARD`): 1 % positives, calibrated or not; calibration slopes of 0.2 and 5;
shifted scores; scores that separate the classes. Rows are drawn anew for each federation, and the
estimand is the population's value. Four groups of cells:

* `example`: 50 rows a client, 30 to 1,000 clients, all trust models; rows are not dealt, because
  that changes no bit. Under `local` whole users of one row each;
* `user`: whole clients, with label skew; clipping biases what they answer;
* `clients`: clients are drawn anew, each with a share of positives of its own, and intervals are
  for new clients;
* `alone`: AUC, KS and accuracy, each asked alone.

Formulas and conditions of warnings were mended after these worlds were seen: the claims tell what
happens on them, and are no evidence for others.

Two truths are not the population's: the MCE is that of bins which hold rows, and the ECE of equal
mass that of the release's buckets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers
from fedcal.evaluation import GAPS, Estimate, Histogram, evaluate
from fedcal.evaluation.estimators import all_metrics
from fedcal.evaluation.estimators.gap_metric import BINS
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.single import SingleMetric
from fedcal.experiments.research.studies.evaluation_intervals import ROWS_PER_CLIENT, shards_of
from fedcal.experiments.research.studies.score_worlds import (
    CELLS,
    HARD,
    SCORES,
    World,
    bucket_counts,
    released,
    rng_of,
    rows_of_rounds,
    world,
)
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim, counted
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.metrics.binning import bin_index
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies import STRATEGIES, FedEvaluate
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Central, Distributed, Local, SecAgg
from fedcal.units import Example, User

FEDERATIONS = 100
"""Of a first look; metrics whose coverage is poor have a second one, of twice as many others."""
EPSILON = 1.0
LEAST = 0.92
"""Coverage below which the line of an interval must have a warning."""

SMOOTH = tuple(name for name, kind in all_metrics.SMOOTH.items() if "positive" in kind.scores)
SKEW = 0.2
"""Of the beta distribution of clients' shares of positives: most have nearly one label."""


@dataclass(frozen=True)
class Cell:
    """Federations of one kind; `dealt` as `shards_of` has it, or "drawn" for new clients."""

    group: str
    world: str
    trust: str
    clients: int
    unit: str = Example.name
    dealt: str = "any"
    method: str = FedEvaluate.name
    metrics: tuple[str, ...] = SMOOTH


def _example() -> Iterator[Cell]:
    for name in HARD:
        yield Cell(Example.name, name, SecAgg.name, 30, metrics=(*SMOOTH, *GAPS))
        errors = tuple(GAPS) if name.startswith("rare") else ()
        yield Cell(Example.name, name, Central.name, 1000, metrics=(*SMOOTH, *errors))
        yield Cell(Example.name, name, Distributed.name, 100)
        yield Cell(Example.name, name, Local.name, 30 * ROWS_PER_CLIENT, User.name)


def _others() -> Iterator[Cell]:
    yield Cell(User.name, "shifted", Central.name, 100, User.name, "dirichlet:0.1")
    for clients in (30, 100):
        yield Cell("clients", "shifted", SecAgg.name, clients, dealt="drawn")
    yield Cell("clients", "shifted", Central.name, 100, dealt="drawn")
    for method, dealt in product(
        ("evaluate-auc", "evaluate-ks", "evaluate-accuracy"), ("iid", "dirichlet:0.1")
    ):
        yield Cell("alone", "shifted", Central.name, 100, User.name, dealt, method, ())
    for name, method in product(("separated", "rare, too high"), ("evaluate-auc", "evaluate-ks")):
        yield Cell("alone", name, Central.name, 100, Example.name, "iid", method, ())


CELLS_RUN = (*_example(), *_others())


def rows(
    progress: Progress | None = None,
    *,
    federations: int = FEDERATIONS,
    cells: Sequence[Cell] = CELLS_RUN,
) -> Rows:
    """Coverage of all metrics of each cell.

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
        `group`, `world`, `trust`, `unit`, `clients`, `dealt`, `method`; how many `metrics`, the
        `lowest` coverage of them and `of` which it is, the `median`; the metrics `below` `LEAST`,
        and those of them whose line often has no warning, `unwarned`, as text
    """
    return [_measured(cell, federations) for cell in counted(cells, progress)]


def _measured(cell: Cell, federations: int) -> Record:
    first = _coverage(cell, federations)
    poor = tuple(name for name, (c, _) in first.items() if c < LEAST)
    again = _coverage(cell, 2 * federations, first=federations, only=poor) if poor else {}
    coverage = {name: again.get(name, one)[0] for name, one in first.items()}
    lowest = min(coverage, key=lambda name: coverage[name])
    below = {name: c for name, c in coverage.items() if c < LEAST}
    return {
        **{name: entry for name, entry in vars(cell).items() if name != "metrics"},
        "federations": federations,
        "metrics": len(coverage),
        "lowest": coverage[lowest],
        "of": lowest,
        "median": float(np.median(list(coverage.values()))),
        "below": ", ".join(f"{name} {100 * c:.1f}" for name, c in below.items()),
        "unwarned": ", ".join(name for name in below if again[name][1] < LEAST),
    }


def _coverage(
    cell: Cell, federations: int, *, first: int = 0, only: Sequence[str] = ()
) -> dict[str, tuple[float, float]]:
    """Metric -> share of intervals that hold the truth; and of those that hold it or warn."""
    population = world(cell.world)
    cell = replace(cell, metrics=tuple(only) or cell.metrics)
    hits: dict[str, list[tuple[bool, bool]]] = {}
    for drawn, histogram, found in _releases(cell, range(first, first + federations)):
        for name, e in found.items():
            if name == "mce":
                true = _largest_gap(population, drawn)
            elif name == "ece_equal_mass" and histogram is not None:
                shown = bucket_counts(population.shares, histogram.edges)
                true = GAPS[name]().value(Histogram.exact(histogram.edges, shown))
            else:
                true = _truth(cell.world, name)
            held = bool(e.low <= true + 1e-9 and true - 1e-9 <= e.high)
            hits.setdefault(name, []).append((held, held or bool(e.warning)))
    shares = {name: np.mean(each, axis=0) for name, each in hits.items()}
    return {name: (float(share[0]), float(share[1])) for name, share in shares.items()}


@cache
def _truth(name: str, metric: str) -> float:
    return world(name).truth(metric)


def _largest_gap(population: World, drawn: Integers) -> float:
    """The population's MCE, of the bins that hold rows."""
    of = bin_index(SCORES, BINS)
    there = np.bincount(of, drawn.sum(axis=0), BINS) > 0
    rates, scores, shares = (
        np.bincount(of, x, BINS)
        for x in (
            population.shares[1],
            population.shares.sum(axis=0) * SCORES,
            population.shares.sum(axis=0),
        )
    )
    return float((np.abs(rates - scores)[there] / shares[there]).max())


def _releases(
    cell: Cell, seeds: range
) -> Iterator[tuple[Integers, Histogram | None, Mapping[str, Estimate]]]:
    """Drawn rows, what was released of them, and its metrics."""
    population, size = world(cell.world), cell.clients * ROWS_PER_CLIENT
    epsilon = math.inf if cell.trust == SecAgg.name else EPSILON
    settings: dict[str, Any] = {}
    if cell.group == "clients":
        settings["estimand"] = "clients"
    if (cell.unit == User.name and cell.trust != Local.name) or cell.method != FedEvaluate.name:
        settings["rows_per_client"] = float(ROWS_PER_CLIENT)
    what = tuple(vars(cell).values())[:-1]
    shared = None
    for seed in seeds:
        rng = rng_of("evaluation coverage", seed, *what)
        facts = Federation(
            cell.clients, 2, epsilon=epsilon, unit=cell.unit, trust=cell.trust, seed=seed
        )
        if cell.group == Example.name:
            shared = shared or FedEvaluate(facts)
            sizes = rows_of_rounds(shared) if cell.trust == Local.name else [size]
            parts = [population.draw(each, rng) for each in sizes]
            release, drawn = released(shared, parts, rng), np.sum(parts, axis=0)
        else:
            kind: Any = STRATEGIES[cell.method]
            strategy = kind(facts, secure_aggregation="none", **settings)
            if cell.dealt == "drawn":
                drawn, shards = _new_clients(population, cell.clients, rng)
            else:
                drawn = population.draw(size, rng)
                shards = shards_of(drawn, cell.clients, cell.dealt, rng)
            found = run_inline(strategy, shards)
            if isinstance(found, SingleMetric):
                yield drawn, None, {found.name: found.estimate}
                continue
            if not isinstance(found, ScoreRelease):
                raise TypeError(f"an evaluation released {found!r}")
            release = found
        histogram = release.histograms["model", "", ""]
        if cell.group == Example.name:
            yield drawn, histogram, evaluate(histogram, "positive", only=cell.metrics)
        else:
            own = release.findings().metrics["model"]
            yield drawn, histogram, {name: own[name] for name in cell.metrics}


def _new_clients(
    population: World, clients: int, rng: np.random.Generator
) -> tuple[Integers, Shards]:
    """Counted rows, and the rows of clients that each have a share of positives of their own."""
    share = float(population.shares[1].sum())
    own = rng.beta(SKEW * share, SKEW * (1 - share), clients)
    positives = rng.binomial(ROWS_PER_CLIENT, own)
    labels = np.concatenate([np.arange(ROWS_PER_CLIENT) < k for k in positives]).astype(np.int64)
    cell = np.empty(len(labels), np.int64)
    for outcome in (0, 1):
        odds: Floats = population.shares[outcome] / population.shares[outcome].sum()
        there = labels == outcome
        cell[there] = rng.choice(CELLS, int(there.sum()), p=odds)
    score = SCORES[cell]
    logits = np.stack([np.zeros(len(score)), np.log(score / (1 - score))], axis=1)
    owner = np.repeat(np.arange(clients), ROWS_PER_CLIENT)
    drawn = np.bincount(cell + CELLS * labels, minlength=2 * CELLS).reshape(2, -1)
    return drawn, Shards.from_owner(logits, labels, owner, clients)


def claims(found: Rows) -> list[RowsClaim]:
    """Nothing under 92 % without a warning, by group."""
    said: list[RowsClaim] = []
    for group in dict.fromkeys(r["group"] for r in found):
        mine = [r for r in found if r["group"] == group]
        silent = [
            f"{r['unwarned']} ({r['world']}, {r['trust']}, {r['clients']:,} clients)"
            for r in mine
            if r["unwarned"]
        ]
        text = f"{group}: no interval holds the truth in less than 92 % without a warning"
        lowest = min(mine, key=lambda r: r["lowest"])
        shown = f"lowest {100 * lowest['lowest']:.1f} %, {lowest['of']}"
        said.append((text, not silent, "; ".join([shown, *silent])))
    return said
