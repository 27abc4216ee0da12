"""Prediction sets beside those of MAPIE and TorchCP: how fast, and whether they are the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal import datasets
from fedcal.conformal import Conformity, PredictionSets
from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats, Integers
from fedcal.core.shards import Shards
from fedcal.experiments.research.benchmarks.harness import Benchmark
from fedcal.experiments.research.benchmarks.timing import Case, Contestant, checksum, compare, peer
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.experiments.runs.sweep import Row
from fedcal.metrics.conformity import uniform_of
from fedcal.privacy.federation import Federation
from fedcal.strategies.methods.conformal import FedConformal

ALPHA = 0.1
DATA = ("densenet-cifar100", "mmlu-llama")


def smallest(conformity: Conformity, logits: Floats, labels: Integers) -> PredictionSets:
    """Return sets without privacy, by the ceil((n + 1)(1 - alpha))-th smallest score."""
    scores = np.sort(conformity.of_labels(logits, labels))
    rank = math.ceil((len(scores) + 1) * (1 - ALPHA))
    threshold = scores[rank - 1] if rank <= len(scores) else 1.0
    return PredictionSets(conformity, np.array([threshold]), logits.shape[1], ALPHA)


# -- how fast -----------------------------------------------------------------------------------


def speed(conformity: Conformity, score: str, quick: bool) -> Case:
    """Time sets of many rows from their logits, in single precision."""
    n, c = (2000, 20) if quick else (1_000_000, 100)
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((n, c), dtype=np.float32) * 2
    labels = rng.integers(0, c, n)
    logits[np.arange(n), labels] += 4
    few = slice(0, 1000)
    fit_logits, fit_labels = logits[few].astype(np.float64), labels[few]
    sets = smallest(conformity, fit_logits, fit_labels)
    arrays: dict[str, NDArray[Any]] = {
        "fit_logits": fit_logits,
        "labels": fit_labels,
        "logits": logits,
    }
    how = {"score": score, "alpha": ALPHA}

    def values(found: NDArray[np.bool_] | str) -> dict[str, float]:
        bits = bits_of(found) if isinstance(found, str) else np.packbits(found)
        count = int(np.unpackbits(bits).sum())
        return {"labels in sets": count, "sets crc32": checksum(bits)}

    theirs = [peer(f"TorchCP {score.upper()}", values, "torchcp_sets", arrays, **_torchcp(how))]
    if score == "lac":
        theirs.insert(0, peer("MAPIE LAC", values, "mapie_sets", arrays, **how))
    return Case(
        f"prediction sets of {n:,} x {c}, {score}",
        2.0,
        [Contestant("fedcal", lambda: lambda: sets.predict_set(logits), values), *theirs],
    )


def bits_of(packed: str) -> NDArray[np.uint8]:
    """Invert `peers.packed`."""
    return np.frombuffer(bytes.fromhex(packed), np.uint8)


def _torchcp(how: Mapping[str, Any]) -> dict[str, Any]:
    score = how["score"].upper()
    return {**how, "score": score, "options": {"randomized": False} if score == "APS" else {}}


def calibrated(shards: Shards) -> dict[str, float]:
    """Return the threshold of a federation of whole users."""
    rows = len(shards.labels) / shards.clients
    facts = Federation(shards.clients, shards.classes, epsilon=1.0)
    method = FedConformal(facts, rows_per_client=rows, secure_aggregation="none")
    run_inline(method, shards)
    return {"threshold": float(method.result().thresholds[0])}


def calibration(quick: bool) -> Case:
    """Thresholds from many clients in process."""
    clients, rows = (200, 10) if quick else (10_000, 10)
    rng = np.random.default_rng(0)
    n = clients * rows
    logits, labels = 2 * rng.standard_normal((n, 10)), rng.integers(0, 10, n)
    logits[np.arange(n), labels] += 4
    owner = np.repeat(np.arange(clients), rows)

    def prepare() -> Callable[[], dict[str, float]]:
        shards = Shards.from_owner(logits, labels, owner, clients)
        return lambda: calibrated(replace(shards))  # nothing is remembered of the last time

    return Case(
        f"threshold of prediction sets from {clients:,} clients, {n:,} rows",
        1.0,
        [Contestant("fedcal, unit user, epsilon 1", prepare, dict)],
    )


CASES: dict[str, Callable[[bool], Case]] = {
    "prediction-sets-clients": calibration,
    "prediction-sets": lambda quick: speed(Conformity("lac"), "lac", quick),
    "prediction-sets-aps": lambda quick: speed(Conformity("aps"), "aps", quick),
}


# -- whether they are the same ------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A score of ours and the peer's settings that mean the same."""

    ours: Conformity
    name: str
    function: str
    options: Mapping[str, Any]


