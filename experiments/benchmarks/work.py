"""The rows of the table, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from fedcal.experiments.benchmarks import federated, pooled
from fedcal.experiments.benchmarks.timing import Work

WORKS: Mapping[str, Callable[[bool], Work]] = {
    "temperature": lambda quick: pooled.temperature(pooled.real_rows(quick), 2e-3),
    "temperature-large": lambda quick: pooled.temperature(pooled.many_classes(quick), 0.7),
    "classwise-ece": lambda quick: pooled.classwise(pooled.real_rows(quick), 0.2e-3),
    "classwise-ece-large": lambda quick: pooled.classwise(pooled.many_classes(quick), 0.1),
    "top-label-ece": lambda quick: pooled.top_label(pooled.real_rows(quick)),
    "top-label-ece-large": lambda quick: pooled.top_label(pooled.many_classes(quick)),
    "bbq": pooled.bbq,
    "round": federated.histogram_round,
    "later-round": federated.later_round,
    "population": federated.many_clients,
    "masks": federated.masked_round,
    "engine-round-100": partial(federated.engine_round, 100),
    "engine-round-500": partial(federated.engine_round, 500),
    "engine-run-100": partial(federated.engine_run, 100),
    "engine-run-500": partial(federated.engine_run, 500),
}
"""Name of `--only` -> what makes the row; its data live no longer than the row."""
