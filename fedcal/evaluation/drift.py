"""Has a model's score, its calibration or the prevalence changed between two releases?

Three tests of two histograms, with the noise of both:

* `score`: the distribution of scores; largest difference of the distribution functions
  (Kolmogorov-Smirnov);
* `calibration`: the share of outcome 1 given the score, whatever has become of the scores; largest
  cumulated difference of shares. With P and T rows of outcome 1 and all rows of a group of
  buckets, each group adds w (P_a / T_a - P_b / T_b), w = T_a T_b / (T_a + T_b), and the sum is
  divided by that of all w;
* `prevalence`: the share of outcome 1 in all.

p-values of the first two come from a parametric bootstrap: rows drawn from what both releases say
together, as a Poisson number in each group, and noise as that of each release. The third is
asymptotically normal. All take rows as independent of each other: rows of one client often are
not, and then a change of clients, too, may be found. It is post-processing of both releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedcal.checks import whole
from fedcal.errors import InputError
from fedcal.evaluation.goodness import FAR_TAIL
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals import FIRM
from fedcal.streams import Purpose, stream
from fedcal.types import Floats, Integers

GROUPS = 20
"""Most groups of buckets that are compared, of about equally many rows."""

_STDS = 5.0  # of its noise that a group's rows exceed
_EDGE = 1e-9  # how far equal edges may lie apart


@dataclass(frozen=True)
class Change:
    """One of the tests.

    Attributes
    ----------
    change
        its statistic, a difference of shares; with a sign (later minus earlier) for `prevalence`
    p_value
        chance of so large a statistic if nothing has changed
    floor
        the smallest p-value that the test can tell
    """

    change: float
    p_value: float
    floor: float

    def to_json(self) -> dict[str, float]:
        """Plain numbers."""
        return dict(vars(self))


def drift_between(
    earlier: Histogram, later: Histogram, *, draws: int = 999, seed: int = 0
) -> dict[str, Change]:
    """Tests of what has changed between two releases about the same score.

    Parameters
    ----------
    earlier, later
        rows by score and outcome; of different edges only the common ones count
    draws
        of the bootstrap; no p-value is below 1 / (draws + 1)
    seed
        of the bootstrap

    Returns
    -------
    dict[str, Change]
        `score`, `calibration` and `prevalence`; each p-value stands alone, none is corrected for
        there being three

    Raises
    ------
    InputError
        If a release's noise drowns its rows, or `draws` is not allowed.
    """
    whole("draws", draws, 19, 10**6)
    for name, h in (("earlier", earlier), ("later", later)):
        if h.counts.sum() <= FIRM * h.noise_std(np.ones_like(h.counts)):
            raise InputError(f"the {name} release's noise drowns its rows: no drift can be seen")
    a, b = grouped(*on_common_edges(earlier, later))
    rng = stream(seed, Purpose.BOOTSTRAP, 0, "drift")
    return {
        "score": _tested(_score_change, a, b, _same_scores(a, b), rng, draws),
        "calibration": _tested(_calibration_change, a, b, _same_shares(a, b), rng, draws),
        "prevalence": _prevalence(a, b),
    }


def merged(h: Histogram, starts: Integers) -> Histogram:
    """Neighbouring buckets joined; `starts` are the first ones of each group, from 0 on."""
    return Histogram(
        np.append(h.edges[:-1][starts], h.edges[-1]),
        np.add.reduceat(h.counts, starts, axis=1),
        np.add.reduceat(h.root, starts, axis=0),
        h.law,
    )


def on_common_edges(a: Histogram, b: Histogram) -> tuple[Histogram, Histogram]:
    """Both with the edges that both have."""
    near = np.abs(np.subtract.outer(a.edges[:-1], b.edges[:-1])) <= _EDGE
    return merged(a, np.flatnonzero(near.any(axis=1))), merged(b, np.flatnonzero(near.any(axis=0)))


def grouped(a: Histogram, b: Histogram) -> tuple[Histogram, Histogram]:
    """Both with at most `GROUPS` groups of buckets, whose rows together stand out from noise.

    Not those of each: a group that ends when its noisy rows in one release are enough has too many
    of them there, and the test of the calibration then rejects too often (.11 instead of .05).
    """
    rows, root = a.counts.sum(axis=0) + b.counts.sum(axis=0), np.hstack([a.root, b.root])
    total = np.append(0.0, np.cumsum(rows))
    noise = np.vstack([np.zeros(root.shape[1]), np.cumsum(root, axis=0)])
    least, starts = total[-1] / GROUPS, [0]

    def enough(i: int, j: int) -> bool:
        std = math.sqrt(2 * np.square(noise[j] - noise[i]).sum())
        return bool(total[j] - total[i] >= max(least, _STDS * std))

    for i in range(1, a.buckets):
        if enough(starts[-1], i):
            starts.append(i)
    if len(starts) > 1 and not enough(starts[-1], a.buckets):
        starts.pop()
    return merged(a, np.array(starts)), merged(b, np.array(starts))


def _score_change(a: Floats, b: Floats) -> Floats:
    """Of counts (..., 2, groups) each: (...)."""
    fa, fb = (np.cumsum(x.sum(axis=-2), axis=-1) for x in (a, b))
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.abs(fa / fa[..., -1:] - fb / fb[..., -1:]).max(axis=-1)
    return np.asarray(np.nan_to_num(gap, nan=1.0, posinf=1.0))


def _calibration_change(a: Floats, b: Floats) -> Floats:
    """Of counts (..., 2, groups) each: (...)."""
    ta, tb = a.sum(axis=-2), b.sum(axis=-2)
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = np.cumsum((a[..., 1, :] * tb - b[..., 1, :] * ta) / (ta + tb), axis=-1)
        mean = np.abs(gaps).max(axis=-1) / (ta * tb / (ta + tb)).sum(axis=-1)
    return np.asarray(np.nan_to_num(np.abs(mean), nan=1.0, posinf=1.0))


def _same_scores(a: Histogram, b: Histogram) -> tuple[Floats, Floats]:
    """Expected counts if scores have one distribution; outcomes do not matter."""
    rows = np.maximum((a.counts + b.counts).sum(axis=0), 0.0)
    share = np.stack([rows, np.zeros_like(rows)]) / rows.sum()
    return share * a.counts.sum(), share * b.counts.sum()


def _same_shares(a: Histogram, b: Histogram) -> tuple[Floats, Floats]:
    """Expected counts if each group has one share of outcome 1."""
    both = np.maximum(a.counts + b.counts, 0.0)
    share = both / np.maximum(both.sum(axis=0), 1e-12)
    return (
        share * np.maximum(a.counts.sum(axis=0), 0.0),
        share * np.maximum(b.counts.sum(axis=0), 0.0),
    )


def _tested(
    statistic: Callable[[Floats, Floats], Floats],
    a: Histogram,
    b: Histogram,
    expected: tuple[Floats, Floats],
    rng: np.random.Generator,
    draws: int,
) -> Change:
    """The statistic, and how often counts drawn from `expected` exceed it."""
    seen = float(statistic(a.counts, b.counts))
    null = [
        rng.poisson(mean, (draws, *mean.shape)) + h.draws(rng, draws)
        for h, mean in zip((a, b), expected, strict=True)
    ]
    above = int((statistic(null[0], null[1]) >= seen).sum())
    return Change(seen, (1 + above) / (1 + draws), 1 / (1 + draws))


def _prevalence(a: Histogram, b: Histogram) -> Change:
    """Difference of shares against its std if there is none."""
    pooled = (a.counts + b.counts).sum(axis=1)
    p = float(np.clip(pooled[1] / pooled.sum(), 0.0, 1.0))
    influence = np.stack([np.full(a.buckets, -p), np.full(a.buckets, 1.0 - p)])
    rows = [float(h.counts.sum()) for h in (a, b)]
    shares = [float(h.counts[1].sum()) / n for h, n in zip((a, b), rows, strict=True)]
    variance = sum(
        p * (1 - p) / n + float(h.noise_std(influence)) ** 2 / n**2
        for h, n in zip((a, b), rows, strict=True)
    )
    change = shares[1] - shares[0]
    if variance == 0:
        return Change(change, 1.0, FAR_TAIL)
    p_value = math.erfc(abs(change) / math.sqrt(2 * variance))
    return Change(change, max(p_value, FAR_TAIL), FAR_TAIL)
