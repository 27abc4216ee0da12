"""Rate at which runs that fedcal warns of made the model worse."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

from experiments.studies.spec import Rows, Study
from fedcal.core.checks import TooLittle
from fedcal.run.comparison.grid import Variant
from fedcal.run.simulation import simulate
from fedcal.strategies.warnings import LIMITS

NETWORKS = ("resnet110-cifar10", "densenet-cifar100", "imdb-binary", "mnist-cnn")
EPSILONS = (0.1, 0.3, 1.0)
METHODS = {name: name for name in LIMITS if name != "fedmatrix"}  # 10,100 parameters take minutes
METHODS |= {"acct, posterior": "acct[search=posterior]"}


def _rows(seeds: int = 3) -> Rows:
    """Count the runs of each method that are warned of, and those that made the model worse."""
    found = Rows()
    for name, text in METHODS.items():
        variant, outcomes = Variant.parse(text), list[bool]()
        for data, epsilon, seed in product(NETWORKS, EPSILONS, range(seeds)):
            how: Any = {"method": variant.method, "set": variant.settings, "seed": seed}
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run = simulate(data, epsilon=epsilon, partition="dirichlet:0.1", **how)
            if any(issubclass(one.category, TooLittle) for one in caught):
                outcomes.append(run.after["classwise_ece"] > run.before["classwise_ece"])
        row = {"method": text, "worse": sum(outcomes), "warned": len(outcomes)}
        stated = (LIMITS[name].worse or (0, 0)) == (row["worse"], row["warned"])
        found.append(row | {"stated": stated})
    return found


def _claims(rows: Rows) -> list[tuple[str, bool, str]]:
    counts = ", ".join(f"{r['method']} {r['worse']} of {r['warned']}" for r in rows)
    return [("The warning states these counts", all(row["stated"] for row in rows), counts)]


too_little = Study(_rows, _claims)