PAIRS = (
    Pair(Conformity("lac"), "MAPIE lac", "mapie_sets", {"score": "lac"}),
    Pair(
        Conformity("aps", randomised=True),
        "MAPIE aps, include_last_label='randomized', our random numbers",
        "mapie_sets",
        {"score": "aps"},
    ),
    Pair(Conformity("lac"), "TorchCP LAC", "torchcp_sets", {"score": "LAC", "options": {}}),
    Pair(
        Conformity("aps"),
        "TorchCP APS, randomized=False",
        "torchcp_sets",
        {"score": "APS", "options": {"randomized": False}},
    ),
    Pair(
        Conformity("raps", penalty=0.01, free=5),
        "TorchCP RAPS, randomized=False, penalty=.01, kreg=5",
        "torchcp_sets",
        {"score": "RAPS", "options": {"randomized": False, "penalty": 0.01, "kreg": 5}},
    ),
)


UNTIE = 1e-4
"""Taken off a logit for each class before it: equal ones are ranked alike by everybody then."""


def rows() -> Iterator[Row]:
    """One row for each data set and pair: labels that are in one set and not in the other."""
    for name in DATA:
        data = datasets.load(name).split(0)
        if data.test_logits is None:
            raise InputError(f"{name} has no test rows")
        untie = UNTIE * np.arange(data.classes)
        for pair in PAIRS:
            row: Row = {"data": name, "score": pair.ours.name, "peer": pair.name}
            row |= _compared(data.logits, data.labels, data.test_logits, pair)
            apart = _compared(data.logits - untie, data.labels, data.test_logits - untie, pair)
            yield row | {"ties broken": apart["different"]}


def _compared(fit: Floats, labels: Integers, test: Floats, pair: Pair) -> Row:
    ours = smallest(pair.ours, fit, labels).of_logits(test)
    arrays = {"fit_logits": fit, "labels": labels, "logits": test}
    if pair.ours.randomised:
        arrays |= {k: uniform_of(z, 0) for k, z in (("fit_parts", fit), ("parts", test))}

    def differ(found: str) -> dict[str, float]:
        bits = np.unpackbits(bits_of(found))[: ours.size]
        return {"different": int((bits != ours.ravel()).sum())}

    options = {"alpha": ALPHA, **pair.options}
    (told,) = compare([peer(pair.name, differ, pair.function, arrays, **options)], 1)
    found: Row = told.get("values", {"different": told.get("skipped")})
    return {"rows": len(test), "labels in sets": int(ours.sum()), **found}


def _notes(found: Sequence[Row]) -> list[str]:
    return [
        "different: labels that are in one set and not in the other. Classes that are equally "
        "probable are ranked by their numbers here, and by how the sort leaves them there; with "
        f"ties broken, {UNTIE:g} is taken off a class's logit for each class before it. Where a "
        "threshold is the mass of all classes, ours is 1 and theirs is what rounding left of it."
    ]


BENCHMARK = Benchmark("our sets beside MAPIE's and TorchCP's, label by label", rows, notes=_notes)
