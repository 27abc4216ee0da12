"""Logits or probabilities: what scores are, from either to the other, and what cannot be logits."""

from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from fedcal.core.errors import InputError
from fedcal.core.numerics import logits_from_probs, softmax
from fedcal.core.types import Floats

Kind: TypeAlias = Literal["logits", "probs"]
KINDS: tuple[Kind, ...] = get_args(Kind)

RANGE_TOLERANCE = 1e-3
"""How far outside [0, 1] a probability may lie (float16 and clipped files overshoot a little)."""

SURE = 5
"""From so many rows on, logits that could be probabilities are. Even logits spread evenly over
[0, 1]^2 sum to 1 within `ROUNDED` in 28 % of rows only: five rows do by chance in one case of
600, twenty in one of 2e7. Real ones are seldom all within [0, 1]."""

ROUNDED = 0.15  # of a sum: one printed decimal in ten classes, most of them 0, or float32's 1.1
_MOST = 0.9  # of the rows

DOUBT = (
    "{}: rows lie in [0, 1] and sum to 1, as probabilities do; declare them as probs (the "
    "key or argument probs, columns prob_0.., or input='probs')"
)
_PERCENT = (
    "{}: rows lie in [0, 100] and sum to 100, as percentages do; divide them by 100 and declare "
    "them as probs"
)


def logits_of(kind: Kind, scores: Floats) -> Floats:
    """Return the scores themselves, or log(max(p, 1e-12)), shape kept."""
    return scores if kind == "logits" else logits_from_probs(scores)


def probs_of(kind: Kind, logits: Floats) -> Floats:
    """Return softmax(logits), or the probabilities that `logits_of` took logits of, shape kept.

    Those are as they were given, but for the last bits of a double, whatever their rows sum to.
    """
    return softmax(logits) if kind == "logits" else np.exp(logits)


def refuse_probs(name: str, logits: Floats) -> None:
    """Refuse "logits", (n, c), that could be (rounded) probabilities or percentages.

    Fewer than five rows are accepted.
    """
    for unit, doubt in ((1, DOUBT), (100, _PERCENT)) if len(logits) >= SURE else ():
        if could_be_probs(logits, ROUNDED, _MOST, unit):
            raise InputError(doubt.format(name))


def could_be_probs(x: Floats, tolerance: float, share: float, unit: int = 1) -> bool:
    """Return whether that share of rows sums to 1, and all values are in [0, 1], in units."""
    low = -RANGE_TOLERANCE * (unit == 1)
    if not x.size or x.min() < low or x.max() / unit > 1 + RANGE_TOLERANCE:
        return False
    return bool((np.abs((x / unit).sum(axis=1) - 1) <= tolerance + 1e-9).mean() >= share)


def refuse_masked(name: str, value: Any) -> None:
    """Raise InputError for a masked array, also inside a list, whose mask NumPy would forget.

    And for a sparse matrix, which it would not read.
    """
    masked = isinstance(value, np.ma.MaskedArray)
    if masked or hasattr(value, "toarray"):
        what = "masked array; pass its compressed() or" if masked else "sparse matrix; pass its"
        raise InputError(f"{name}: is a {what} {'filled' if masked else 'toarray'}()")
    if isinstance(value, (list, tuple)):
        for entry in value:
            refuse_masked(name, entry)
