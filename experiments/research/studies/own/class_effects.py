"""Does `fednewton-class` keep class effects where they pay, and nowhere else? On test rows.

Users are dealt their rows with Dirichlet(0.1) label skew. Data sets are too small for 1,000 users
of 50 rows: their fit rows are repeated there, and the method is told so (`copies`). Each private
method is run with 20 seeds, of deals and of noise; what is paired has deal and noise in common.

The method's constants were chosen on six networks that do not ship, and on halves of the fit rows
of those that do. What was changed after these test rows had shown harm, the page says.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from statistics import fmean
from typing import Any, cast

import numpy as np

from fedcal import datasets
from fedcal.calibrators import Calibrator, TemperatureScaling, VectorScaling
from fedcal.core.errors import InputError
from fedcal.core.numerics import softmax
from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers
from fedcal.evaluation.calibrate import How, calibrator_from
from fedcal.experiments.research.studies.rows import counted, dealt, grouped, one, rng_of, where
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.metrics import summary
from fedcal.partition import owners
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies import FedBBQ, FedEvaluate, FedNewton, FedNewtonClass, FedTemp, FedVector
from fedcal.strategies.server.outcome import Progress
from fedcal.units import UNITS, Example, User

NAME = "class effects"
USER, EXAMPLE = User.name, Example.name
MANY = ("resnet110-cifar10", "densenet-cifar100", "mnist-cnn", "mnist-shift", "mmlu-llama")
TWO = ("imdb-binary", "game-forecasts")
SETTINGS = (
    *((USER, 100, 0.1), (USER, 100, 1.0), (USER, 100, 8.0)),
    *((USER, 1000, 1.0), (EXAMPLE, 100, 1.0), (EXAMPLE, 100, 8.0)),
)
"""Unit, clients, epsilon."""
FIRST = SETTINGS[1]
SEEDS, RUNS, ROWS_PER_CLIENT = 20, 50, 50
OURS, ALONE, POOLED = "fednewton-class", "fednewton", "pooled temperature"
SHARP = {4.0: 1.05, 0.25: 1.10}
"""Factor of all logits -> the most that classwise ECE may be above the pooled temperature's."""
MAPPED = (*TWO, MANY[0])
MAPS: tuple[How, ...] = ("isotonic", "platt")
HARM = {0.1: 0.005, 1.0: 0.002}
"""Epsilon -> how much the log loss of a run that keeps offsets may be above its twin's."""
NULL = tuple(product((USER, EXAMPLE), (100, 1000), (0.1, 1.0, 8.0)))

Rowed = tuple[Floats, Integers]
Tested = dict[str, float]


def rows(quick: bool = False, progress: Progress | None = None) -> Rows:
    """Measure each method, offsets kept without class effects, and logits times a factor.

    Parameters
    ----------
    quick
        the first setting of two data sets, two seeds
    progress
        called after each part

    Returns
    -------
    list of dict
        `what`: "methods" (`data`, `unit`, `clients`, `epsilon`, `method`, `classwise_ece`, `nll`,
        means over seeds, `ratio` and `worst`, of classwise ECE to FedNewton's, `kept`, the share of
        seeds, `harm`, the largest difference of log loss among these), "null" (`kept` of `runs`),
        "scaled" (`factor`, `ratio` of classwise ECE to the pooled temperature's), "maps" (`method`,
        the curve that is fitted to an evaluation's release, `ece` and `nll` of the other rows)
    """
    parts: list[Callable[[], Rows]] = [
        *(
            functools.partial(method_rows, name, of, SEEDS)
            for name, of in product(MANY + TWO, SETTINGS)
        ),
        *(functools.partial(null_rows, name, of, RUNS) for name, of in product(MANY[:2], NULL)),
        *(functools.partial(scaled_rows, *of, SEEDS) for of in product(MANY, SHARP)),
        *(functools.partial(map_rows, *of) for of in product(MAPPED, (USER, EXAMPLE))),
    ]
    if quick:
        parts = [functools.partial(method_rows, name, FIRST, 2) for name in MANY[2:4]]
    return [row for part in counted(parts, progress) for row in part()]


def method_rows(name: str, setting: tuple[str, int, float], seeds: int) -> Rows:
    """Each method on one data set in one setting."""
    runs = [_runs(name, setting, seed) for seed in range(seeds)]
    found = []
    for method in runs[0]:
        mine, alone = ([run[of] for run in runs] for of in (method, ALONE))
        ratios = [m["classwise_ece"] / a["classwise_ece"] for m, a in zip(mine, alone, strict=True)]
        row = _row("methods", name, setting, method=method, **_means(mine))
        row |= {"ratio": _five(fmean(ratios)), "worst": _five(max(ratios))}
        kept = [m["nll"] - a["nll"] for m, a in zip(mine, alone, strict=True) if m["kept"]]
        if method == OURS:
            row |= {"kept": len(kept) / seeds, "harm": _five(max(kept)) if kept else None}
        found.append(row)
    return found


