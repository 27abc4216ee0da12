"""Prediction sets beside those of MAPIE and TorchCP: how fast, and whether they are the same.

Classes that are equally probable are ranked by their numbers here, and by how the sort leaves them
there: 1e-4 is taken off a class's logit for each class before it, so that everybody ranks alike.
Where a threshold is the mass of all classes, ours is 1 and theirs is what rounding left of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.benchmarks.timing import Case, Contestant, checksum, peer
from fedcal import datasets
from fedcal.calibrators.conformity import uniform_of
from fedcal.conformal import Conformity, PredictionSets

ALPHA = 0.1
DATA = "densenet-cifar100"
UNTIE = 1e-4


def sets(conformity: Conformity, peers: Mapping[str, dict[str, Any]], quick: bool) -> Case:
    """Time sets of the test rows, by the ceil((n + 1)(1 - alpha))-th smallest score.

    Parameters
    ----------
    peers
        name -> `function` of the module `peers`, and its options
    """
    data = datasets.load(DATA).split(0)
    some = slice(0, 500 if quick else None)
    untie = UNTIE * np.arange(data.classes)
    fit, labels = data.logits[some] - untie, data.labels[some]
    test = np.asarray(data.test_logits)[some] - untie
    scores = np.sort(conformity.of_labels(fit, labels))
    rank = math.ceil((len(scores) + 1) * (1 - ALPHA))
    threshold = scores[rank - 1] if rank <= len(scores) else 1.0
    ours = PredictionSets(conformity, np.array([threshold]), data.classes, ALPHA)
    arrays = {"fit_logits": fit, "labels": labels, "logits": test}
    if conformity.randomised:
        arrays |= {"fit_parts": uniform_of(fit, 0), "parts": uniform_of(test, 0)}

    def values(found: NDArray[np.bool_] | str) -> dict[str, float]:
        if isinstance(found, str):
            bits = np.frombuffer(bytes.fromhex(found), np.uint8)
        else:
            bits = np.packbits(found)
        count = int(np.unpackbits(bits).sum())
        return {"labels in sets": count, "sets crc32": checksum(bits)}

    return Case(
        f"prediction sets of {len(test):,} x {data.classes}, {conformity.name}",
        None,
        [
            Contestant("fedcal", lambda: lambda: ours.of_logits(test), values),
            *(peer(n, values, arrays=arrays, alpha=ALPHA, **how) for n, how in peers.items()),
        ],
    )


def _torchcp(score: str, **options: Any) -> dict[str, Any]:
    return {"function": "torchcp_sets", "score": score, "options": options}


_LAC = {
    "MAPIE LAC": {"function": "mapie_sets", "score": "lac"},
    "TorchCP LAC": _torchcp("LAC"),
}
_RANDOMISED = {
    "MAPIE APS, include_last_label='randomized', our random numbers": {
        "function": "mapie_sets",
        "score": "aps",
    }
}
_APS = {"TorchCP APS, randomized=False": _torchcp("APS", randomized=False)}
_RAPS = {
    "TorchCP RAPS, randomized=False, penalty=.01, kreg=5": _torchcp(
        "RAPS", randomized=False, penalty=0.01, kreg=5
    )
}

CASES: dict[str, Callable[[bool], Case]] = {
    "sets-lac": partial(sets, Conformity("lac"), _LAC),
    "sets-aps-randomised": partial(sets, Conformity("aps", randomised=True), _RANDOMISED),
    "sets-aps": partial(sets, Conformity("aps"), _APS),
    "sets-raps": partial(sets, Conformity("raps", penalty=0.01, free=5), _RAPS),
}
