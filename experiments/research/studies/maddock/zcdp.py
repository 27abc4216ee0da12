"""The source paper's account of Gaussian noise, zCDP: looser than `fedcal.accounting`."""

from __future__ import annotations

import math

from fedcal.accounting.gaussian import (
    check_delta,
    check_epsilon,
    check_rounds,
    smallest,
    smallest_positive,
)


def _zcdp_delta(rho: float, epsilon: float) -> float:
    """Return the delta of a rho-zCDP mechanism at ``epsilon`` (Lemma B.3), minimal over alpha.

    The exponent is convex in alpha and its slope is (2 alpha - 1) rho - eps + log(1 - 1/alpha), so
    the minimum is where that changes sign. Any alpha gives a valid delta.
    """

    def rising(log_t: float) -> bool:  # alpha = 1 + t
        t = math.exp(log_t)
        return (2 * t + 1) * rho - epsilon + log_t - math.log1p(t) >= 0

    high = math.log(max(1.0, (epsilon + 1) / (2 * rho)))  # rising there: log(1 - 1/2) > -1
    t = math.exp(smallest(rising, -700.0, high) if not rising(-700.0) else -700.0)
    alpha = 1 + t
    log_t = math.log(t)
    exponent = t * (alpha * rho - epsilon) - log_t + alpha * (log_t - math.log1p(t))
    return math.exp(min(exponent, 0.0))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which rho-zCDP implies (epsilon, delta)-DP by Lemma B.3.

    Parameters
    ----------
    epsilon, delta
        epsilon finite and above 0, delta in (0, 1).

    Raises
    ------
    InputError
        For a value outside of these ranges.

    Source
    ------
    Maddock, Cormode & Maple (Private federated multiclass post-hoc calibration), Lemma B.3; it is
    Canonne, Kamath & Steinke 2020 (The discrete Gaussian), Corollary 13.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)

    def too_much(rho: float) -> bool:
        return _zcdp_delta(rho, epsilon) > delta

    return math.nextafter(smallest_positive(too_much), 0.0)


def zcdp_multiplier(epsilon: float, delta: float, rounds: int = 1) -> float:
    """Return the paper's noise multiplier, sqrt(rounds / (2 rho)), which is loose.

    It is Lemma B.7 for sensitivity 1 without sampling. The lemma's further factor sqrt(2c) for
    binning is a sensitivity (two histograms per class, each clipped to C, give a vector of norm
    C sqrt(2c)); here it belongs to the method's bound, not to the multiplier.

    Raises InputError as ``zcdp_rho``, and for rounds below 1.
    """
    return math.sqrt(check_rounds(rounds) / (2 * zcdp_rho(epsilon, delta)))
