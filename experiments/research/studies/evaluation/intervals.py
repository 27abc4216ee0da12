"""Do intervals of metrics hold the truth? Coverage over simulated federations. Our own studies.

Each federation draws its rows anew from a population whose metrics are known (`worlds`), is asked
at epsilon = 1 (secagg: none), and reads its release. The estimand is that of new rows: the
population's value. Under unit `example`, and where each user has one row, what is released is a sum
over rows and nothing is clipped, so how rows are dealt to clients changes no bit of it (a test says
so); rows are not dealt there.

`populations`, in three groups of rows: smooth metrics; calibration errors, a population whose true
error is 0 included; and unit `user`: real clients, real clipping, dealt at random or by
Dirichlet(1). Clipping biases what users answer, and no interval knows by how much; `bias` says it,
and `held_mean` the coverage without it.

`hard`: every interval that `evaluate` prints, on `worlds.HARD`: 1 % positives, calibrated or not;
calibration slopes of 0.2 and 5; shifted scores; scores that separate the classes. Four groups:

* `example`: 50 rows a client, 30 to 1,000 clients, all trust models; under `local` whole users of
  one row each;
* `user`: whole clients, with label skew; clipping biases what they answer;
* `clients`: clients are drawn anew, each with a share of positives of its own, and intervals are
  for new clients;
* `alone`: AUC, KS and accuracy, each asked alone.

Formulas and conditions of warnings were mended after these worlds were seen: the claims tell what
happens on them, and are no evidence for others. Two truths are not the population's: the MCE is
that of bins which hold rows, and the ECE of equal mass that of the release's buckets.
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
from fedcal.evaluation import GAPS, METRICS, Estimate, Histogram, evaluate
from fedcal.evaluation.estimators import all_metrics
from fedcal.evaluation.estimators.gap_metric import BINS
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.evaluation.single import SingleMetric
from fedcal.experiments.research.studies.evaluation.worlds import (
    CELLS,
    HARD,
    SCORES,
    WORLDS,
    World,
    bucket_counts,
    federation,
    released,
    rows_of_rounds,
    world,
)
from fedcal.experiments.research.studies.rows import counted, grouped, rng_of, span, where
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim, Study
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.metrics.binning import bin_index
from fedcal.metrics.buckets import fine_tails
from fedcal.partition import owners
from fedcal.strategies import STRATEGIES, FedEvaluate
from fedcal.strategies.methods.score_ways import BUCKETS
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Central, Distributed, Local, SecAgg
from fedcal.units import Example, User

ROWS_PER_CLIENT = 50

Told = tuple[Integers, Histogram | None, Mapping[str, Estimate]]
"""Drawn rows, what was released of them, and metrics of the release."""


def of_rows(logits_of: Integers, labels: Integers, owner: Integers, clients: int) -> Shards:
    """Rows of clients by the number of the cell of each row's score."""
    score = SCORES[logits_of]
    logits = np.stack([np.zeros(len(score)), np.log(score / (1 - score))], axis=1)
    return Shards.from_owner(logits, labels, owner, clients)


def shards_of(drawn: Integers, clients: int, dealt: str, rng: np.random.Generator) -> Shards:
    """Deal counted rows, (2, CELLS), to clients, by "iid" or "dirichlet:BETA"."""
    cell = np.repeat(np.arange(2 * CELLS), drawn.ravel())
    labels = cell // CELLS
    if dealt == "iid":
        owner = rng.integers(0, clients, len(labels))
    else:
        owner = owners.dirichlet(labels, clients, float(dealt.partition(":")[2]), rng)
    return of_rows(cell % CELLS, labels, owner, clients)


def engine_release(strategy: Any, shards: Shards) -> ScoreRelease | SingleMetric:
    """Run a strategy over clients and return its release."""
    strategy.secure_aggregation = "none"  # the same bits, sooner
    found = run_inline(strategy, shards)
    if not isinstance(found, (ScoreRelease, SingleMetric)):
        raise TypeError(f"an evaluation released {found!r}")
    return found


