"""Run each method x mechanism x trust model x unit of the packages on the path; print digests.

Started by `python tests/golden_bits`, once for each of two commits. It uses what is public and
stays (`simulate`, its options, its result), so that it runs against either.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

try:
    from fedcal import simulate
    from fedcal.strategies import STRATEGIES
except ImportError:  # a commit of the time when the rooms were packages of their own
    from experiments import simulate  # type: ignore[import-not-found, no-redef]
    from strategies import STRATEGIES  # type: ignore[import-not-found, no-redef]
from fedcal.errors import FedcalError
from fedcal.shards import Shards

CLIENTS, ROWS, CLASSES = 12, 180, 4
PRIVATE = ("central", "distributed", "local")
SUBJECTS = "subjects" in {field.name for field in fields(Shards)}
"""Whether rows may say whom they are about; a commit of the time before knows no such unit."""
UNITS = ("user", "example", "subject") if SUBJECTS else ("user", "example")
MECHANISMS = (
    *("auto", "laplace", "gaussian", "discrete-laplace", "discrete-gaussian"),
    *("exponential", "unary"),
)
BASE: Mapping[str, Mapping[str, Any]] = {
    "fedbin": {"bins_exponent": 4},
    "fedbbq": {"bins_exponent": 4},
    "fedcal": {"epochs": 1, "batch": 8},
    "fedoneshot": {"points": 33},
}
"""What makes a method small enough."""
VARIANTS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "fedtemp": ({"average": "temperature"}, {"clip": 0.2, "server_lr": 0.5}),
    "fedbin": ({"tables": "pooled"}, {"clipping": "joint"}, {"weighting": "all"}),
    "fedbbq": ({"weighting": "none"}, {"weighting": "changed"}, {"tables": "per_class"}),
    "fedopvector": ({"proximal": 0.0},),
    "acct": tuple({"search": s} for s in ("bisection", "posterior", "exponential")),
    "nllt": ({"search": "exponential"},),
    "ecet": ({"search": "exponential"},),
    "dp-histogram": ({"counts": "correct_total"},),
}


def cells() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and options of each cell."""
    for method, strategy in STRATEGIES.items():
        if getattr(strategy, "family", "calibrate") != "calibrate":
            continue  # newer than what bits are compared with
        for settings in ({}, *VARIANTS.get(method, ())):
            chosen = {**BASE.get(method, {}), **settings}
            for how in _ways(plain=not settings):
                if "epsilon" in how and getattr(strategy, "exact_only", False):
                    continue
                options = {**how, "method": method, "set": chosen}
                yield json.dumps(options, sort_keys=True), options


def _ways(plain: bool) -> Iterator[dict[str, Any]]:
    yield {}
    yield {"sampling_rate": 0.5, "dropout": 0.1, "secure_aggregation": "masks"}
    for trust, unit in itertools.product(PRIVATE, UNITS):
        promise = {"epsilon": 2.0, "trust": trust, "unit": unit}
        few = not plain or unit == "subject"  # the same noise as for the others
        for mechanism in ("auto",) if few else MECHANISMS:
            yield {**promise, "mechanism": mechanism}
        if plain:
            faults = {"dropout": 0.1, "quorum": 0.5} if trust == "distributed" else {"dropout": 0.1}
            yield {**promise, "sampling_rate": 0.5, "rounds": 2, **faults}


def rows(unit: str) -> dict[str, np.ndarray]:
    """A classifier that is too sure of itself; no random generator whose bits may change."""
    i = np.arange(2 * ROWS * CLASSES, dtype=np.float64)
    logits = (4.0 * np.sin(i * 12.9898) + 2.0 * np.cos(i * 4.1414)).reshape(-1, CLASSES)
    wrong = np.arange(2 * ROWS) % 5 == 0
    labels = np.where(wrong, (logits.argmax(axis=1) + 1) % CLASSES, logits.argmax(axis=1))
    about = {"subject": np.arange(ROWS) // 4} if unit == "subject" else {}
    return {
        **about,
        "logits": logits[:ROWS],
        "labels": labels[:ROWS],
        "test_logits": logits[ROWS:],
        "test_labels": labels[ROWS:],
    }


def digest_of(options: Mapping[str, Any]) -> str:
    """Digest of all numbers that a run releases; the class of the error of one that is refused."""
    common = {"clients": CLIENTS, "partition": "dirichlet:0.5", "seed": 3}
    try:
        result = simulate(rows(options.get("unit", "user")), **common, **options)
    except FedcalError as error:
        return type(error).__name__
    whole = hashlib.sha256()

    def add(*numbers: Any) -> None:
        for number in numbers:
            array = np.asarray(math.nan if number is None else number, "<f8")
            whole.update(str(array.shape).encode() + array.tobytes())

    for record in result.rounds:
        add(record["round"], record["values"], record["noise_std"])
    for name, array in sorted(result.calibrator.arrays().items()):
        whole.update(f"{name} {array.dtype}".encode() + array.tobytes())
    add(result.test_probs, result.privacy["epsilon"], result.privacy["delta"])
    sent = result.communication
    add(sent["bytes_up_per_client"], sent["bytes_down_per_client"], sent["rounds"])
    return whole.hexdigest()[:16]


def main() -> None:
    """A JSON object on stdout: cell -> digest."""
    warnings.simplefilter("ignore")
    found: dict[str, str] = {}
    for name, options in cells():
        found[name] = digest_of(options)
        if sys.stderr.isatty():
            print(f"\r{len(found)} cells", end="", file=sys.stderr)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
