"""Tests for changes of scores, calibration or prevalence between two releases of a model.

Three tests of two histograms, with the noise of both:

* `score`: the distribution of scores; largest difference of the distribution functions
  (Kolmogorov-Smirnov);
* `calibration`: the rate of outcome 1 given the score, whatever the distribution of scores;
  largest cumulated difference of rates. With P and T rows of outcome 1 and all rows of a group of
  buckets, each group adds w (P_a / T_a - P_b / T_b), w = T_a T_b / (T_a + T_b), and the sum is
  divided by that of all w;
* `prevalence`: the share of outcome 1 in all.

p-values of the first two come from a parametric bootstrap: rows drawn from both releases' counts
together, as a Poisson number in each group, and noise as that of each release. The third is
asymptotically normal. All take rows as independent of each other: rows of one client often are
not, and then a change of clients, too, may be found. Where each subject counts once, that is what
is taken as independent. It is post-processing of both releases.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedcal.core.checks import InputError, whole
from fedcal.core.numerics import Floats, Purpose, stream
from fedcal.evaluation.estimators.calibration import FAR_TAIL
from fedcal.evaluation.findings import FEWEST
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals import FIRM

GROUPS = 20
"""Most groups of buckets that are compared, of about equally many rows."""

_STDS = 5.0  # of its noise that a group's rows exceed
_CHUNK = 999  # draws at once
_ENOUGH = 10  # draws as large as the statistic, after which more would change no verdict


@dataclass(frozen=True)
class Change:
    """Result of one test of drift.

    Attributes
    ----------
    change
        its statistic, a difference of shares; with a sign (later minus earlier) for `prevalence`
    p_value
        chance of so large a statistic if nothing has changed
    floor
        the smallest p-value that the test can resolve
    """

    change: float
    p_value: float
    floor: float

    def to_json(self) -> dict[str, float]:
        """Return the attributes as a dict of plain numbers."""
        return dict(vars(self))


def drift_between(
    earlier: Histogram, later: Histogram, *, draws: int = 999, seed: int = 0
) -> dict[str, Change]:
    """Test what has changed between two releases of the same score.

    Parameters
    ----------
    earlier, later
        rows by score and outcome, between the same edges
    draws
        maximum number of bootstrap draws; no p-value is below 1 / (draws + 1)
    seed
        random seed of the bootstrap

    Returns
    -------
    dict[str, Change]
        `score`, `calibration` and `prevalence`; p-values are not corrected for the three tests

    Raises
    ------
    InputError
        If a release's noise drowns its rows, edges differ, or `draws` is not allowed.
    """
    whole("draws", draws, 19, 10**6)
    if _drowned(earlier) or _drowned(later):
        raise InputError("a release's noise drowns its rows: drift cannot be tested")
    if not same_edges(earlier.edges, later.edges):
        raise InputError("the two releases have different bucket edges")
    a, b = grouped(earlier, later)
    rng = stream(seed, Purpose.BOOTSTRAP, 0, "drift")
    return {
        "score": _tested(_score_change, a, b, _same_scores(a, b), rng, draws),
        "calibration": _tested(_calibration_change, a, b, _same_shares(a, b), rng, draws),
        "prevalence": _prevalence(a, b),
    }


def few(h: Histogram) -> bool:
    """Return whether rows are too few for a result, by their noisy count."""
    return bool(h.rows < FEWEST) or _drowned(h)


def _drowned(h: Histogram) -> bool:
    return bool(h.rows <= FIRM * h.rows_std)


def same_edges(a: Floats, b: Floats) -> bool:
    """Return whether buckets lie between the same edges."""
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=0, atol=1e-9))


def grouped(a: Histogram, b: Histogram) -> tuple[Histogram, Histogram]:
    """Join both into at most `GROUPS` groups of buckets, whose rows together exceed noise.

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
    return a.merged(np.array(starts)), b.merged(np.array(starts))


def _score_change(a: Floats, b: Floats) -> Floats:
    """Return the largest gap of cumulative score distributions, (..., 2, groups) -> (...)."""
    fa, fb = (np.cumsum(x.sum(axis=-2), axis=-1) for x in (a, b))
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.abs(fa / fa[..., -1:] - fb / fb[..., -1:]).max(axis=-1)
    return np.asarray(np.nan_to_num(gap, nan=1.0, posinf=1.0))


def _calibration_change(a: Floats, b: Floats) -> Floats:
    """Return the largest cumulative gap of outcome rates, (..., 2, groups) -> (...)."""
    ta, tb = a.sum(axis=-2), b.sum(axis=-2)
    with np.errstate(divide="ignore", invalid="ignore"):
        gaps = np.cumsum((a[..., 1, :] * tb - b[..., 1, :] * ta) / (ta + tb), axis=-1)
        mean = np.abs(gaps).max(axis=-1) / (ta * tb / (ta + tb)).sum(axis=-1)
    return np.asarray(np.nan_to_num(np.abs(mean), nan=1.0, posinf=1.0))


def _same_scores(a: Histogram, b: Histogram) -> tuple[Floats, Floats]:
    """Return expected counts if scores have one distribution; outcomes do not matter."""
    rows = np.maximum((a.counts + b.counts).sum(axis=0), 0.0)
    share = np.stack([rows, np.zeros_like(rows)]) / rows.sum()
    return share * a.counts.sum(), share * b.counts.sum()


def _same_shares(a: Histogram, b: Histogram) -> tuple[Floats, Floats]:
    """Return expected counts if each group has the same rate of outcome 1 in both."""
    both = np.maximum(a.counts + b.counts, 0.0)
    share = both / np.maximum(both.sum(axis=0), 1e-12)
    first, second = (share * np.maximum(h.counts.sum(axis=0), 0.0) for h in (a, b))
    return first, second


def _tested(
    statistic: Callable[[Floats, Floats], Floats],
    a: Histogram,
    b: Histogram,
    expected: tuple[Floats, Floats],
    rng: np.random.Generator,
    draws: int,
) -> Change:
    """Return the statistic, and its p-value by counts drawn from `expected`."""
    seen = float(statistic(a.counts, b.counts))
    above = done = 0
    while done < draws and above < _ENOUGH:
        some = min(_CHUNK, draws - done)
        each = zip((a, b), expected, strict=True)
        null = [rng.poisson(of, (some, *of.shape)) + h.draws(rng, some) for h, of in each]
        above += int((statistic(*null) >= seen).sum())
        done += some
    return Change(seen, (1 + above) / (1 + done), 1 / (1 + done))


def _prevalence(a: Histogram, b: Histogram) -> Change:
    """Test the difference of prevalences against its std if there is none."""
    pooled = (a.counts + b.counts).sum(axis=1)
    p = float(np.clip(pooled[1] / pooled.sum(), 0.0, 1.0))
    influence = np.stack([np.full(a.buckets, -p), np.full(a.buckets, 1.0 - p)])
    before, after = (float(h.counts[1].sum()) / h.rows for h in (a, b))
    noise = (float(h.noise_std(influence)) for h in (a, b))
    variance = sum(
        p * (1 - p) / h.rows + std**2 / h.rows**2 for h, std in zip((a, b), noise, strict=True)
    )
    change = after - before
    if variance == 0:
        return Change(change, 1.0, FAR_TAIL)
    p_value = math.erfc(abs(change) / math.sqrt(2 * variance))
    return Change(change, max(p_value, FAR_TAIL), FAR_TAIL)