def histogram_of(release: ScoreRelease) -> Histogram:
    """Return the histogram of all rows."""
    return release.histograms["model", "", ""]


# -- populations: how wide, and how often right --------------------------------------------------

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


def _populations(
    progress: Progress | None = None,
    *,
    federations: int = 1000,
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
    return [row for cell in counted(cells, progress) for row in _measured(cell, federations)]


def _measured(cell: Cell, federations: int) -> Iterator[Record]:
    population, edges = world(cell.world), fine_tails(cell.bins, nodes=False)
    shown = Histogram.exact(edges, bucket_counts(population.shares, edges))
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
    population, size = world(cell.world), cell.clients * ROWS_PER_CLIENT
    nominal = float(ROWS_PER_CLIENT) if cell.unit == User.name else None

    def asked(seed: int) -> FedEvaluate:
        facts = federation(cell.trust, cell.clients, cell.unit, seed)
        return FedEvaluate(facts, bins=cell.bins, rows_per_client=nominal)

    shared = asked(0)
    what = (cell.world, cell.trust, cell.unit, cell.clients, cell.dealt, cell.bins)
    for seed in range(federations):
        rng = rng_of("evaluation intervals", seed, *what)
        drawn = population.draw(size, rng)
        if cell.unit == Example.name:
            release: Any = released(shared, [drawn], rng)
        else:
            release = engine_release(asked(seed), shards_of(drawn, cell.clients, cell.dealt, rng))
        found = evaluate(histogram_of(release), "positive", level=LEVEL, only=cell.metrics)
        yield {metric: found[metric] for metric in cell.metrics}


def _populations_claims(found: Rows) -> Iterator[RowsClaim]:
    """Coverage of each trust and kind of metric, and the width for whole users."""
    for (trust,), mine in grouped(where(found, group="smooth"), "trust").items():
        about = f"Unit example, {trust}: "
        text = f"{about}sampling and noise alone, intervals hold 92.5 to 97.5 %"
        yield text, *_covered(mine, NARROW, WIDE, "random")
        text = f"{about}with the bound of binning added, intervals hold at least 92.5 %"
        yield text, *_covered(mine, NARROW, 1.0)
        text = f"{about}and so at most 97.5 %, with {BUCKETS} buckets"
        yield text, *_covered(where(mine, bins=BUCKETS), 0.0, WIDE)
        if fine := where(mine, bins=FINE):
            text = f"{about}and so at most 97.5 %, with {FINE} buckets for roc_auc and brier"
            yield text, *_covered(fine, 0.0, WIDE)
    for (name,), mine in grouped(where(found, group="error"), "world").items():
        text = f"Unit example, {name}: intervals of calibration errors hold at least 93 %"
        yield text, *_covered(mine, LEAST, 1.0)
    users = where(found, group=User.name)
    for (clients, dealt), mine in grouped(users, "clients", "dealt").items():
        about = f"Unit user, {clients:,} clients, {dealt}: "
        yield f"{about}intervals hold at least 93 %", *_covered(mine, LEAST, 1.0)
        ratios = {r["metric"]: r["oracle"] for r in mine if r["metric"] in SMOOTH}
        known = [ratio for ratio in ratios.values() if ratio is not None]
        wide = [m for m, ratio in ratios.items() if ratio is None or ratio > MOST_WIDTH]
        shown = f"{span(known, '.2f')} times" if known else "no ratio"
        shown += f"; wider: {', '.join(wide)}" if wide else ""
        text = f"{about}mean widths of {', '.join(SMOOTH)} at most 1.5 times the oracle's"
        yield text, not wide, shown


def _covered(found: Rows, least: float, most: float, key: str = "coverage") -> tuple[bool, str]:
    text = f"{span((r[key] for r in found), '.1f', 100)} %"
    bad = [r for r in found if not least <= r[key] <= most]
    if bad:
        each = (f"{r['metric']} ({_place(r)}) {100 * r[key]:.1f} %" for r in bad)
        text += f"; outside: {', '.join(each)}"
    return not bad, text


def _place(row: Record) -> str:
    return f"{row['world']}, {row['trust']}" if row["unit"] == Example.name else row["world"]


populations = Study(_populations, _populations_claims)

# -- hard worlds: every interval -----------------------------------------------------------------

WARNED = 0.92
"""Coverage below which the line of an interval must have a warning."""

ALL = tuple(n for n, kind in all_metrics.SMOOTH.items() if "positive" in kind.scores)
SKEW = 0.2
"""Of the beta distribution of clients' shares of positives: most have nearly one label."""


@dataclass(frozen=True)
class HardCell:
    """Federations of one kind; `dealt` as `shards_of` has it, or "drawn" for new clients."""

    group: str
    world: str
    trust: str
    clients: int
    unit: str = Example.name
    dealt: str = "any"
    method: str = FedEvaluate.name
    metrics: tuple[str, ...] = ALL


def _hard_cells() -> Iterator[HardCell]:
    for name in HARD:
        yield HardCell(Example.name, name, SecAgg.name, 30, metrics=(*ALL, *GAPS))
        errors = tuple(GAPS) if name.startswith("rare") else ()
        yield HardCell(Example.name, name, Central.name, 1000, metrics=(*ALL, *errors))
        yield HardCell(Example.name, name, Distributed.name, 100)
        yield HardCell(Example.name, name, Local.name, 30 * ROWS_PER_CLIENT, User.name)
    yield HardCell(User.name, "shifted", Central.name, 100, User.name, "dirichlet:0.1")
    for clients, trust in ((30, SecAgg.name), (100, SecAgg.name), (100, Central.name)):
        yield HardCell("clients", "shifted", trust, clients, dealt="drawn")
    one = "evaluate-accuracy"
    for dealt in ("iid", "dirichlet:0.1"):
        yield HardCell("alone", "shifted", Central.name, 100, User.name, dealt, one, ())


HARD_CELLS = tuple(_hard_cells())


def _hard(
    progress: Progress | None = None,
    *,
    federations: int = 100,
    cells: Sequence[HardCell] = HARD_CELLS,
) -> Rows:
    """Coverage of all metrics of each cell.

    Parameters
    ----------
    progress
        called after each cell
    federations
        of a first look; metrics whose coverage is poor have a second one, of twice as many others
    cells
        what is run

    Returns
    -------
    list of dict
        `group`, `world`, `trust`, `unit`, `clients`, `dealt`, `method`; how many `metrics`, the
        `lowest` coverage of them and `of` which it is, the `median`; the metrics `below` `WARNED`,
        and those of them whose line often has no warning, `unwarned`, as text
    """
    return [_looked_at(cell, federations) for cell in counted(cells, progress)]


def _looked_at(cell: HardCell, federations: int) -> Record:
    first = _coverage(cell, range(federations))
    poor = tuple(name for name, (c, _) in first.items() if c < WARNED)
    others = range(federations, 3 * federations)
    again = _coverage(replace(cell, metrics=poor), others) if poor else {}
    coverage = {name: again.get(name, one)[0] for name, one in first.items()}
    lowest = min(coverage, key=lambda name: coverage[name])
    below = {name: c for name, c in coverage.items() if c < WARNED}
    return {
        **{name: entry for name, entry in vars(cell).items() if name != "metrics"},
        "federations": federations,
        "metrics": len(coverage),
        "lowest": coverage[lowest],
        "of": lowest,
        "median": float(np.median(list(coverage.values()))),
        "below": ", ".join(f"{name} {100 * c:.1f}" for name, c in below.items()),
        "unwarned": ", ".join(name for name in below if again[name][1] < WARNED),
    }


def _coverage(cell: HardCell, seeds: range) -> dict[str, tuple[float, float]]:
    """Metric -> share of intervals that hold the truth; and of those that hold it or warn."""
    population = world(cell.world)
    hits: dict[str, list[tuple[bool, bool]]] = {}
    for drawn, histogram, found in _releases(cell, seeds):
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
    """Return the population's MCE over the bins that hold rows."""
    of, all_shares = bin_index(SCORES, BINS), population.shares.sum(axis=0)
    there = np.bincount(of, drawn.sum(axis=0), BINS) > 0
    rates, scores, shares = (
        np.bincount(of, x, BINS) for x in (population.shares[1], all_shares * SCORES, all_shares)
    )
    return float((np.abs(rates - scores)[there] / shares[there]).max())


def _releases(cell: HardCell, seeds: range) -> Iterator[Told]:
    population, size = world(cell.world), cell.clients * ROWS_PER_CLIENT
    settings: dict[str, Any] = {}
    if cell.group == "clients":
        settings["estimand"] = "clients"
    if (cell.unit == User.name and cell.trust != Local.name) or cell.method != FedEvaluate.name:
        settings["rows_per_client"] = float(ROWS_PER_CLIENT)
    what = tuple(vars(cell).values())[:-1]
    shared = None
    for seed in seeds:
        rng = rng_of("evaluation coverage", seed, *what)
        facts = federation(cell.trust, cell.clients, cell.unit, seed)
        if cell.group == Example.name:
            shared = shared or FedEvaluate(facts)
            sizes = rows_of_rounds(shared) if cell.trust == Local.name else [size]
            parts = [population.draw(each, rng) for each in sizes]
            histogram = histogram_of(released(shared, parts, rng))
            told = evaluate(histogram, "positive", only=cell.metrics)
            yield np.sum(parts, axis=0), histogram, told
            continue
        if cell.dealt == "drawn":
            drawn, shards = _new_clients(population, cell.clients, rng)
        else:
            drawn = population.draw(size, rng)
            shards = shards_of(drawn, cell.clients, cell.dealt, rng)
        kind: Any = STRATEGIES[cell.method]
        found = engine_release(kind(facts, **settings), shards)
        if isinstance(found, SingleMetric):
            yield drawn, None, {found.name: found.estimate}
        else:
            own = found.findings().metrics["model"]
            told = {name: own[name] for name in cell.metrics if name in own}
            yield drawn, histogram_of(found), told


def _new_clients(
    population: World, clients: int, rng: np.random.Generator
) -> tuple[Integers, Shards]:
    """Draw clients that each have their own share of positives; return counts and rows."""
    share = float(population.shares[1].sum())
    own = rng.beta(SKEW * share, SKEW * (1 - share), clients)
    positives = rng.binomial(ROWS_PER_CLIENT, own)
    labels = np.concatenate([np.arange(ROWS_PER_CLIENT) < k for k in positives]).astype(np.int64)
    cell = np.empty(len(labels), np.int64)
    for outcome in (0, 1):
        odds: Floats = population.shares[outcome] / population.shares[outcome].sum()
        there = labels == outcome
        cell[there] = rng.choice(CELLS, int(there.sum()), p=odds)
    owner = np.repeat(np.arange(clients), ROWS_PER_CLIENT)
    drawn = np.bincount(cell + CELLS * labels, minlength=2 * CELLS).reshape(2, -1)
    return drawn, of_rows(cell, labels, owner, clients)


def _hard_claims(found: Rows) -> Iterator[RowsClaim]:
    """Nothing under 92 % without a warning, by group."""
    for (group,), mine in grouped(found, "group").items():
        silent = [
            f"{r['unwarned']} ({r['world']}, {r['trust']}, {r['clients']:,} clients)"
            for r in mine
            if r["unwarned"]
        ]
        text = f"{group}: no interval holds the truth in less than 92 % without a warning"
        lowest = min(mine, key=lambda r: r["lowest"])
        shown = f"lowest {100 * lowest['lowest']:.1f} %, {lowest['of']}"
        yield text, not silent, "; ".join([shown, *silent])


hard = Study(_hard, _hard_claims)
