"""An audit of training with noisy gradient sums (DP-SGD): canaries that do not disturb each other.

A canary is a row whose clipped gradient has norm C and a direction of its own, orthogonal to all
others'. Of many canaries each takes part in a run, or not, by the toss of a fair coin. The attacker
knows all but the tosses: in each round he projects the noisy sum on each canary's direction and so
has, in units of C,

    x = b + multiplier * N(0, 1),

where b is the row's Poisson coin if the canary takes part, else 0. So one run of training is as
many independent attacks as there are canaries. Of a tenth of them he is told the tosses, which
shows him how much noise there really is; those of the others he guesses, by the likelihood ratio of
all rounds (Nasr et al. 2023; Steinke, Nasr & Jagielski 2023).

The test. However somebody guesses, no guess is right with more than (1 + delta(0)) / 2 under a
mechanism whose privacy profile is delta(epsilon): it is the mechanism's own trade-off curve (by
PLD), at the point where the two errors add up to least. Where the claim is true, the right guesses
are at most binomial with that probability; that is exact, and the attacker here reaches it. So
many right guesses that it would give no more than `error` of the time refute the claim.

Read the other way round, the right guesses bound that probability from below, and through the
curves of noise that is x times the promised, x from above; `lower_bound` is epsilon of that noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedcal.accounting import check_multiplier, check_rate
from fedcal.accounting.gaussian import private_side
from fedcal.core.checks import InputError, whole
from fedcal.core.numerics import Floats, Purpose, stream
from fedcal.experiments.research.stages import Stage, composed_delta, composed_epsilon

__all__ = ["CanaryFinding", "audit_canaries", "canary_runs", "canary_scores"]

_LEAST = 50  # canaries
_TOLD = 10  # of so many canaries the attacker is told the toss of one
_TINY = 1e-3  # multiplier
_MOST_NOISE, _LEAST_NOISE = 64.0, 1 / 16  # times the promised: no curves beyond


@dataclass(frozen=True)
class CanaryFinding:
    """The result of an audit with canaries.

    Attributes
    ----------
    correct, canaries
        tosses that were guessed right, of so many that were hidden
    stage, delta
        what is promised, and at which delta
    error
        probability at most that a true claim is refuted, and that a bound is wrong
    """

    correct: int
    canaries: int
    stage: Stage
    delta: float
    error: float

    @property
    def claimed(self) -> float:
        """The epsilon that is promised."""
        return composed_epsilon([self.stage], self.delta)

    @property
    def right(self) -> float:
        """A lower limit of the rate of correct guesses (Clopper & Pearson 1934)."""
        if self.correct == 0:
            return 0.0
        rest = self.canaries - self.correct
        return float(stats.beta.ppf(self.error, self.correct, rest + 1))

    @property
    def refuted(self) -> bool:
        """True if the claim is false (but for `error`). False proves nothing."""
        return 2 * self.right - 1 > composed_delta([self.stage], 0.0, near=self.claimed)

    @property
    def noise_at_most(self) -> float:
        """The noise is at most so many times the promised; infinite if nothing is shown."""
        return _through_curves(self.stage, self.claimed, 2 * self.right - 1)

    @property
    def lower_bound(self) -> float:
        """Epsilon is at least this, if the noise is Gaussian, of whatever size."""
        times = self.noise_at_most
        return (
            0.0 if times == math.inf else composed_epsilon([_with(self.stage, times)], self.delta)
        )


def canary_runs(
    stage: Stage, canaries: int, *, seed: int = 0, noise: float = 1.0, rate: float | None = None
) -> tuple[NDArray[np.bool_], Floats]:
    """One run of training as its canaries see it: the law of the noisy sums.

    Parameters
    ----------
    stage
        what is promised
    canaries
        at least 50
    seed
        of the tosses, the rows' coins and the noise
    noise
        times the promised; 1 = as promised
    rate
        at which rows really are sampled; None = as promised

    Returns
    -------
    present : array of bool, (canaries,)
        which of them take part
    seen : array, (rounds, canaries)
        projections of the noisy sums, in units of the clip norm

    Raises
    ------
    InputError
        For too few canaries, or a noise or rate that cannot be.
    """
    whole("canaries", canaries, _LEAST)
    check_multiplier(noise)
    really = stage.rate if rate is None else check_rate(rate)
    # not all digits: the last of a multiplier that was found by search depends on the processor
    what = f"canaries {stage.multiplier:.6g} {stage.rounds} {stage.rate:.6g}"
    present = stream(seed, Purpose.SPLIT, 0, what).random(canaries) < 0.5
    shape = (stage.rounds, canaries)
    seen = stream(seed, Purpose.NOISE, 0, what).standard_normal(shape)
    seen *= noise * stage.multiplier
    seen += present & (stream(seed, Purpose.COIN, 0, what).random(shape) < really)
    return present, seen


def canary_scores(seen: Floats, stage: Stage) -> Floats:
    """Log-likelihood ratio of each canary's projections: taking part, against not, (canaries,).

    Parameters
    ----------
    seen
        (rounds, canaries) in units of the clip norm
    stage
        what the attacker believes
    """
    told = (seen - 0.5) / stage.multiplier**2
    if stage.rate < 1:
        told = np.logaddexp(math.log1p(-stage.rate), math.log(stage.rate) + told)
    return np.asarray(told.sum(axis=0))


def audit_canaries(
    present: NDArray[np.bool_], seen: Floats, stage: Stage, delta: float, error: float = 0.01
) -> CanaryFinding:
    """Refute what a stage of noisy gradient sums promises, or not; see the module.

    Parameters
    ----------
    present
        (canaries,) which of them took part, each by a fair coin
    seen
        (rounds, canaries) projections of the released sums on the canaries' directions, in units
        of the clip norm
    stage
        what is promised
    delta
        at which epsilon is promised
    error
        of the finding, in (0, 1)

    Raises
    ------
    InputError
        For too few canaries, shapes that do not agree, or an error outside (0, 1).
    """
    whole("canaries", len(present), _LEAST)
    if not 0 < error < 1:
        raise InputError(f"error must be in (0, 1), got {error!r}")
    if seen.shape != (stage.rounds, len(present)):
        raise InputError(
            f"{stage.rounds} rounds and {len(present)} canaries have as many projections, "
            f"got {seen.shape}"
        )
    told = math.ceil(len(present) / _TOLD)
    noise = seen[:, :told][:, ~present[:told]]
    real = replace(stage, multiplier=max(float(noise.std()), _TINY)) if noise.size > 1 else stage
    hidden = present[told:]
    correct = int(((canary_scores(seen[:, told:], real) > 0) == hidden).sum())
    return CanaryFinding(correct, len(hidden), stage, delta, error)


def _with(stage: Stage, times: float) -> Stage:
    return replace(stage, multiplier=times * stage.multiplier)


@lru_cache(maxsize=1024)
def _through_curves(stage: Stage, claimed: float, advantage: float) -> float:
    """Return the noise, as a multiple of the claimed, that explains this advantage; rounded up."""

    def excess(times: float) -> float:
        near = claimed / max(times, 1.0)
        return math.log(composed_delta([_with(stage, times)], 0.0, near) / advantage)

    if advantage <= 0 or excess(_MOST_NOISE) > 0:
        return math.inf
    return private_side(excess, 1.0, _LEAST_NOISE, _MOST_NOISE)
