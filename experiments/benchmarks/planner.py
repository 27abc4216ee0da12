"""Is the planner right? Its advice, beside what every candidate does on real, shipped data.

The planner sees clients, rows per client, classes and budget, and made-up rows. Then each of its
candidates is run on the real fit rows, dealt by `dirichlet:0.1`, with several seeds, and judged
on the real test rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from fedcal import datasets
from fedcal.calibrators import Calibrator, calibrator_of
from fedcal.datasets import Dataset
from fedcal.experiments.benchmarks.harness import Benchmark
from fedcal.experiments.engines.inline import run_inline
from fedcal.experiments.engines.processes import usable_cores
from fedcal.experiments.planner.advice import MOST_ACCURACY_LOST, PAYS, advise
from fedcal.experiments.planner.candidates import Candidate
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.worlds import Errors, errors, made_up
from fedcal.experiments.runs import Row, Run
from fedcal.experiments.runs.pools import here
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


@dataclass(frozen=True)
class Measured:
    """A candidate on real data, means over seeds; `left` as the planner's."""

    ece: float
    classwise_ece: float
    left: float
    accuracy_lost: float


def rows(data: str = ",".join(DATA), seeds: int = SEEDS, jobs: int | None = None) -> Iterator[Row]:
    """One row for each data set and federation, in any order if there are several jobs."""
    sources = {name: datasets.load(name) for name in data.split(",")}
    runs = [{"data": name, "facts": facts, "seeds": seeds} for name in sources for facts in FACTS]
    yield from here(runs, sources, measured_row, jobs=jobs or usable_cores())


def measured_row(run: Run, data: Dataset) -> Row:
    """Advice, and what was measured.

    Returns
    -------
    dict
        `data` and the facts; `advice` (None: leave the model alone), `expected_left`, `measured`
        (candidate -> ece, classwise_ece, left, accuracy_lost), `best`, and the ratios of the
        advised one's (or the untouched model's) measured error to the best one's: `ratio` of
        what is left, `ece_ratio`, `classwise_ratio`; `pays_planned` and `pays_measured` (the
        best of the candidates leaves at most 90 %).
    """
    deals = [_Deal.of(data, run["facts"]["clients"], seed) for seed in range(run["seeds"])]
    federation = Federation(classes=data.classes, **run["facts"])
    facts = PublicFacts(federation, len(deals[0].data.labels) / federation.clients)
    advice = advise(facts, made_up(data.classes), search=False)
    tried = [e.candidate for e in advice.estimates]
    tried += [Candidate(m) for m in ALSO if data.classes <= _MOST_CLASSES]
    found = {candidate.text: _measured(candidate, facts, deals) for candidate in tried}
    alone = Measured(deals[0].before.ece, deals[0].before.classwise_ece, 1.0, 0.0)
    allowed = {c: m for c, m in found.items() if m.accuracy_lost <= MOST_ACCURACY_LOST}
    rivals = {"none": alone, **allowed}
    best = min(rivals, key=lambda name: rivals[name].left)
    chosen = advice.chosen
    advised = alone if chosen is None else found[chosen.candidate.text]
    return {
        "data": run["data"],
        **run["facts"],
        "advice": None if chosen is None else chosen.candidate.text,
        "expected_left": 1.0 if chosen is None else chosen.left,
        "before": {"ece": alone.ece, "classwise_ece": alone.classwise_ece},
        "measured": {
            c: {k: float(f"{v:.6g}") for k, v in asdict(m).items()} for c, m in found.items()
        },
        "planned": {e.candidate.text: round(e.left, 4) for e in advice.estimates},
        "planner_pays": [e.candidate.text for e in advice.estimates if e.pays],
        "best": best,
        "ratio": advised.left / rivals[best].left,
        "ece_ratio": advised.ece / min(m.ece for m in rivals.values()),
        "classwise_ratio": advised.classwise_ece / min(m.classwise_ece for m in rivals.values()),
        "pays_planned": chosen is not None,
        "pays_measured": rivals[best].left <= PAYS,
    }


class _Deal(NamedTuple):
    """Real rows, split and dealt with a seed, and the model's errors on the test part."""

    seed: int
    data: Dataset
    shards: Shards
    before: Errors

    @classmethod
    def of(cls, whole: Dataset, clients: int, seed: int) -> _Deal:
        data = whole.split(seed)
        return cls(seed, data, deal(data, "dirichlet:0.1", clients, seed), _errors(data))


def _measured(candidate: Candidate, facts: PublicFacts, deals: Sequence[_Deal]) -> Measured:
    found = []
    for seed, data, shards, before in deals:
        job = candidate.job(facts, facts.rows_per_client, seed)
        after = _errors(data, calibrator_of(run_inline(job.strategy(), shards)))
        left = 0.5 * (after.ece / before.ece + after.classwise_ece / before.classwise_ece)
        lost = before.accuracy - after.accuracy
        found.append((after.ece, after.classwise_ece, left, lost))
    return Measured(*(fmean(column) for column in zip(*found, strict=True)))


def _errors(data: Dataset, calibrator: Calibrator | None = None) -> Errors:
    logits, probs, labels = data.test_logits, data.test_probs, data.test_labels
    if logits is None or probs is None or labels is None:
        raise ValueError(f"{data.name} was not split")
    if calibrator is not None:
        probs = calibrator.calibrated(logits)
    return errors(probs, np.eye(data.classes)[labels])


def notes(found: Sequence[Row]) -> list[str]:
    """How often the claim holds."""
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
