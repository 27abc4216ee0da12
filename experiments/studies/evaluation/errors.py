"""Errors of private releases against the rows' own metrics: Table 1 of Cormode & Markov, measured.

The table bounds mean absolute errors for M clients of one row each, by three trust models: secure
aggregation without noise (`secagg`), one noise in the sum (`distributed`, unit example), and each
client's own (`local`, optimal unary encoding, unit user). Here the same errors are measured with
`FedEvaluate` over M, buckets B and epsilon, and their log-log slopes are set beside the table's
exponents. These are upper bounds: an error may fall faster.

What each line of the table is taken to be:

* P/R/A given: accuracy, precision and recall at one threshold, which is an edge of a bucket;
* P/R/A varying: the same at thresholds that are chosen later, read at the nearest edge, mean over
  them. The table's exponents are for flat counts and the B that balances bucket and noise,
  M**(2/3) and M**(1/3); our own encoding has its noise of a prefix sum hardly grow with B;
* ROC AUC: against that of the rows' own scores;
* calibration: the paper's expected calibration error of scores that are calibrated by histogram
  binning: mean over the population of |share of outcome 1 in the bucket as released - the rate at
  the score itself|. Its exponents are for B = M**(1/3), and M**(1/4) under `local`.

"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from statistics import fmean
from typing import Any

import numpy as np

from experiments.studies.claims import between
from experiments.studies.evaluation import worlds
from experiments.studies.rows import counted, grouped, rng_of, where
from experiments.studies.spec import Record, Rows, RowsClaim, Study, study_file
from fedcal.core.numerics import Floats, Integers
from fedcal.evaluation import METRICS, Histogram
from fedcal.metrics.score_table import FLAT, equal_width
from fedcal.strategies.methods.evaluate import FedEvaluate
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Local, SecAgg
from fedcal.units import Example, User

LARGE, LARGEST = 100_000, 1_000_000
"""Clients; slopes are of as many as lie between."""
SLACK = 0.1
"""By how much a slope may exceed the exponent of the bound and still be said to agree. Its upper
95 % limit has to be below; a slope whose error is too large for that is not told."""


@dataclass(frozen=True)
class Setting:
    """The parameters of one measured release of a federation."""

    trust: str
    clients: int
    bins: int
    world: str = "beta"
    epsilon: float = 1.0
    encoding: str = "auto"
    height: int = 0
    edges: str = "equal-width"


# -- errors of one release -------------------------------------------------------------------


def _metrics(names: Sequence[str], _: worlds.World, counts: Integers, seen: Histogram) -> float:
    """Return the mean error of metrics, at 0.5."""
    return fmean(_off(METRICS[name]().value(seen), worlds.value_of(counts, name)) for name in names)


def _varying(population: worlds.World, counts: Integers, seen: Histogram) -> float:
    """Return the mean error over thresholds from the 5 % to the 95 % quantile of scores."""
    thresholds = _thresholds(population.name)
    buckets = np.searchsorted(seen.edges, worlds.near(thresholds, seen.edges) - 1e-12)
    exact = _curves(counts, np.searchsorted(worlds.EDGES, thresholds))
    return float(np.abs(np.clip(_curves(seen.counts, buckets), 0, 1) - exact).mean())


def _curves(counts: Floats | Integers, at: Integers) -> Floats:
    """Accuracy, precision, recall with thresholds at the lower edges of `at`, (3, thresholds)."""
    below = np.concatenate([np.zeros((2, 1)), np.cumsum(counts, axis=1)], axis=1)
    (n, p), (tn, fn) = below[:, -1], below[:, at]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.stack([(tn + p - fn) / (n + p), (p - fn) / (n + p - tn - fn), (p - fn) / p])
    return np.asarray(np.nan_to_num(shares, nan=0.0))


@cache
def _thresholds(name: str) -> Floats:
    """41 of them, quantiles of the population's scores, at edges of cells."""
    below = np.cumsum(worlds.world(name).shares.sum(axis=0))
    return worlds.EDGES[np.searchsorted(below, np.linspace(0.05, 0.95, 41))]


