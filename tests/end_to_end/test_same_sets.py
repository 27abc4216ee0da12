"""Without privacy a federation's sets are those of TorchCP, whose formulas stand here."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcal import datasets, simulate
from fedcal.calibrators.conformity import uniform_of
from fedcal.conformal import PredictionSets

ALPHA = 0.1
CLOSE = 2e-12
"""Thresholds of a federation are found up to 1e-12."""


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def lac(z: np.ndarray, u: np.ndarray) -> np.ndarray:
    return 1 - softmax(z)


def by_rank(z: np.ndarray, u: np.ndarray, penalty: float, free: int) -> np.ndarray:
    """TorchCP, APS and RAPS: cumulative sum of sorted probabilities - u p + penalty (rank - free)+.

    What rounding leaves of the mass of all classes counts as 1.
    """
    p = softmax(z)
    order = np.argsort(-p, axis=1)
    ranked = np.take_along_axis(p, order, axis=1)
    mass = np.cumsum(ranked, axis=1)
    mass[:, -1] = 1.0
    rank = np.arange(1, p.shape[1] + 1)
    scores = mass - u[:, None] * ranked + penalty * np.maximum(rank - free, 0)
    out = np.empty_like(p)
    np.put_along_axis(out, order, scores, axis=1)
    return out


CIFAR, MMLU = "densenet-cifar100", "mmlu-llama"
CASES: list[tuple[str, str, Any, dict[str, Any]]] = [
    (MMLU, "lac", lac, {}),
    (CIFAR, "aps", lambda z, u: by_rank(z, 0 * u, 0.0, 0), {}),
    (MMLU, "aps", lambda z, u: by_rank(z, u, 0.0, 0), {"randomised": True}),
    (CIFAR, "raps", lambda z, u: by_rank(z, 0 * u, 0.1, 2), {"penalty": 0.1, "free": 2}),
]


@pytest.mark.parametrize(("name", "score", "formula", "settings"), CASES)
def test_same_sets(name, score, formula, settings):
    data = datasets.load(name).split(0)
    assert data.test_logits is not None
    # equal probabilities are ranked by number here, and in no fixed order by others
    untie = 1e-4 * np.arange(data.classes)
    fit, test, y = data.logits - untie, data.test_logits - untie, data.labels
    own = replace(
        data,
        scores=fit if data.input == "logits" else softmax(fit),
        test_scores=test if data.input == "logits" else softmax(test),
    )
    result = simulate(
        own,
        method="conformal",
        epsilon=math.inf,
        clients=16,
        partition="natural" if name == MMLU else "dirichlet:0.1",
        set={"alpha": ALPHA, "score": score, **settings},
    )
    sets = result.artifact
    assert isinstance(sets, PredictionSets)
    z, test_logits = own.logits, own.test_logits
    assert test_logits is not None
    u = uniform_of(z)
    scores = np.sort(formula(z, u)[np.arange(len(y)), y])
    threshold = scores[math.ceil((len(y) + 1) * (1 - ALPHA)) - 1]
    v = uniform_of(test_logits)
    theirs = formula(test_logits, v)
    clear = np.abs(theirs - threshold) > CLOSE * (1 + settings.get("penalty", 0.0) * data.classes)
    clear |= theirs == threshold
    assert (~clear).sum() <= 1
    found = sets.of_logits(test_logits)
    assert (found == (theirs <= threshold))[clear].all()
