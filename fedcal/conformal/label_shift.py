"""Sets for rows whose labels have other shares than the clients' rows (label shift).

The shares p of the clients' rows and q of the target are public, and rows of each label are alike
in both (Podkopaev & Ramdas 2021; Plassier et al. 2023, 2306.05131). A row adds g(t) = w_y
([score <= t] - (1 - alpha)) to a sum, w_y = q_y / p_y: the mean of g over the clients' rows is that
of [score <= t] - (1 - alpha) over the target's, and a threshold is high enough where it is at
least 0.

**The level.** S(t) is the sum of n rows, and T a threshold that is above t_j whenever S(t_j) + Z <
L, where Z has one distribution for all j and is independent of the rows. Rows and the new row are
exchangeable, B = (1 - alpha) max w. Without noise, T_l = the least t with S(t) >= l, compare with
tau = the least t where S and the new row's g together reach l - B: tau <= T_l, and tau is the same
for any order of the n + 1 rows, so

    E g_new(T_l) >= E g_new(tau) = E S_{n+1}(tau) / (n + 1) >= min(l - B, spare) / (n + 1),

`spare` = alpha times the sum of w over the rows, the value of S at the last threshold (Angelopoulos
et al. 2022, Theorem 1). With noise: for each value u of E g, T passes the last threshold where E g
is below u whenever the noisy sum there is below L; so as in `levels.levels`

    E g_new(T) >= E min(L - B - Z, spare) / (n + 1),

and L = B + x with E min(x - Z, spare) >= 0 is enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.conformal.levels.noise_law import Law, Nothing
from fedcal.core.checks import listed
from fedcal.core.errors import InputError
from fedcal.core.types import Floats, Integers

_POINTS = 20_001


@dataclass(frozen=True)
class LabelShift:
    """Label shares where sets are used, and those of the clients' rows; both are public.

    Attributes
    ----------
    target
        q, (classes,)
    source
        p, (classes,), > 0 where q is
    """

    target: tuple[float, ...]
    source: tuple[float, ...]

    def __post_init__(self) -> None:
        for name, shares in (("target", self.target), ("source", self.source)):
            if not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1.0) > 1e-6:
                raise InputError(f"{name} must be shares that add up to 1, got {sum(shares):g}")
        if len(self.source) != len(self.target):
            raise InputError("target and source must have one share for each label")
        if any(q > 0 and p <= 0 for q, p in zip(self.target, self.source, strict=True)):
            raise InputError("source must be > 0 for each label with a share > 0 in target")

    @property
    def weights(self) -> Floats:
        """W = q / p, (classes,); 0 where q is 0."""
        target = np.array(self.target)
        return target / np.where(target > 0, np.array(self.source), 1.0)

    def coverage(self, missed: NDArray[np.bool_], labels: Integers) -> dict[str, float]:
        """Return the coverage of labelled rows, weighted by the target's shares.

        Parameters
        ----------
        missed
            (n,) whether the label is not in the set
        labels
            (n,) labels

        Returns
        -------
        dict of str to float
            "coverage_at_target", over labels that occur; empty if none with a share does
        """
        classes = len(self.target)
        rows = np.bincount(labels, minlength=classes)
        lost = np.bincount(labels, missed, classes) / np.maximum(rows, 1)
        share = np.array(self.target) * (rows > 0)
        if not share.sum():
            return {}
        return {"coverage_at_target": float(1.0 - lost @ share / share.sum())}

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `of_json`."""
        return {"kind": "target", "numbers": list(self.target), "source": list(self.source)}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> LabelShift:
        """Return the label shift of `to_json` values."""
        if values["kind"] != "target" or not values["source"]:
            raise InputError(
                "holds sets that weigh rows by costs, labels or counted shares, which was removed "
                "in 0.3: use target with source, or by=class"
            )
        return cls(*(tuple(map(float, values[name])) for name in ("numbers", "source")))


def shift_of(classes: int, target: Sequence[float], source: Sequence[float]) -> LabelShift | None:
    """Return the label shift of settings, each a list or its JSON text; None without target."""
    wanted, own = _shares("target", target), _shares("source", source)
    if not wanted and not own:
        return None
    if not own:
        raise InputError("target needs source: the label shares of the clients' rows, if public")
    if not wanted:
        raise InputError("source needs target: it holds the label shares of the clients' rows")
    if len(wanted) != classes:
        raise InputError(f"target must have {classes} numbers, one for each label")
    return LabelShift(wanted, own)


def _shares(name: str, value: Any) -> tuple[float, ...]:
    if not len(value):
        return ()
    items = listed(name, value, "numbers")
    for number in items:
        if isinstance(number, bool) or not isinstance(number, Real):
            raise InputError(f"{name} must be a list of numbers, got {value!r:.80}")
    if not np.isfinite(np.array(items, np.float64)).all():
        raise InputError(f"{name} must be finite numbers")
    return tuple(map(float, items))


def weighted_level(most_need: float, spare: float, law: Law) -> float:
    """Return the least B + x with E min(x - Z, spare) >= 0.

    Parameters
    ----------
    most_need
        B
    spare
        lower bound of the sum when all labels are in all sets
    law
        of Z, symmetric or not

    Returns
    -------
    float
        Infinite where `spare` is not above B: only all labels are enough.
    """
    if spare <= most_need:
        return math.inf
    if isinstance(law, Nothing):
        return most_need
    # E min(x - Z, spare) = spare - (integral of P(Z >= z) from x - spare on)
    low, high = law.reach
    z = np.linspace(low, high, _POINTS)
    above = 1.0 - law.below(z)
    steps = above[:-1] * (z[1] - z[0])  # no less than the integral: P(Z >= z) falls
    tail = np.append(np.cumsum(steps[::-1])[::-1], 0.0)
    if spare >= tail[0]:
        return most_need + spare + low - (spare - float(tail[0]))
    return most_need + spare + float(z[np.flatnonzero(tail <= spare)[0]])