def _calibration(population: worlds.World, _: Integers, seen: Histogram) -> float:
    """Mean over the population of |calibrated score - rate at the score|."""
    n, p = seen.counts
    with np.errstate(divide="ignore", invalid="ignore"):
        binned = np.where(n + p > 0, np.clip(p / (n + p), 0.0, 1.0), seen.middles)
    shares = population.shares.sum(axis=0)
    place = np.searchsorted(seen.edges, worlds.SCORES, side="right") - 1
    gap = np.abs(binned[place] - population.rates)
    return float(shares[shares > 0] @ gap[shares > 0])


def _off(found: float, truth: float) -> float:
    """Absolute error; what has no value is guessed to be 1/2."""
    return abs((float(np.clip(found, 0.0, 1.0)) if math.isfinite(found) else 0.5) - truth)


QUANTITIES: dict[str, Callable[[worlds.World, Integers, Histogram], float]] = {
    "P/R/A given": partial(_metrics, ("accuracy", "precision", "recall")),
    "P/R/A varying": _varying,
    "ROC AUC": partial(_metrics, ("roc_auc",)),
    "calibration": _calibration,
}


# -- what is run -----------------------------------------------------------------------------


SPIKE = 0.05
"""phi of Definition 1, of buckets in place of points."""

HUNDRED = "clients, 100 buckets"
ENOUGH, GOOD = 10_000, 0.02
"""Clients from which on the paper calls accuracy good, and the error that we call so."""

SHARED = study_file("evaluation")["shared"]


def settings_of(one: Mapping[str, Any]) -> list[Setting]:
    """Return the settings along the axis of a series of `evaluation.toml`.

    Of an axis one setting is `varied`, has `values`, and others stay. What has no name of its own
    there are facts of all settings; with `power` there are
    `factor` clients**`power` epsilon**`power_of_epsilon` buckets, an even number, so that 1/2 is an
    edge.
    """
    fixed = dict(SHARED["axes"][one["axis"]])
    varied, values = fixed.pop("varied"), fixed.pop("values")
    known = ("axis", "label", "quantity", "theory", "power", "factor", "power_of_epsilon")
    facts = fixed | {k: v for k, v in one.items() if k not in known}
    each = [facts | {varied: value} for value in values]
    if "power" in one:
        power, factor = float(Fraction(one["power"])), one.get("factor", 1.0)
        more = float(Fraction(one.get("power_of_epsilon", "0")))
        for of in each:
            scale = factor * math.pow(of["clients"], power) * math.pow(of.get("epsilon", 1.0), more)
            of["bins"] = max(2, 2 * round(scale / 2))
    return [Setting(**of) for of in each]


def rows(
    progress: Progress | None = None, *, trials: int = 100, most_clients: int = LARGEST
) -> Rows:
    """Mean absolute errors, and slopes.

    Parameters
    ----------
    progress
        called after each series
    trials
        releases of each setting, of rows drawn anew
    most_clients
        settings with more are left out

    Returns
    -------
    list of dict
        what = "error": `axis`, `label`, `quantity`, the setting's `trust`, `clients`, `buckets`,
        `epsilon`, `height`, and the mean `error` with its standard error `error_std`;
        what = "slope": `axis`, `label`, `quantity`, `trust`, `slope`, `theory` (None: the table
        has none), and `slope_std`; what = "scores": see `_behaved`
    """
    found: Rows = [_behaved(name) for name in (*worlds.WORLDS, "adult-income")]
    for one in counted(SHARED["series"], progress):
        known = {k: one[k] for k in ("axis", "label", "quantity", "trust")}
        used: list[tuple[float, float, float]] = []
        for setting in settings_of(one):
            if setting.clients > most_clients:
                continue
            errors = _errors(setting, one["quantity"], trials)
            error, std = float(np.mean(errors)), float(np.std(errors)) / math.sqrt(trials)
            epsilon = "inf" if setting.trust == SecAgg.name else setting.epsilon
            facts = {"clients": setting.clients, "buckets": setting.bins, "epsilon": epsilon}
            facts |= {"height": setting.height, "error": error, "error_std": std}
            found.append({"what": "error", **known, **facts})
            if one["axis"] != "clients" or setting.clients >= min(LARGE, most_clients):
                used.append((getattr(setting, SHARED["axes"][one["axis"]]["varied"]), error, std))
        theory = float(Fraction(one["theory"])) if "theory" in one else None
        found.append(
            {"what": "slope", **known, "theory": theory, **_slope(np.reshape(used, (-1, 3)))}
        )
    return found


