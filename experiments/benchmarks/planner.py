"""Is the planner right? Its advice, beside what every candidate does on real, shipped data.

The planner sees clients, rows per client, classes and budget, and made-up rows. Then each of its
candidates is run on the real fit rows, dealt by `dirichlet:0.1`, with several seeds, and judged
on the real test rows.

    python -m fedcal.experiments.benchmarks.planner --out planner.jsonl
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from fedcal import datasets
from fedcal.calibrators import Calibrator, calibrator_of
from fedcal.datasets import Dataset
from fedcal.experiments.engines.inline import run_inline
from fedcal.experiments.planner.advice import MOST_ACCURACY_LOST, PAYS, Advice, advise
from fedcal.experiments.planner.candidates import Candidate
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.worlds import Errors, errors, made_up
from fedcal.partition import deal
from fedcal.privacy.federation import Federation
from fedcal.shards import Shards
from fedcal.trust import Distributed, Local
from fedcal.units import Example

DATA = ("resnet110-cifar10", "imdb-binary", "mnist-cnn", "densenet-cifar100")
FACTS: tuple[dict[str, Any], ...] = (
    {"clients": 20, "epsilon": 1.0},
    {"clients": 100, "epsilon": 1.0},
    {"clients": 500, "epsilon": 1.0},
    {"clients": 20, "epsilon": 0.1},
    {"clients": 100, "epsilon": 0.1},
    {"clients": 100, "epsilon": 8.0},
    {"clients": 500, "epsilon": 8.0},
    {"clients": 100, "epsilon": 1.0, "trust": Distributed.name},
    {"clients": 500, "epsilon": 8.0, "trust": Local.name},
    {"clients": 100, "epsilon": 1.0, "unit": Example.name},
    {"clients": 100},
)
_MOST_CLASSES = 20  # of what is measured besides: with more it takes minutes
ALSO = ("fedopvector",)
"""Measured, too, though the planner tries it only where it is named."""

SEEDS = 3
BETTER = 1.3
"""The claim: the recommended method is within this factor of the best candidate."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """A candidate on real data, means over seeds; `left` as the planner's."""

    ece: float
    classwise_ece: float
    left: float
    accuracy_lost: float


def rows(
    data: Sequence[str] = DATA,
    facts: Sequence[dict[str, Any]] = FACTS,
    seeds: int = SEEDS,
) -> Iterator[Row]:
    """One line for each data set and federation: advice, and what was measured.

    Yields
    ------
    dict
        `data` and the facts; `advice` (None: leave the model alone), `expected_left`, `measured`
        (candidate -> ece, classwise_ece, left, accuracy_lost), `best`, and the ratios of the
        advised one's (or the untouched model's) measured error to the best one's: `ratio` of
        what is left, `ece_ratio`, `classwise_ratio`; `pays` (by the planner, and measured: the
        best of the candidates leaves at most 90 %) as a pair.
    """
    for name in data:
        for asked in facts:
            whole = _loaded(name)
            rows_of_each = len(whole.split(0).labels) / asked["clients"]
            federation = Federation(classes=whole.classes, **asked)
            known = PublicFacts(federation, rows_of_each)
            advice = advise(known, made_up(whole.classes), search=False)
            also = [Candidate(m) for m in ALSO if whole.classes <= _MOST_CLASSES]
            found = {
                candidate.text: _measured(candidate, known, name, seeds)
                for candidate in [*(e.candidate for e in advice.estimates), *also]
            }
            yield _row(name, asked, advice, found)


def summary(found: Iterable[Row]) -> dict[str, float]:
    """How often the claim holds."""
    found = list(found)
    return {
        "settings": len(found),
        "within": sum(row["ratio"] <= BETTER for row in found),
        "within_ece": sum(row["ece_ratio"] <= BETTER for row in found),
        "within_classwise": sum(row["classwise_ratio"] <= BETTER for row in found),
        "worst": max(row["ratio"] for row in found),
        "verdicts_right": sum(row["pays"][0] == row["pays"][1] for row in found),
        "advised_and_worse_than_none": sum(
            row["advice"] is not None and row["measured"][row["advice"]]["left"] > 1
            for row in found
        ),
    }