def _runs(name: str, setting: tuple[str, int, float], seed: int) -> dict[str, Tested]:
    """Metrics of each method in one run."""
    fit, test, pooled = _split(name, seed)
    shards, copies = population(fit, setting, rng_of(NAME, seed, name, *setting))
    found = {of: _tested(calibrator, test) for of, calibrator in pooled.items()}
    made: dict[str, Any] = {ALONE: FedNewton, OURS: FedNewtonClass}
    if setting == FIRST:
        made |= {"fedtemp": FedTemp, "fedbbq": FedBBQ}
        if shards.classes <= 10:
            made["fedvector"] = FedVector
    for of, method in made.items():
        found[of] = _tested(run(method, setting, shards, copies, seed), test)
    return found


def population(
    fit: Rowed, setting: tuple[str, int, float], rng: np.random.Generator
) -> tuple[Shards, int]:
    """Return the rows, repeated if there are too few of them, and the number of copies."""
    logits, labels = fit
    clients = setting[1]
    copies = max(1, round(clients * ROWS_PER_CLIENT / len(labels))) if clients == 1000 else 1
    picked = np.tile(np.arange(len(labels)), copies)
    return dealt(logits, labels, picked, clients, rng), copies


def run(
    method: Any, setting: tuple[str, int, float], shards: Shards, copies: int, seed: int
) -> Calibrator:
    """Fit a calibrator in a private run."""
    unit, clients, epsilon = setting
    federation = Federation(clients, shards.classes, epsilon=epsilon, seed=seed, unit=unit)
    settings: dict[str, Any] = {"secure_aggregation": "none"}
    if UNITS[unit].whole_client and method in (FedNewton, FedNewtonClass):
        settings["rows_per_client"] = len(shards.labels) / clients
    if method is not FedNewtonClass or copies == 1:
        return _made(method(federation, **settings), shards)
    try:
        strategy = method(federation, copies=float(copies), **settings)
    except InputError:  # nothing is looked for: repeated rows make no difference
        strategy = method(federation, **settings)
    return _made(strategy, shards)


def null_rows(name: str, setting: tuple[str, int, float], runs: int) -> Rows:
    """Labels drawn from the model at its pooled temperature: nothing is there to be kept."""
    (logits, _), _, pooled = _split(name, 0)
    probs = _probs(pooled[POOLED], logits)
    kept, clients = 0, setting[1]
    for number in range(runs):
        rng = rng_of(NAME, number, "null", name, *setting)
        picked = np.arange(len(logits))
        if clients == 1000:
            each = ROWS_PER_CLIENT if probs.shape[1] <= 10 else ROWS_PER_CLIENT // 5  # of 100: time
            picked = rng.integers(0, len(logits), clients * each)
        below = probs[picked].cumsum(axis=1) < rng.random((len(picked), 1))
        labels = np.minimum(below.sum(axis=1), probs.shape[1] - 1)
        shards = dealt(logits[picked], labels, np.arange(len(picked)), clients, rng)
        kept += isinstance(run(FedNewtonClass, setting, shards, 1, number), VectorScaling)
    return [_row("null", name, setting, kept=kept, runs=runs)]


def scaled_rows(name: str, factor: float, seeds: int) -> Rows:
    """All logits times a factor: a model far too sharp, or far too flat."""
    ratios: dict[str, list[float]] = {ALONE: [], OURS: []}
    for seed in range(seeds):
        (logits, labels), (test, truth), _ = _split(name, seed)
        fit, judged = (factor * logits, labels), (factor * test, truth)
        best = _tested(TemperatureScaling().fit(*fit), judged)["classwise_ece"]
        shards, _ = population(fit, FIRST, rng_of(NAME, seed, name, factor))
        for of, method in ((ALONE, FedNewton), (OURS, FedNewtonClass)):
            after = _tested(run(method, FIRST, shards, 1, seed), judged)["classwise_ece"]
            ratios[of].append(after / best)
    return [
        _row("scaled", name, FIRST, factor=factor, method=of, ratio=_five(fmean(each)))
        for of, each in ratios.items()
    ]


def map_rows(name: str, unit: str) -> Rows:
    """Fit maps of the score to one release of an evaluation of the fit rows, at epsilon = 1."""
    found: dict[str, list[Tested]] = {how: [] for how in MAPS}
    setting = (unit, 100, 1.0)
    for seed in range(5):
        (logits, labels), test, _ = _split(name, seed)
        owner = owners.iid(labels, 100, rng_of(NAME, seed, name, unit))
        shards = Shards.from_owner(logits, labels, owner, 100)
        federation = Federation(100, shards.classes, epsilon=1.0, seed=seed, unit=unit)
        clip: dict[str, Any] = (
            {"rows_per_client": len(labels) / 100} if UNITS[unit].whole_client else {}
        )
        evaluate = FedEvaluate(federation, **clip, secure_aggregation="none")
        run_inline(evaluate, shards)
        release = evaluate.result()
        whole, score = release.histograms["model", "", ""], cast("Any", release.question.score)
        for how in MAPS:
            made = calibrator_from(whole, score, how, shards.classes, "logits")
            found[how].append(_tested(made, test))
    return [_row("maps", name, setting, method=how, **_means(of)) for how, of in found.items()]


