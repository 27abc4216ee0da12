"""One account over several stages that use the same rows: training, recalibration, evaluation.

A *stage* is a run's releases: Gaussian noise in some rounds (`Stage`), or a mechanism of which only
its own (epsilon, delta) is known (`Guarantee`: an exponential mechanism, Laplace noise).
The privacy losses of all stages add up, so their distributions are convolved (PLD) and epsilon is
computed once, at one delta. That is valid if noise, rounds and rates of all stages were fixed
before the first release; questions may depend on earlier answers. If budgets are chosen after
looking at results, the sums of the ledger hold.

Everything is rounded up, and every inversion ends on the private side, as in `gaussian`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy.special import gammaln

from fedcal.accounting import gaussian
from fedcal.core.checks import InputError

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_FFT_SLACK = 5e-14  # of delta, for each convolution of two stages; see `gaussian._FFT_SLACK`
_RARE = -60.0  # log of the probability of a guarantee's loss that counts as infinite


@dataclass(frozen=True, order=True)
class Stage:
    """Gaussian noise on Poisson-sampled sums.

    Attributes
    ----------
    multiplier
        noise std per unit of L2 sensitivity, in each round
    rounds
        releases, at least 1
    rate
        Poisson sampling rate of the unit of privacy, in (0, 1]
    """

    multiplier: float
    rounds: int = 1
    rate: float = 1.0

    def __post_init__(self) -> None:
        gaussian.check_multiplier(self.multiplier)
        gaussian.check_rounds(self.rounds)
        gaussian.check_rate(self.rate)


@dataclass(frozen=True, order=True)
class Guarantee:
    """Releases that are known only to be (epsilon, delta)-DP each.

    Attributes
    ----------
    epsilon, delta
        of each of them; delta in [0, 1)
    rounds
        releases, at least 1
    """

    epsilon: float
    delta: float = 0.0
    rounds: int = 1

    def __post_init__(self) -> None:
        gaussian.check_epsilon(self.epsilon)
        if self.delta != 0:
            gaussian.check_delta(self.delta)
        gaussian.check_rounds(self.rounds)


AnyStage: TypeAlias = Stage | Guarantee


# --- account ------------------------------------------------------------------------------------


def composed_epsilon(stages: Iterable[AnyStage], delta: float) -> float:
    """Return the epsilon of all stages together, on the same rows.

    Parameters
    ----------
    stages
        at least one; their order does not matter
    delta
        In (0, 1). With sampling below rate 1: below each such rate, and at least 1e-12 (1e-15 a
        round from 1000 rounds on). Above the deltas of all guarantees together.

    Returns
    -------
    float
        An upper bound, exact for Gaussian stages at rate 1 (their mu^2 = rounds / multiplier^2 add
        up), else PLD rounded up. It is never above what guarantees and noise cost one by one.

    Raises
    ------
    InputError
        For no stage, or a delta outside of these ranges.

    Source
    ------
    Dong, Roth & Su 2022 (Gaussian stages); dp-accounting (connect-the-dots, Doroshenko et al.
    2022); a guarantee's worst case is randomised response (Kairouz, Oh & Viswanath 2015).
    """
    delta, parts = gaussian.check_delta(delta), _merged(stages)
    sampled, fixed, square = parts
    if not sampled and not fixed:
        return gaussian._gaussian_epsilon(delta, math.sqrt(square))
    if len(sampled) == 1 and not fixed and not square:
        (one,) = sampled
        return gaussian.poisson_gaussian_epsilon(delta, one.multiplier, one.rounds, one.rate)
    for stage in sampled:
        gaussian._check_amplified(delta, stage.rounds, stage.rate)
    known = math.fsum(one.rounds * one.delta for one in fixed)
    least = 20 * _slack(parts) + known
    if delta <= known * (1 + 1e-9) or delta < least:
        raise InputError(
            f"delta {delta:g} is too small for these stages: it must be above {least:.3g}"
        )
    return _composed_epsilon(parts, delta)


def composed_delta(stages: Iterable[AnyStage], epsilon: float, near: float | None = None) -> float:
    """Return an upper bound of the delta of all stages together at `epsilon` >= 0.

    At epsilon = 0 it is the largest (true positive rate - false positive rate) of any test of
    whether a row was in the data.

    Parameters
    ----------
    stages
        as for `composed_epsilon`
    near
        about the stages' epsilon at a small delta, which sets the PLD's grid; None = it is
        computed, which takes most of the time

    Raises
    ------
    InputError
        As `composed_epsilon`, and for a negative epsilon.
    """
    epsilon = gaussian.check_epsilon(epsilon) if epsilon else 0.0
    sampled, fixed, square = parts = _merged(stages)
    if not sampled and not fixed:
        return gaussian._hockey_stick(epsilon, math.sqrt(square))
    if not sampled and not square and epsilon >= math.fsum(g.rounds * g.epsilon for g in fixed):
        return 0.0 - math.expm1(math.fsum(g.rounds * math.log1p(-g.delta) for g in fixed))
    if near is None:
        known = math.fsum(one.rounds * one.delta for one in fixed)
        near = _composed_epsilon(parts, min(1e-5, *(s.rate / 10 for s in sampled), 1.0) + known)
    delta = float(_composed(parts, _grid(near, parts)).get_delta_for_epsilon(epsilon))
    return min(1.0, delta + _slack(parts))


_Parts: TypeAlias = tuple[tuple[Stage, ...], tuple[Guarantee, ...], float]
"""Sampled stages, guarantees, and the sum of mu^2 of all others: equal for equal accounts."""


def _merged(stages: Iterable[AnyStage]) -> _Parts:
    everything = list(stages)
    if not everything:
        raise InputError("an account needs at least one stage")
    sampled: Counter[tuple[float, float]] = Counter()
    fixed: Counter[tuple[float, float]] = Counter()
    squares = []
    for stage in everything:
        if isinstance(stage, Guarantee):
            fixed[stage.epsilon, stage.delta] += stage.rounds
        elif stage.rate < 1:
            sampled[stage.multiplier, stage.rate] += stage.rounds
        else:
            squares.append(stage.rounds / stage.multiplier**2)
    return (
        tuple(sorted(Stage(m, rounds, rate) for (m, rate), rounds in sampled.items())),
        tuple(sorted(Guarantee(e, d, rounds) for (e, d), rounds in fixed.items())),
        math.fsum(squares),
    )


def _slack(parts: _Parts) -> float:
    """Return an upper bound of the effect of FFT rounding on delta."""
    sampled, fixed, _ = parts
    inside = math.fsum(gaussian._fft_slack(stage.rounds) for stage in sampled)
    return inside + _FFT_SLACK * (len(sampled) + 2 * len(fixed) + 1)


def _grid(epsilon: float, parts: _Parts) -> float:
    """Return the width (nats) of the PLD grid near `epsilon`; any width gives a valid bound."""
    sampled, fixed, square = parts
    rounds = sum(s.rounds for s in sampled) + len(fixed) + (square > 0)  # guarantees: once a kind
    share = gaussian._GRID_FRACTION * epsilon / math.sqrt(rounds)
    if not sampled:  # its PLDs are small
        share *= 0.1 if square else 1e-3 * len(fixed)
    widths = [gaussian._grid(0.0, stage.multiplier, 1, stage.rate) for stage in sampled]
    if square:
        widths.append(gaussian._grid(0.0, 1 / math.sqrt(square), 1, 1.0))
    return min(max(share, *widths, 0.0), gaussian._GRID_WIDEST)


def _composed(parts: _Parts, grid: float) -> PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution as pld

    sampled, fixed, square = parts
    whole = _slow(sampled, fixed, grid)
    if not square:
        return whole
    one = pld.from_gaussian_mechanism(1 / math.sqrt(square), value_discretization_interval=grid)
    return whole.compose(one)


@lru_cache(maxsize=4)
def _slow(
    sampled: tuple[Stage, ...], fixed: tuple[Guarantee, ...], grid: float
) -> PrivacyLossDistribution:
    """Return the loss of all but the Gaussian stages, which a search over those computes once."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    whole = pld.identity(value_discretization_interval=grid)
    for stage in sampled:
        one = pld.from_gaussian_mechanism(
            stage.multiplier, value_discretization_interval=grid, sampling_prob=stage.rate
        )
        whole = whole.compose(one.self_compose(stage.rounds))
    for known in fixed:
        k, right = known.rounds, np.arange(known.rounds + 1)
        ways = gammaln(k + 1) - gammaln(right + 1) - gammaln(k - right + 1)
        holds = k * (math.log1p(-known.delta) - math.log1p(math.exp(-known.epsilon)))
        logs = ways - (k - right) * known.epsilon + holds + 1e-14 * k  # a binomial law, rounded up
        lower = dict(enumerate((logs - (2 * right - k) * known.epsilon).tolist()))
        upper = dict(enumerate(logs.tolist()))
        if known.delta:
            upper[-1] = math.log(-math.expm1(k * math.log1p(-known.delta)))
        whole = whole.compose(
            pld.from_two_probability_mass_functions(
                lower, upper, value_discretization_interval=grid, log_mass_truncation_bound=_RARE
            )
        )
    return whole


def _plain(parts: _Parts, delta: float) -> float:
    """Return a quick upper bound: nothing is amplified, and guarantees add up."""
    sampled, fixed, square = parts
    mu2 = square + math.fsum(stage.rounds / stage.multiplier**2 for stage in sampled)
    left = delta - math.fsum(one.rounds * one.delta for one in fixed)
    noise = gaussian._gaussian_epsilon(left, math.sqrt(mu2)) if mu2 else 0.0
    return noise + math.fsum(one.rounds * one.epsilon for one in fixed)


@lru_cache(maxsize=256)
def _composed_epsilon(parts: _Parts, delta: float) -> float:
    return gaussian.refined(
        _plain(parts, delta),
        lambda near: _grid(near, parts),
        lambda grid: float(_composed(parts, grid).get_epsilon_for_delta(delta - _slack(parts))),
    )