def _behaved(name: str) -> Record:
    """Measure how well-behaved a population's scores are (Definition 1).

    Returns
    -------
    dict
        `spikes`: buckets of a hundred with more than `SPIKE` of an outcome's rows; `steepest`:
        largest change of an outcome's density between neighbours without a spike, over their
        distance
    """
    share = worlds.bucket_counts(worlds.world(name).shares, equal_width(100))
    share /= share.sum(axis=1, keepdims=True)
    spikes = np.asarray((share > SPIKE).any(axis=0))
    steps = 100**2 * np.abs(np.diff(share, axis=1))[:, ~np.logical_or(spikes[1:], spikes[:-1])]
    facts = {"spikes": int(spikes.sum()), "steepest": float(steps.max())}
    return {"what": "scores", "world": name} | facts


def _slope(points: Floats) -> Record:
    """Slope of log error by log x and its standard error, from (points, 3): x, error, its std."""
    x, y, std = points.T
    if not y.all() or len(x) < 2:
        return {"slope": None, "slope_std": None}
    lever = np.log(x) - np.log(x).mean()
    lever /= np.square(lever).sum()
    spread = float(np.sqrt(np.square(lever * std / y).sum()))
    return {"slope": float(lever @ np.log(y)), "slope_std": spread}


@cache
def _strategy(of: Setting) -> FedEvaluate:
    """Return the strategy that makes a release."""
    local, exact = of.trust == Local.name, of.trust == SecAgg.name
    unit = User.name if local else Example.name
    flat = local and of.encoding == FLAT  # unary encoding takes a tree: of one level
    return FedEvaluate(
        worlds.federation(of.trust, of.clients, unit, epsilon=of.epsilon),
        bins=of.bins,
        edges=of.edges,
        height=1 if flat else of.height,
        encoding="auto" if flat or exact else of.encoding,
    )


def _errors(setting: Setting, quantity: str, trials: int) -> Floats:
    strategy, population = _strategy(setting), worlds.world(setting.world)
    sizes, error = worlds.rows_of_rounds(strategy), QUANTITIES[quantity]
    found = []
    for trial in range(trials):
        rng = rng_of("evaluation errors", trial, setting.trust, setting.clients, setting.bins)
        drawn = [population.draw(size, rng) for size in sizes]
        histogram = worlds.released(strategy, drawn, rng).histograms["model", "", ""]
        found.append(error(population, np.asarray(sum(drawn)), histogram))
    return np.array(found)


# -- claims ----------------------------------------------------------------------------------


def claims(found: Rows) -> Iterator[RowsClaim]:
    """Each exponent of the table against the measured slope; without noise P/R/A are exact."""
    exact = where(found, what="error", trust=SecAgg.name, quantity="P/R/A given")
    largest = max(r["error"] for r in exact)
    yield "secagg: P/R/A given is exact", largest == 0.0, f"largest error {largest:.1g}"
    for r in where(found, what="slope"):
        if r["theory"] is None or r["slope"] is None:
            continue
        text = f"{r['trust']}, {r['label']}: the error of {r['quantity']} by {r['axis']}"
        text += f" has a slope of at most {r['theory']:.2f}"
        most, error = r["theory"] + SLACK, 2 * r["slope_std"]
        holds = None if abs(r["slope"] - most) <= error else r["slope"] < most
        shown = f"{r['slope']:.2f} +- {r['slope_std']:.2f}"
        if holds is None:
            shown += f": the 95 % limits are to either side of {most:.2f}"
        yield text, holds, shown
    text = "The scores have no spikes: no bucket of a hundred has more than 5 % of an outcome"
    yield between(text, where(found, what="scores"), "spikes", "world", 0, 0)
    many = [r for r in where(found, axis=HUNDRED, what="error") if r["clients"] >= ENOUGH]
    for (trust, quantity), mine in grouped(many, "trust", "quantity").items():
        text = f"{trust}, 100 buckets, {ENOUGH:,} clients and more: the error of {quantity} is at "
        text += f"most {100 * GOOD:g} points"
        yield between(text, mine, "error", "clients", 0.0, GOOD, "error_std")


study = Study(rows, claims)
