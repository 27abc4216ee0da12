"""Comparisons that README and docs quote: `options` of a section are those of `fedcal compare`.

A row is a line of the comparison: its facts, mean and standard deviation over seeds (`METRIC`,
`METRIC std`) of some metrics and of the seconds of a run, of metrics the value of the first seed
(`METRIC first`), and `harm`, the share of runs whose log loss is above the model's. They have no
claims.

Beside them `temperature-noise`: errors of private temperatures, and the noise that their budget
asks for. The reference is linear: S, the sum of all clients' scores at T, has its root at the
pooled optimum; noise of the staircase mechanism (Geng and Viswanath 2014: of one number at a budget
the least variance), with a client's clip C (FedNewton's) as sensitivity, moves log T by C std /
|S'|. It is no lower bound: a method may ask for less than S. A row is a cell: `noise` is the
reference, and the others are errors of log T from the pooled optimum, as multiples of it, root mean
squares over seeds: of each method, of it at epsilon `EXACT`, where noise has no part in it, and of
`clipping`, the root of the sum of clipped scores. Rows of the data `median` are medians over all
data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import wraps
from itertools import islice, product
from statistics import fmean
from typing import Any

import numpy as np

from experiments.studies.spec import Record, Rows, Study
from fedcal import datasets
from fedcal.clients.questions.temperature import TemperatureScores
from fedcal.core.options import strict
from fedcal.results.comparison import Line, names_of
from fedcal.run.comparison import compare
from fedcal.run.load import assigned_rows
from fedcal.run.simulation import simulate
from fedcal.strategies.server.outcome import Progress

METRICS = ("accuracy", "ece", "classwise_ece", "nll")
FACTS = (
    *("data", "method", "label", "settings", "clients", "partition", "epsilon", "delta", "unit"),
    *("trust", "sampling_rate", "rounds", "seeds", "noise_std", "mechanism", "bytes_up"),
    *("bytes_down", "baseline", "failures"),
)

SHORT = ("data", "label", "clients", "unit", "epsilon", "baseline", "harm", *METRICS[1:])
"""Keys of a row of a comparison with thousands of lines."""

EXACT, GRID = 1000.0, (0.25, 8.0, 1025)


def row_of(line: Line, runs: Sequence[Record]) -> Record:
    """Convert a line of a comparison, and its runs, to a row."""
    row = {k: line[k] for k in FACTS} | {"epsilon": strict(line["epsilon"])}
    row |= {"seconds": line["seconds"]["mean"], "seconds std": line["seconds"]["std"]}
    for name in METRICS:
        of = line["after"][name]
        row |= {name: of["mean"], f"{name} std": of["std"], f"{name} first": of["values"][0]}
    return row | {"harm": fmean(run["after"]["nll"] > run["before"]["nll"] for run in runs)}


def line_of(row: Record) -> Line:
    """Return the line of a comparison that a row was made of, with what rows keep."""
    spread = {k: {"mean": row[k], "std": row[f"{k} std"]} for k in (*METRICS, "seconds")}
    line: Line = {k: row[k] for k in FACTS} | {"epsilon": float(row["epsilon"])}
    return line | {"seconds": spread.pop("seconds"), "after": spread}


def rows(
    *, options: Mapping[str, Any], jobs: int | None = None, progress: Progress | None = None
) -> Rows:
    """Run the comparison."""
    done = compare(jobs=jobs, progress=progress, **options)
    names, runs = names_of(done.cells), iter(done.rows)  # of files without their folders
    found = [row_of(line, [*islice(runs, len(line["seeds"]))]) for line in done.cells]
    return [row | {"data": names[str(row["data"])]} for row in found]


@wraps(rows)
def _short(**how: Any) -> Rows:
    return [{key: row[key] for key in SHORT} for row in rows(**how)]


def _noise(*, options: Mapping[str, Any], seeds: int) -> Rows:
    data, clients, epsilons, methods = options.values()
    b, log_t, runs = np.exp(np.negative(epsilons)), np.log(np.geomspace(*GRID)), []
    stds = np.sqrt((b * (1 + b) / 2) ** (2 / 3) + b) / (1 - b)  # staircase, at sensitivity 1
    for name, many, seed in product(data, clients, range(seeds)):
        how: Any = {"partition": "dirichlet:0.1", "clients": many, "seed": seed}
        shards = assigned_rows(datasets.load(name), "fednewton", *how.values())[1]
        scores = TemperatureScores(*GRID).sums(shards)
        exact_sums, clips, off = scores.sum(axis=0), [], []
        best = np.interp(0.0, -exact_sums, log_t)
        slope = -np.interp(best, log_t, np.gradient(exact_sums, log_t))
        for epsilon, method in product((*epsilons, EXACT), methods):
            run: Any = simulate(name, method=method, set=methods[method], epsilon=epsilon, **how)
            off.append(np.log(run.calibrator.temperature) - best)
            if method == "fednewton":
                clips.append(run.privacy["noise_std"][0] / run.privacy["noise_multiplier"])
        *errors, exact = np.reshape(off, (-1, len(methods)))
        for std, clip, of in zip(stds, clips[:-1], errors, strict=True):
            clipped = np.interp(0.0, -scores.clip(-clip, clip).sum(axis=0), log_t)
            noise = std * clip / slope
            runs.append([noise, *(np.array([clipped - best, *exact, *of]) / noise)])
    cells = np.reshape(runs, (len(data), len(clients), seeds, len(epsilons), -1))
    cells = np.sqrt(np.square(cells).mean(axis=2))
    keys = ("noise", "clipping", *(f"{method} exact" for method in methods), *methods)
    places = product(("median", *data), clients, epsilons)
    each = np.concatenate([np.median(cells, axis=0)[None], cells]).reshape(-1, len(keys)).tolist()
    keys = ("data", "clients", "epsilon", *keys)
    return [dict(zip(keys, (*p, *of), strict=True)) for p, of in zip(places, each, strict=True)]


comparison, quality, noise = (Study(of, lambda rows: ()) for of in (rows, _short, _noise))