def _row(name: str, asked: dict[str, Any], advice: Advice, found: dict[str, Measured]) -> Row:
    alone = Measured(_alone(name).ece, _alone(name).classwise_ece, 1.0, 0.0)
    allowed = {c: m for c, m in found.items() if m.accuracy_lost <= MOST_ACCURACY_LOST}
    best_text, best = min([("none", alone), *allowed.items()], key=lambda pair: pair[1].left)
    chosen = advice.chosen
    advised = alone if chosen is None else found[chosen.candidate.text]
    return {
        "data": name,
        **asked,
        "advice": None if chosen is None else chosen.candidate.text,
        "expected_left": 1.0 if chosen is None else chosen.left,
        "before": {"ece": alone.ece, "classwise_ece": alone.classwise_ece},
        "measured": {c: _six(m) for c, m in found.items()},
        "planned": {e.candidate.text: round(e.left, 4) for e in advice.estimates},
        "planner_pays": [e.candidate.text for e in advice.estimates if e.pays],
        "best": best_text,
        "ratio": advised.left / best.left,
        "ece_ratio": advised.ece / min(m.ece for m in (alone, *allowed.values())),
        "classwise_ratio": advised.classwise_ece
        / min(m.classwise_ece for m in (alone, *allowed.values())),
        "pays": [chosen is not None, best.left <= PAYS],
    }


def _measured(candidate: Candidate, facts: PublicFacts, name: str, seeds: int) -> Measured:
    runs = []
    for seed in range(seeds):
        data, shards = _dealt(name, facts.federation.clients, seed)
        before = _errors(data)
        job = candidate.job(facts, facts.rows_per_client, seed)
        after = _errors(data, calibrator_of(run_inline(job.strategy(), shards)))
        left = 0.5 * (after.ece / before.ece + after.classwise_ece / before.classwise_ece)
        lost = before.accuracy - after.accuracy
        runs.append((after.ece, after.classwise_ece, left, lost))
    return Measured(*(fmean(column) for column in zip(*runs, strict=True)))


@functools.cache
def _alone(name: str) -> Errors:
    """Errors of the model as it is, on the test rows of seed 0."""
    return _errors(_loaded(name).split(0))


@functools.lru_cache(maxsize=6)
def _dealt(name: str, clients: int, seed: int) -> tuple[Dataset, Shards]:
    data = _loaded(name).split(seed)
    return data, deal(data, "dirichlet:0.1", clients, seed)


def _errors(data: Dataset, calibrator: Calibrator | None = None) -> Errors:
    logits, probs, labels = data.test_logits, data.test_probs, data.test_labels
    if logits is None or probs is None or labels is None:
        raise ValueError(f"{data.name} was not split")
    if calibrator is not None:
        probs = calibrator.calibrated(logits)
    return errors(probs, np.eye(data.classes)[labels])


def _six(measured: Measured) -> dict[str, float]:
    return {k: float(f"{v:.6g}") for k, v in vars(measured).items()}


@functools.cache
def _loaded(name: str) -> Dataset:
    return datasets.load(name)


def _said(row: Row) -> str:
    epsilon = row.get("epsilon", math.inf)
    more = " ".join(str(row[k]) for k in ("trust", "unit") if k in row)
    return (
        f"{row['data']:18} K {row['clients']:4} eps {epsilon:4g} {more:12} "
        f"advice {row['advice'] or 'leave it alone':30} best {row['best']:30} "
        f"ratio {row['ratio']:.2f} (ECE {row['ece_ratio']:.2f}, cw {row['classwise_ratio']:.2f}) "
        f"pays {row['pays']}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a line each, write them as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=",".join(DATA), help="shipped names, with commas")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, help="file for the rows, a line of JSON each")
    options = parser.parse_args(arguments)
    found = []
    for row in rows(options.data.split(","), seeds=options.seeds):
        found.append(row)
        print(_said(row), flush=True)
        if options.out is not None:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, allow_nan=False) + "\n")
    print(json.dumps(summary(found)))


if __name__ == "__main__":
    main()