def claims(found: Rows) -> Iterator[RowsClaim]:
    """Yield the limits that were set, their verdicts and the measurements."""
    tried = where(found, what="methods", method=OURS)
    for unit, clients, epsilon in SETTINGS[:2]:
        mine = where(tried, unit=unit, clients=clients, epsilon=epsilon)
        worst = max((r["harm"] for r in mine if r["harm"] is not None), default=-math.inf)
        yield (
            f"users, epsilon = {epsilon:g}: kept offsets cost no seed {HARM[epsilon]:g} nats",
            worst <= HARM[epsilon],
            f"{worst:+.4f}" if math.isfinite(worst) else "none is kept",
        )
    limits = {FIRST: {"mnist-cnn": 0.70}, SETTINGS[5]: {MANY[0]: 0.96, "mnist-cnn": 0.45}}
    for setting in (FIRST, SETTINGS[4], SETTINGS[5]):
        for r in _of(tried, setting):
            limit = limits.get(setting, {}).get(r["data"], None if setting == SETTINGS[5] else 1.02)
            if limit is not None:
                text = f"{_told(setting)}: {r['data']} at most {limit:.2f} of FedNewton's"
                yield text, r["ratio"] <= limit, f"{r['ratio']:.3f}"
    mean = fmean(r["ratio"] for r in _of(tried, SETTINGS[3]) if r["data"] in MANY)
    yield f"{_told(SETTINGS[3])}: mean of {len(MANY)} at most 0.82", mean <= 0.82, f"{mean:.3f}"
    for (name,), cells in grouped(where(found, what="null"), "data").items():
        most = max(r["kept"] for r in cells)
        text = f"no class effects, {name}: at most 1 run in {RUNS} keeps offsets, in each cell"
        yield text, most <= 1, f"{most}, of {len(cells)} cells the most"
    for name in MANY + TWO:
        losses = [one(_of(tried, setting), data=name)["nll"] for setting in SETTINGS[:3]]
        rise = max(b - a for a, b in pairwise(losses))
        text = f"users, {name}: log loss rises by at most .001 as epsilon grows"
        yield text, rise <= 0.001, f"{rise:+.4f}"
    for r in where(found, what="scaled", method=OURS):
        limit = SHARP[r["factor"]]
        text = f"logits times {r['factor']:g}, {r['data']}: at most {limit:.2f} of the pooled"
        yield text, r["ratio"] <= limit, f"{r['ratio']:.3f}"


def _of(found: Sequence[Record], setting: tuple[str, int, float]) -> Rows:
    unit, clients, epsilon = setting
    return where(found, unit=unit, clients=clients, epsilon=epsilon)


def _told(setting: tuple[str, int, float]) -> str:
    unit, clients, epsilon = setting
    return f"{clients:,} clients, {unit}, epsilon = {epsilon:g}"


def _row(what: str, name: str, setting: tuple[str, int, float], **values: Any) -> Record:
    unit, clients, epsilon = setting
    of = {"what": what, "data": name, "unit": unit, "clients": clients, "epsilon": epsilon}
    return {**of, **values}


@functools.lru_cache(maxsize=32)
def _split(name: str, seed: int) -> tuple[Rowed, Rowed, dict[str, Calibrator | None]]:
    """Fit rows, test rows, and what is fitted to the pooled fit rows."""
    whole = _loaded(name)
    if whole.test_logits is not None and seed:
        return _split(name, 0)
    data = whole.split(seed)
    if data.test_logits is None or data.test_labels is None:
        raise ValueError(f"{data.name} was not split")
    fit = data.logits, data.labels
    pooled: dict[str, Calibrator | None] = {
        "none": None,
        POOLED: TemperatureScaling().fit(*fit),
        "pooled vector": VectorScaling().fit(*fit),
    }
    return fit, (data.test_logits, data.test_labels), pooled


def _made(strategy: Any, shards: Shards) -> Calibrator:
    run_inline(strategy, shards)
    return strategy.result()  # type: ignore[no-any-return]


def _probs(calibrator: Calibrator | None, logits: Floats) -> Floats:
    return softmax(logits) if calibrator is None else calibrator.predict_proba(logits)


def _tested(calibrator: Calibrator | None, test: Rowed) -> Tested:
    logits, labels = test
    return {
        **summary(_probs(calibrator, logits), labels),
        "kept": float(isinstance(calibrator, VectorScaling)),
    }


def _means(tested: Sequence[Tested]) -> Tested:
    return {of: _five(fmean(t[of] for t in tested)) for of in ("classwise_ece", "ece", "nll")}


def _five(value: float) -> float:
    return float(f"{value:.5g}")


_loaded = functools.cache(datasets.load)
