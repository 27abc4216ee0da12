"""Prediction sets and dense networks, of the operators that every runtime has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fedcal.calibrators.operators import Operators
from fedcal.conformal import Conformity, PredictionSets
from fedcal.conformal.scores import APS, LAC, RAPS, SPLIT, Score
from fedcal.metrics.buckets import DIGITS


def sets_of_probs(o: Operators, probs: Any, sets: PredictionSets, thresholds: Any) -> Any:
    """Return whether each label's rounded score is at most its threshold; (..., c) of doubles."""
    probs = probs * SPLIT - (probs * SPLIT - probs)  # as `scores.settled`
    score = SCORES[sets.conformity.score](o, probs, sets.classes, sets.conformity)
    return o.rounded(score, DIGITS) <= thresholds


def _lac(o: Operators, probs: Any, c: int, of: Conformity) -> Any:
    return 1.0 - probs


def _aps(o: Operators, probs: Any, c: int, of: Conformity) -> Any:
    return _by_rank(o, probs, c, 0.0, 0)


def _raps(o: Operators, probs: Any, c: int, of: Conformity) -> Any:
    return _by_rank(o, probs, c, *of.regularisation)


def _by_rank(o: Operators, probs: Any, c: int, penalty: float, free: int) -> Any:
    """Mass of the classes up to each one, with the penalties of RAPS."""
    ranked, order = o.sort(probs)
    place = o.double(o.places(c, probs))
    mass = o.where(place >= c - 1.0, 1.0, o.sums(ranked))
    excess = penalty * o.clip(place + (1.0 - free), low=0.0)
    most = penalty * max(0.0, float(c - free))
    return o.unsort(o.clip((mass + excess) / (1.0 + most), high=1.0), order)


SCORES: dict[type[Score], Callable[[Operators, Any, int, Conformity], Any]] = {
    LAC: _lac,
    APS: _aps,
    RAPS: _raps,
}
"""Class of score -> its function of probabilities, without randomness."""


def logits_of_layers(o: Operators, x: Any, layers: Iterable[Sequence[Any]], longest: float) -> Any:
    """Logits of inputs (n, d) by dense layers, weights (out, in) and biases (out,), and ReLUs.

    Rows longer than `longest` are shortened.
    """
    if math.isfinite(longest):
        x = x * (longest / o.clip(o.norm(x), low=longest))
    for number, (weights, bias) in enumerate(layers):
        x = x if number == 0 else o.relu(x)
        x = x @ o.transposed(weights) + bias
    return x
