"""Released counts of rows by conformity score, which give thresholds for every alpha.

Sets for rows whose labels have other shares than the clients' rows (label shift).

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

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.conformal.levels import Law, Noise, NoiseFree, after_last, centred_level, marginal_level
from fedcal.core.checks import fraction, listed
from fedcal.core.errors import InputError
from fedcal.core.streams import Purpose, key_of, stream
from fedcal.core.types import Floats, Integers
from fedcal.mechanisms import NoiseLaw

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
        sums = [sum(shares) for shares in (self.target, self.source)]
        fits = len(self.source) == len(self.target) and all(abs(s - 1) <= 1e-6 for s in sums)
        pairs = zip(self.target, self.source, strict=False)
        if not fits or not all(q >= 0 <= p and (p > 0 or q == 0) for q, p in pairs):
            raise InputError(
                "target and source must be shares of each label that add up to 1, source > 0 where "
                f"target is, got {len(self.target)} of sum {sums[0]:g}, and {len(self.source)} of "
                f"sum {sums[1]:g}"
            )

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
    wanted, own = (
        tuple(map(float, listed(name, value, "numbers"))) if len(value) else ()
        for name, value in (("target", target), ("source", source))
    )
    if not wanted and not own:
        return None
    if not own or len(wanted) != classes:
        raise InputError(
            f"target must have {classes} numbers, one for each label, and needs source: the label "
            "shares of the clients' rows, if public"
        )
    return LabelShift(wanted, own)


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
    if isinstance(law, NoiseFree):
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


ANY_ROW = "for a row that is exchangeable with all clients' rows taken together."
"""Rows that the guarantee is for, where rows are pooled: the end of a sentence."""

FAILS = 0.001
"""Fraction of alpha with which the bounds of the number of rows may fail."""


@dataclass(frozen=True, eq=False)
class SetRelease:
    """Noisy counts of rows in buckets of their conformity score.

    Attributes
    ----------
    thresholds
        (m,) upper ends of the buckets, the last one 1
    counts
        (parts, m) unbiased estimates
    decoder
        (m, numbers): the noise of each part's counts is `decoder @ z`, of independent z
    noise
        distribution of z
    rows
        of the one part, where their number is public; None = it is private
    whose
        rows that the guarantee is for: the end of a sentence
    """

    thresholds: Floats
    counts: Floats
    decoder: Floats
    noise: Noise
    rows: int | None = None
    whose: str = ANY_ROW

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the release as arrays, for files."""
        plain = {"std": self.noise.std, **self.noise.law.to_json(), "rows": self.rows}
        plain["whose"] = self.whose
        return {
            "release_thresholds": self.thresholds,
            "release_counts": self.counts,
            "release_decoder": self.decoder,
            "release": np.array(json.dumps(plain)),
        }

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self | None:
        """Return the release of `arrays`, or None if they hold none."""
        if "release" not in arrays:
            return None
        plain = json.loads(str(arrays["release"]))
        noise = Noise(float(plain["std"]), NoiseLaw.of_json(plain))
        return cls(
            np.array(arrays["release_thresholds"], np.float64),
            np.array(arrays["release_counts"], np.float64),
            np.array(arrays["release_decoder"], np.float64),
            noise,
            None if plain["rows"] is None else int(plain["rows"]),
            str(plain["whose"]),
        )

    @cached_property
    def below(self) -> Floats:
        """Noisy numbers of rows with a score of at most each threshold, (parts, m)."""
        return np.cumsum(self.counts, axis=1)

    @cached_property
    def _prefix(self) -> Floats:
        """Noise of `below`, as coefficients of z, (m, numbers)."""
        return np.cumsum(self.decoder, axis=0)

    def found(self, alpha: float, shift: LabelShift | None = None) -> Floats:
        """Return a threshold for each part with mean coverage >= 1 - alpha; 1 = all labels.

        It is the threshold after the last one whose noisy count is below the level. A private
        number of rows has a noisy bound, which may fail: alpha is lowered by as much.

        Parameters
        ----------
        alpha
            fraction of rows whose label may be missing
        shift
            shares of labels, which are the parts, where sets are used; None = every part by itself

        Returns
        -------
        Floats
            (parts,), or (1,) with `shift`
        """
        fraction("alpha", alpha)
        if self.rows is None and self.noise.std:
            alpha *= 1.0 - FAILS
        if len(self.thresholds) == 1:
            return np.ones(1 if shift else len(self.counts))
        if shift is not None:
            return np.array([self._shifted(alpha, shift)])
        weights, counts = self._prefix[:-1], self.below[:, :-1]
        if self.rows is None:
            weights = weights - (1.0 - alpha) * self._prefix[-1]
            counts = counts - (1.0 - alpha) * self.below[:, -1:]
        law, counts = self._of_one_law(weights, counts, alpha)
        chosen = [
            after_last(self.thresholds, sums < self._level(part, alpha, law))
            for part, sums in enumerate(counts)
        ]
        return np.array(chosen)

    def _of_one_law(self, weights: Floats, sums: Floats, alpha: float) -> tuple[Law, Floats]:
        """Return one distribution of the sums' noise, and the sums with noise of `of_sums`."""
        law, more = self.noise.of_sums(weights)
        if more.any():
            draw = stream(0, Purpose.BOOTSTRAP, 2, key_of(self.counts, alpha))
            sums = sums + more * draw.standard_normal(sums.shape)
        return law, sums

    def _shifted(self, alpha: float, shift: LabelShift) -> float:
        """Return one threshold for other label shares: see `fedcal.conformal.set_release`."""
        hit = shift.weights
        need = (1.0 - alpha) * hit
        last = self._prefix[-1]
        weights = hit[:, None, None] * self._prefix[:-1] - need[:, None, None] * last
        sums = hit @ self.below[:, :-1] - need @ self.below[:, -1:]
        by_sum = np.swapaxes(weights, 0, 1).reshape(len(sums), -1)
        law, sums = self._of_one_law(by_sum, sums, alpha)
        spare = float((hit - need) @ self.below[:, -1])
        if self.noise.std:
            of_spare = np.outer(hit - need, last).ravel()
            spare -= self.noise.bound(of_spare, 1.0 - FAILS * alpha / 2)
        level = weighted_level(float(need.max()), spare, law)
        return after_last(self.thresholds, sums < level)

    def _level(self, part: int, alpha: float, law: Law) -> float:
        if self.rows is not None:
            return marginal_level(self.rows, alpha, law)
        off = 0.0
        if not isinstance(law, NoiseFree):
            off = self.noise.bound(self._prefix[-1], 1.0 - FAILS * alpha / 2)
        return centred_level(float(self.below[part, -1]) - off, alpha, law)

    @property
    def total(self) -> Floats:
        """Noisy numbers of rows of each part, (parts,)."""
        return np.asarray(self.below[:, -1])

    @property
    def total_std(self) -> float:
        """Standard deviation of the noise of each `total`."""
        return self.noise.std * float(np.linalg.norm(self._prefix[-1]))
