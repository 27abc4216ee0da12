"""Accounting of the source paper, zCDP and RDP: looser than `accounting`, for comparison."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp

from fedcal.accounting.gaussian import (
    check_delta,
    check_epsilon,
    check_multiplier,
    check_rate,
    check_rounds,
    gaussian_multiplier,
    private_side,
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


def zcdp_rho_simple(epsilon: float, delta: float) -> float:
    """Return the largest rho by the conversion epsilon = rho + 2 sqrt(rho log(1 / delta)).

    It is below `zcdp_rho`: the lemma that the paper cites improved on it.


    Raises InputError as ``zcdp_rho``.

    Source
    ------
    Bun & Steinke 2016 (Concentrated differential privacy), Proposition 1.3.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    log = -math.log(delta)
    root = epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))
    return math.nextafter(root * root * (1 - 1e-15), 0.0)


_WHOLE = (*range(2, 64), *(round(64 * 1.2**i) for i in range(16)))
_BROKEN = tuple(2 + i / 8 for i in range(64) if i % 8)
_CONVERGES = 4.0  # above it the library's series for broken orders may not


def rdp_epsilon(delta: float, multiplier: float, rounds: int = 1, rate: float = 1.0) -> float:
    """Return the epsilon of Poisson-sampled Gaussian releases by Renyi differential privacy.

    The paper uses it for participation below 1 (B.1, after Lemma B.7). It is an upper bound, looser
    than ``accounting.poisson_gaussian_epsilon``, whose parameters and meaning it shares; the
    minimum is over the orders 2 to 64 and some above, up to 986, and for small multipliers
    (below 4) over eighths of an order from 2 to 10.

    Raises
    ------
    InputError
        For a value outside of the ranges there.

    Source
    ------
    Mironov 2017 (Renyi differential privacy); Mironov, Talwar & Zhang 2019 for the sampled
    Gaussian; converted as in Lemma B.3; all of it by dp-accounting.
    """
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    delta, multiplier = check_delta(delta), check_multiplier(multiplier)
    rounds, rate = check_rounds(rounds), check_rate(rate)
    orders = (*_BROKEN, *_WHOLE) if multiplier < _CONVERGES else _WHOLE
    accountant = RdpAccountant(orders, dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    one = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    accountant.compose(dp_accounting.SelfComposedDpEvent(one, rounds))
    return float(accountant.get_epsilon(delta))


_QUICK = np.array([*range(2, 64), 128, 256, 512])


def rdp_epsilons(delta: float, multiplier: float, rate: float = 1.0) -> Callable[[int], float]:
    """Return a function from the number of rounds to `rdp_epsilon`, over integer orders only.

    The divergence of one release is computed once, so that a call after every round is cheap.

    Source
    ------
    Mironov, Talwar & Zhang 2019, section 3.3: of order a the divergence of one release is
    log(sum_k binom(a, k) (1 - q)^(a - k) q^k exp((k^2 - k) / (2 sigma^2))) / (a - 1).
    """
    from dp_accounting.rdp import compute_epsilon

    delta, multiplier = check_delta(delta), check_multiplier(multiplier)
    each = _QUICK / (2 * multiplier**2)
    if check_rate(rate) < 1:
        each = np.array([_divergence(order, multiplier, rate) for order in _QUICK.tolist()])
    return lambda rounds: float(compute_epsilon(_QUICK, rounds * each, delta)[0])


def _divergence(order: int, multiplier: float, rate: float) -> float:
    k = np.arange(order + 1)
    ways = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    taken = (order - k) * math.log1p(-rate) + k * math.log(rate)
    return float(logsumexp(ways + taken + (k * k - k) / (2 * multiplier**2))) / (order - 1)


@lru_cache(maxsize=1024)
def rdp_multiplier(epsilon: float, delta: float, rounds: int = 1, rate: float = 1.0) -> float:
    """Return the smallest noise multiplier for ``epsilon`` by ``rdp_epsilon``, within 2e-4 above.

    Parameters are those of ``accounting.gaussian_multiplier``. Raises InputError in the same cases.
    """
    tight = gaussian_multiplier(epsilon, delta, rounds, rate)

    def excess(multiplier: float) -> float:
        return math.log(max(rdp_epsilon(delta, multiplier, rounds, rate) / epsilon, 1e-9))

    high = 1.1 * tight
    while excess(high) > 0:
        high *= 1.5
    return private_side(excess, min(1.03 * tight, high), 0.99 * tight, high)
