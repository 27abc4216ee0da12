"""Is the planner right? Its advice, beside what every candidate does on real, shipped data.

The planner sees clients, rows per client, classes and budget, and made-up rows. Then each of its
candidates is run on the real fit rows, dealt by `dirichlet:0.1`, with several seeds, and judged
on the real test rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from fedcal import datasets
from fedcal.calibrators import calibrator_of
from fedcal.core.parallel import usable_cores
from fedcal.core.shards import Shards
from fedcal.datasets import Dataset
from fedcal.experiments.planner.advise_methods import advise
from fedcal.experiments.planner.candidates import Candidate
from fedcal.experiments.planner.choice import MOST_ACCURACY_LOST, PAYS
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.worlds import World, made_up, of_public
from fedcal.experiments.research.benchmarks.harness import Benchmark
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.experiments.runs.sweep import Row, Run
from fedcal.experiments.runs.sweep.pools import here
from fedcal.partition import deal
from fedcal.privacy.federation import Federation
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


def rows(data: str = ",".join(DATA), seeds: int = SEEDS, jobs: int | None = None) -> Iterator[Row]:
    """One row for each data set and federation, in any order if there are several jobs."""
    sources = {name: datasets.load(name) for name in data.split(",")}
    runs = [{"data": name, "facts": facts, "seeds": seeds} for name in sources for facts in FACTS]
    yield from here(runs, sources, measured_row, jobs=jobs or usable_cores())


def measured_row(run: Run, data: Dataset) -> Row:
    """Compare advice with measurements.

    Returns
    -------
    dict
        `data` and the facts; `advice` (None: leave the model alone), `expected_left`, `measured`
        (candidate -> ece, classwise_ece, left, accuracy_lost), `best`, and the ratios of the
        advised one's (or the untouched model's) measured error to the best one's: `ratio` of
        what is left, `ece_ratio`, `classwise_ratio`; `pays_planned` and `pays_measured` (the
        best of the candidates leaves at most 90 %).
    """
    federation = Federation(classes=data.classes, **run["facts"])
    parts = [data.split(seed) for seed in range(run["seeds"])]
    worlds = [
        (seed, deal(part, "dirichlet:0.1", federation.clients, seed), of_public(part))
        for seed, part in enumerate(parts)
    ]
    facts = PublicFacts(federation, len(parts[0].labels) / federation.clients)
    advice = advise(facts, made_up(data.classes), search=False)
    tried = [e.candidate for e in advice.estimates]
    tried += [Candidate(m) for m in ALSO if data.classes <= _MOST_CLASSES]
    found = {candidate.text: _measured(candidate, facts, worlds) for candidate in tried}
    before = worlds[0][2].judge(None)[0]
    alone = {"ece": before.ece, "classwise_ece": before.classwise_ece}
    rivals = {"none": alone | {"left": 1.0}}
    rivals |= {c: m for c, m in found.items() if m["accuracy_lost"] <= MOST_ACCURACY_LOST}
    best = min(rivals, key=lambda name: rivals[name]["left"])
    chosen = advice.chosen
    advised = rivals["none"] if chosen is None else found[chosen.candidate.text]
    ratios = {
        name: advised[key] / min(m[key] for m in rivals.values())
        for name, key in (
            ("ratio", "left"),
            ("ece_ratio", "ece"),
            ("classwise_ratio", "classwise_ece"),
        )
    }
    return {
        "data": run["data"],
        **run["facts"],
        "advice": None if chosen is None else chosen.candidate.text,
        "expected_left": 1.0 if chosen is None else chosen.left,
        "before": alone,
        "measured": {c: {k: float(f"{v:.6g}") for k, v in m.items()} for c, m in found.items()},
        "planned": {e.candidate.text: round(e.left, 4) for e in advice.estimates},
        "planner_pays": [e.candidate.text for e in advice.estimates if e.pays],
        "best": best,
        **ratios,
        "pays_planned": chosen is not None,
        "pays_measured": rivals[best]["left"] <= PAYS,
    }


def _measured(
    candidate: Candidate, facts: PublicFacts, worlds: Sequence[tuple[int, Shards, World]]
) -> dict[str, float]:
    """Measure a candidate on real data, means over seeds; `left` as the planner's."""
    found = []
    for seed, shards, world in worlds:
        job = candidate.job(facts, facts.rows_per_client, seed)
        before, _ = world.judge(None)
        after, _ = world.judge(calibrator_of(run_inline(job.strategy(), shards)))
        found.append(
            {
                "ece": after.ece,
                "classwise_ece": after.classwise_ece,
                "left": 0.5 * (after.ece / before.ece + after.classwise_ece / before.classwise_ece),
                "accuracy_lost": before.accuracy - after.accuracy,
            }
        )
    return {key: fmean(row[key] for row in found) for key in found[0]}


def notes(found: Sequence[Row]) -> list[str]:
    """Summarise how often the claim holds."""
    within = {
        text: sum(row[key] <= BETTER for row in found)
        for text, key in (("", "ratio"), (" of ECE", "ece_ratio"), (" of cwECE", "classwise_ratio"))
    }
    right = sum(row["pays_planned"] == row["pays_measured"] for row in found)
    worse = sum(
        row["advice"] is not None and row["measured"][row["advice"]]["left"] > 1 for row in found
    )
    return [
        f"{len(found)} settings; the ratio is at most {BETTER:g} in "
        + ", ".join(f"{count}{text}" for text, count in within.items())
        + f"; the worst is {max(row['ratio'] for row in found):.2f}; verdicts are right in "
        f"{right}; advised and worse than none: {worse}"
    ]


BENCHMARK = Benchmark(
    "the planner's advice, beside every candidate on real data; takes long", rows, notes=notes
)
