"""What is measured of probabilities: accuracy and calibration, means and pairs over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from fedcal.core.types import Floats, Integers
from fedcal.experiments.research.studies.claims import larger
from fedcal.experiments.research.studies.spec import Record, Told
from fedcal.training.model_card import scored

MATTERS = 0.001
"""The least difference of accuracies or ECEs that is called one."""

KEYS = ("accuracy", "ece", "ece_debiased", "nll", "gap")


def scores(probs: Floats, y: Integers) -> dict[str, float]:
    """`KEYS`: ECE has 15 bins; `gap` is mean confidence minus accuracy, also of two classes."""
    found = scored(probs, y)
    found["gap"] = float(probs.max(axis=1).mean()) - found["accuracy"]
    return {key: found[key] for key in KEYS}


def spread(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of each score over seeds, and `... std`."""
    found = {}
    for key in runs[0]:
        values = [run[key] for run in runs]
        found[key] = fmean(values)
        found[f"{key} std"] = stdev(values) if len(values) > 1 else 0.0
    return found


def above(a: Record, b: Record, key: str) -> Told:
    """Whether the mean of a score over seeds is larger in a than in b.

    No difference: less than `MATTERS`, or than a standard deviation over seeds.
    """
    noise = math.hypot(a.get(f"{key} std", 0.0), b.get(f"{key} std", 0.0))
    return larger(a[key], b[key], max(MATTERS, noise))


def paired(a: Sequence[float], b: Sequence[float]) -> dict[str, float | None]:
    """a - b over seeds: `difference`, its `error`, and the `upper` 95 % limit (t, one side)."""
    from scipy.special import stdtrit

    each = [x - y for x, y in zip(a, b, strict=True)]
    mean, n = fmean(each), len(each)
    if n < 2:
        return {"difference": mean, "error": None, "upper": None}
    error = stdev(each) / math.sqrt(n)
    return {
        "difference": mean,
        "error": error,
        "upper": mean + float(stdtrit(n - 1, 0.95)) * error,
    }
