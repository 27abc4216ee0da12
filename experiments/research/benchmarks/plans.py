"""Does a plan hold? What `fedcal plan` says of each method, beside runs on shipped data.

Each data set is taken as it is, and with logits divided so that it is not sure enough. A method
helps if log loss and ECE of the test rows fall in most seeds of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedcal import datasets, simulate
from fedcal.calibrators import TemperatureScaling
from fedcal.datasets import Dataset
from fedcal.experiments.research.benchmarks.harness import Benchmark
from fedcal.experiments.runs.comparison.grid import Variant
from fedcal.experiments.runs.plan import plan
from fedcal.experiments.runs.sweep import Row

METHODS = (
    *("fednewton", "fednewton-entropy", "acct[search=auto]", "acct", "nllt", "ecet"),
    *("fedoneshot", "fedtemp", "dp-histogram", "fedbbq"),
)
CLIENTS, EPSILONS = (10, 100, 1000), (0.5, 2.0, 8.0)
_FLAT = 0.7  # the temperature that the other version needs


def rows(data: str = "mnist-cnn,densenet-cifar100", seeds: int = 3) -> Iterator[Row]:
    """One row for each data set, method, number of clients and epsilon; the last seeds apart."""
    for name in data.split(","):
        versions = [_version(datasets.load(name).split(0), flat) for flat in (False, True)]
        n, classes = versions[0]["logits"].shape
        for clients in CLIENTS:
            for epsilon in EPSILONS:
                facts: dict[str, Any] = {"clients": clients, "epsilon": epsilon}
                table = plan(**facts, rows_per_client=n / clients, classes=classes, methods=METHODS)
                for line in table.methods:
                    runs = [_helps(version, line["method"], facts, seeds) for version in versions]
                    answer = {"says": line["helps"], "helps": all(runs)}
                    yield {"data": name, "method": line["method"], **facts, **answer}


def _version(data: Dataset, flat: bool) -> dict[str, Any]:
    """Return arrays for `simulate`."""
    best = TemperatureScaling().fit(data.logits, data.labels).temperature
    factor = _FLAT / best if flat else 1.0
    test = {"test_logits": factor * np.asarray(data.test_logits), "test_labels": data.test_labels}
    return {"logits": factor * data.logits, "labels": data.labels, **test}


def _helps(version: dict[str, Any], method: str, facts: dict[str, Any], seeds: int) -> bool:
    variant, falls = Variant.parse(method), Counter[str]()
    for seed in range(seeds):
        done = simulate(
            version, method=variant.method, set=dict(variant.settings), seed=seed, **facts
        )
        falls.update(name for name in ("nll", "ece") if done.after[name] < done.before[name])
    return all(2 * falls[name] > seeds for name in ("nll", "ece"))


def notes(found: Sequence[Row]) -> list[str]:
    """Say how often the answers were right."""
    count = Counter((row["says"], row["helps"]) for row in found)
    said = {answer: count[answer, True] + count[answer, False] for answer in ("yes", "no")}
    return [
        f"of {said['yes']} times that a method was said to help it did {count['yes', True]} times; "
        f"of {said['no']} that it was said not to, it did not {count['no', False]} times; "
        f"'unsure': {count['unsure', True]} helped, {count['unsure', False]} did not"
    ]


BENCHMARK = Benchmark("what a plan says beside runs on real data; takes minutes", rows, notes=notes)
