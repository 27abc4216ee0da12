"""ROC and precision-recall curves of private releases, beside the method of Xu & Cormode 2025.

Xu & Cormode ("Federated computation of ROC and PR curves", arXiv 2510.04979) release a binary tree
of counts for each outcome, read Q quantiles of each from it, and join them by monotone cubic
interpolation. This follows the authors' program (github.com/xuefeng-xu/fedcurve, d901b78) but for
the noise, which is that of the same tree of `FedEvaluate`: as there discrete Laplace, epsilon /
height for each level, with least squares over the levels. The rows are the test rows of
adult-income; the paper has XGBoost's scores of the rows of Adult that it was trained on.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean

import numpy as np
from scipy.interpolate import PchipInterpolator

from experiments.studies.claims import larger, listed
from experiments.studies.evaluation.worlds import EDGES, released, world
from experiments.studies.rows import counted, grouped, rng_of, standard_error, where
from experiments.studies.spec import Rows, RowsClaim, Study
from fedcal import datasets
from fedcal.core.numerics import Floats
from fedcal.evaluation import Histogram, pr_curve, roc_curve
from fedcal.metrics.score_table import TREE
from fedcal.privacy.privacy import Federation
from fedcal.strategies.methods.evaluate import FedEvaluate
from fedcal.strategies.server.outcome import Progress
from fedcal.trust import Distributed, SecAgg
from fedcal.units import Example

DATA, CLIENTS = "adult-income", 100
EPSILONS = (0.1, 0.3, 1.0, math.inf)
QUANTILES, BINS = (8, 32, 128), (60, 240)
THEIRS, OURS = "Xu & Cormode", "fedcal"
SIZES = {THEIRS: QUANTILES, OURS: BINS}

CURVES = {"ROC": roc_curve, "PR": pr_curve}
GRID = np.linspace(0.0, 1.0, 10_001)


def _strategy(method: str, size: int, epsilon: float) -> FedEvaluate:
    """Return the strategy whose release a method reads, without delta; size: quantiles, buckets."""
    trust = Distributed.name if math.isfinite(epsilon) else SecAgg.name
    unit = Example.name
    federation = Federation(CLIENTS, 2, epsilon=epsilon, delta=0.0, unit=unit, trust=trust)
    if method == OURS:
        return FedEvaluate(federation, bins=size)
    leaves = 4 * size
    encoding, height = (TREE, leaves.bit_length() - 1) if math.isfinite(epsilon) else ("auto", 0)
    return FedEvaluate(
        federation, bins=leaves, edges="equal-width", encoding=encoding, height=height
    )


def quantile(levels: list[Floats], share: float) -> float:
    """Return the lower edge of the node where a walk down a binary tree of counts ends."""
    passed, node = 0.0, 0
    for nodes in levels:
        node *= 2
        left = max(float(nodes[node] / nodes.sum()), 0.0)
        if passed + left < share:
            passed, node = passed + left, node + 1
        if abs(share - passed) < 1 / (2 * len(levels[-1])):
            return node / len(nodes)
    return node / len(levels[-1])


def share_above(at: Floats, shares: Floats, scores: Floats) -> Floats:
    """Interpolate the share of rows above scores, (Q,) at quantiles; it jumps where they repeat."""
    x, first, many = np.unique(at, return_index=True, return_counts=True)
    found = np.where(scores < x[0], 1.0, 0.0)
    for a, b in pairwise(sorted({0, len(x) - 1, *np.flatnonzero(many > 1)})):
        y = np.append(shares[(first + many - 1)[a:b]], shares[first[b]])
        inside = (x[a] <= scores) & (scores < x[b])
        found[inside] = PchipInterpolator(x[a : b + 1], y)(scores[inside])
    return found


def by_quantiles(h: Histogram, quantiles: int) -> dict[str, tuple[Floats, Floats]]:
    """Return curve -> (x, y) of Xu & Cormode from the counts of the leaves of a tree."""
    shares = np.linspace(1.0, 0.0, quantiles)
    above = []
    for row in h.counts:
        levels = [row]
        while len(levels[0]) > 2:
            levels.insert(0, levels[0].reshape(-1, 2).sum(axis=1))
        at = np.array([quantile(levels, 1 - share) for share in shares])
        above.append(share_above(at, shares, GRID))
    (false, true), (n, p) = above, h.counts.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return {"ROC": (false, true), "PR": (true, true * p / (false * n + true * p))}


def area_error(of: tuple[Floats, Floats], truth: tuple[Floats, Floats]) -> float:
    """Return the area between two curves, over x from 0 to 1."""
    heights = []
    for x, y in (of, truth):
        known = np.isfinite(y)
        order = np.lexsort((y[known], x[known]))
        heights.append(np.interp(GRID, x[known][order], y[known][order]))
    return float(np.abs(heights[0] - heights[1]).mean())


def _read(h: Histogram) -> dict[str, tuple[Floats, Floats]]:
    """Return curve -> (x, y) of a release as it is."""
    return {name: (c.x, c.y) for name, c in ((k, curve(h)) for k, curve in CURVES.items())}


def _areas(progress: Progress | None = None, *, trials: int = 60) -> Rows:
    """Measure area errors of both methods' curves from the same rows, with noise drawn anew.

    Returns
    -------
    list of dict
        `method`, `size` (quantiles, buckets), `epsilon`, `bytes` (payload of a client), `curve`,
        mean area `error` and its standard error `error_std`
    """
    rows = np.rint(world(DATA).shares * len(datasets.load(DATA).labels))
    truth, counts = _read(Histogram.exact(EDGES, rows)), rows.astype(np.int64)
    todo = [(m, s, e) for m, sizes in SIZES.items() for s in sizes for e in EPSILONS]
    found: Rows = []
    for method, size, epsilon in counted(todo, progress):
        strategy, errors = _strategy(method, size, epsilon), defaultdict(list)
        rng = rng_of("evaluation-curves", 0, method, size, epsilon)
        for _ in range(trials if math.isfinite(epsilon) else 2):
            h = released(strategy, [counts], rng).histograms["model", "", ""]
            for name, of in (by_quantiles(h, size) if method == THEIRS else _read(h)).items():
                errors[name].append(area_error(of, truth[name]))
        bound, budget = strategy.plan.bound, "inf" if math.isinf(epsilon) else epsilon
        place = {"method": method, "size": size, "epsilon": budget}
        place["bytes"] = 8 * (2 * h.buckets if bound is None else bound.length)
        for name, each in errors.items():
            spread = {"error": fmean(each), "error_std": standard_error(each)}
            found.append(place | {"curve": name} | spread)
    return found


def _areas_claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield that errors are below 1 / Q without noise, and whose curves are nearer."""
    for name in CURVES:
        exact = where(found, method=THEIRS, epsilon="inf", curve=name)
        text = f"{THEIRS}, {name}: without noise the area error is at most 1 / Q"
        yield text, all(r["error"] <= 1 / r["size"] for r in exact), listed(exact, "error", "size")
    for (epsilon, name), mine in grouped(found, "epsilon", "curve").items():
        ours, theirs = (
            min(where(mine, method=m), key=lambda r: float(r["error"])) for m in (OURS, THEIRS)
        )
        margin = 2 * math.hypot(ours["error_std"], theirs["error_std"])
        yield (
            f"{name}, epsilon = {epsilon}: the better of two numbers of buckets is nearer to the "
            "rows' curve than the best of three numbers of quantiles",
            larger(theirs["error"], ours["error"], margin),
            f"{ours['error']:.4f} with {ours['size']} buckets, {ours['bytes']:,} bytes; "
            f"{theirs['error']:.4f} with {theirs['size']} quantiles, {theirs['bytes']:,} bytes",
        )


areas = Study(_areas, _areas_claims)
