"""Noise that a privacy budget requires.

There are three separate steps: *describe* a mechanism (a noise multiplier, a number of rounds, a
sampling rate), *account* for it (``gaussian_delta``, dp-accounting's PLD) and *invert* the
accounting (``gaussian_multiplier``, ``exponential_epsilon``). Every inversion ends on the private
side of its target: the accountant confirms that the returned noise meets it.

Units. A *noise multiplier* is the standard deviation of the noise per unit of L2 sensitivity: the
noise added to a sum is ``multiplier * sensitivity``, where the sensitivity is defined by the method
(``bounding``). ``epsilon`` is in nats and covers all ``rounds`` releases together.

Adjacency: zero-out, one user's shard replaced by the empty one while the number K of enrolled users
stays public. The empty shard contributes the zero vector, so sensitivities and privacy losses are
those of adding or removing one user (dp-accounting's ``REPLACE_SPECIAL`` and ``ADD_OR_REMOVE_ONE``
build the same loss distribution).

==================================  ===============  =========================================
case                                exact?           source
==================================  ===============  =========================================
every user in every round (rate 1)  closed form      Balle & Wang 2018, Theorem 8
Poisson-sampled users, one round    closed form      Balle, Barthe & Gaboardi 2018, Theorem 8
Poisson-sampled users, more rounds  PLD, rounded up  dp-accounting (Doroshenko et al. 2022)
==================================  ===============  =========================================

RDP is looser.
"""

import math
from collections.abc import Callable
from functools import lru_cache

from scipy.special import erfc, erfcx

from fedcal.core.checks import InputError, fraction, integer, positive

# PLD arithmetic. The grid is a small fraction of one round's part of epsilon: its rounding inflates
# the variance of the loss by R h^2 / 4, which at this fraction moves epsilon by less than 1e-4.
_GRID_FRACTION = 0.005
_GRID_POINTS = 200_000  # ... unless that needs more points than this in one round (then coarser)
_GRID_WIDEST = 1.0  # nats; the library takes exp(grid)
_LOSS_TAIL = 10.0  # standard deviations of noise that the library keeps: exp(-50)
# FFT rounding is not part of the library's pessimism. Against the closed form it was up to
# 5e-15 of delta in 1000 rounds and 5e-14 in 5000, so this much (for 1000 rounds or fewer; more in
# proportion) is subtracted from the target first, and a delta of less than 20 times it is refused.
_FFT_SLACK = 5e-14
# Beyond this epsilon (nats) the grid of a loss would fill the memory, and nothing is private.
_LARGEST_EPSILON = 1e6
# The search stops when epsilon is met and less than this fraction of it is left.
_SLACK = 2e-4
_MOST_STEPS = 60


# --- checks of arguments ------------------------------------------------------------------------


def check_delta(delta: float) -> float:
    """Return ``delta`` as a float; InputError unless 0 < delta < 1 (Gaussian noise needs it)."""
    if delta == 0:
        raise InputError(
            "delta = 0 is not possible with Gaussian noise: take fedoneshot or another pure-DP "
            "method, or a delta above 0"
        )
    return fraction("delta", delta)


def check_rate(rate: float) -> float:
    """Return the sampling ``rate`` as a float; InputError unless 0 < rate <= 1."""
    return fraction("the sampling rate", rate, "(]")


def _check_amplified(delta: float, rounds: int, rate: float) -> None:
    """Refuse a plan in which Poisson sampling is meaningless, or the PLD arithmetic is unsafe."""
    least = 20 * _fft_slack(rounds) if rounds > 1 else 0.0
    if not least <= delta < rate:
        raise InputError(
            f"delta must be below the sampling rate {rate} (or a sampled user's data could be "
            f"released without any noise), and at least {least:g} to account for {rounds} rounds "
            f"at a rate below 1; got {delta}"
        )


def _fft_slack(rounds: int) -> float:
    return _FFT_SLACK * max(1.0, rounds / 1000)


# --- account: all users in every round ----------------------------------------------------------


def gaussian_delta(epsilon: float, multiplier: float, rounds: int = 1) -> float:
    """Return the smallest delta for which unsampled Gaussian noise is (epsilon, delta)-DP: exact.

    ``rounds`` releases compose to one Gaussian release of sensitivity sqrt(rounds) / multiplier, so
    this is tight for them, also if each query depends on earlier answers.

    It is Phi(mu/2 - x) - e^eps Phi(-mu/2 - x) with mu that sensitivity and x = eps/mu. As
    erfc(v) = exp(-v^2) erfcx(v) and v^2 - u^2 = eps, both terms share one factor, so e^eps is never
    formed and tails keep their relative precision.

    Parameters
    ----------
    epsilon
        Finite, above 0 (nats), for all rounds together.
    multiplier
        Noise standard deviation per unit of L2 sensitivity, in each round.
    rounds
        Number of releases, at least 1.

    Returns
    -------
    float
        In [0, 1]; 0 where the true value is below the smallest float.

    Raises
    ------
    InputError
        For a value outside of these ranges.

    Source
    ------
    Balle & Wang 2018 (Improving the Gaussian mechanism), Theorem 8; Dong, Roth & Su 2022 for the
    composition.
    """
    epsilon, multiplier = positive("epsilon", epsilon), positive("a noise multiplier", multiplier)
    mu = math.sqrt(integer("rounds", rounds, 1)) / multiplier
    x = epsilon / mu
    u, v = (x - mu / 2) / math.sqrt(2), (x + mu / 2) / math.sqrt(2)
    shared = 0.5 * math.exp(-u * u)
    if u > 0:
        return float(shared * (erfcx(u) - erfcx(v)))
    return float(0.5 * erfc(u) - shared * erfcx(v))


# --- account: Poisson-sampled users -------------------------------------------------------------


def exponential_epsilon(epsilon: float, rate: float) -> float:
    """Return the pure epsilon of a mechanism whose Poisson-sampled release is epsilon-DP.

    It is log(1 + (e^epsilon - 1) / rate), for *one* release; at rate 1 it is epsilon itself. It is
    the complete plan of a pure-DP mechanism on sampled users (the exponential mechanism of
    FedOneShot).

    Source
    ------
    Balle, Barthe & Gaboardi 2018 (Privacy amplification by subsampling), Theorem 8 with delta = 0.
    """
    epsilon, rate = positive("epsilon", epsilon), check_rate(rate)
    if rate == 1:
        return epsilon
    if epsilon < 1:
        return math.log1p(math.expm1(epsilon) / rate)
    return epsilon - math.log(rate) + math.log1p((rate - 1) * math.exp(-epsilon))


def _amplified(epsilon: float, rate: float) -> float:
    """Return log(1 + rate (e^epsilon - 1)), without forming e^epsilon where it is large."""
    if epsilon < 1:
        return math.log1p(rate * math.expm1(epsilon))
    return epsilon + math.log(rate + (1 - rate) * math.exp(-epsilon))


def _grid(epsilon: float, multiplier: float, rounds: int, rate: float) -> float:
    """Return the width (nats) of the PLD grid near ``epsilon``; any width gives a valid bound."""
    worst = _LOSS_TAIL / multiplier + 0.5 / multiplier**2  # largest loss of one unsampled round
    points = _amplified(worst, rate) / _GRID_POINTS
    return min(max(_GRID_FRACTION * epsilon / math.sqrt(rounds), points), _GRID_WIDEST)


def _pld_epsilon(delta: float, multiplier: float, rounds: int, rate: float, grid: float) -> float:
    """Return an upper bound of epsilon from one run of dp-accounting's PLD accountant (seconds)."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(
        # zero-out; for additive noise the same loss distributions as ADD_OR_REMOVE_ONE
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
        value_discretization_interval=grid,
    )
    one = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    accountant.compose(dp_accounting.SelfComposedDpEvent(one, rounds))
    return float(accountant.get_epsilon(delta - _fft_slack(rounds)))


# --- invert -------------------------------------------------------------------------------------


def gaussian_multiplier(epsilon: float, delta: float, rounds: int = 1, rate: float = 1.0) -> float:
    """Return the smallest noise multiplier for which ``rounds`` releases are (epsilon, delta)-DP.

    The result meets the budget: ``gaussian_delta(epsilon, result, rounds) <= delta`` at rate 1;
    below it by the closed form for one round, and by dp-accounting's PLD accountant
    (connect-the-dots, relation ``REPLACE_SPECIAL``: zero-out), which is rounded up, for more.

    Sampled, it is valid only if each user really is sampled independently in each round, and
    against readers of the output: it does not hide from the server who took part. Unlike the closed
    form it may not be stopped early or extended adaptively: all ``rounds`` are charged together.

    Parameters
    ----------
    epsilon, delta
        The budget of all rounds together: epsilon finite and above 0, delta in (0, 1).
    rounds, rate
        Number of releases (at least 1) and Poisson sampling rate in (0, 1]. Below 1, delta must be
        below the rate, and for more than one round at least 1e-12 (1e-15 a round from 1000 on).

    Returns
    -------
    float
        Noise standard deviation per unit of L2 sensitivity, in each round. At rate 1 or for one
        round it is the root to floating point; else within 2e-4 above the accountant's own.

    Raises
    ------
    InputError
        For a value outside of these ranges.

    Notes
    -----
    The sampled case takes tenths of a second; the process remembers it.
    """
    epsilon, delta = positive("epsilon", epsilon), check_delta(delta)
    rounds, rate = integer("rounds", rounds, 1), check_rate(rate)
    if rate < 1:
        _check_amplified(delta, rounds, rate)
    if rate == 1 or epsilon > _LARGEST_EPSILON:
        return _gaussian_multiplier(epsilon, delta, rounds)  # sampling never costs anything
    return _amplified_multiplier(epsilon, delta, rounds, rate)


@lru_cache(maxsize=1024)
def _gaussian_multiplier(epsilon: float, delta: float, rounds: int) -> float:
    def enough(multiplier: float) -> bool:
        return gaussian_delta(epsilon, multiplier, rounds) <= delta

    high = 1.0
    while not enough(high):
        high *= 2
    while enough(high / 2):
        high /= 2
    low = high / 2
    while low < (middle := (low + high) / 2) < high:  # the smallest float that is enough
        if enough(middle):
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=256)
def _amplified_multiplier(epsilon: float, delta: float, rounds: int, rate: float) -> float:
    # One of these rounds alone has to meet the target too, and for it the account is exact ...
    low = _gaussian_multiplier(exponential_epsilon(epsilon, rate), delta / rate, 1) * (1 + 1e-12)
    if rounds == 1:
        return low
    # ... and sampling never costs anything.
    high = _gaussian_multiplier(epsilon, delta, rounds)

    def excess(multiplier: float) -> float:
        """Return log(spent / target): above 0 the multiplier is too small."""
        grid = _grid(epsilon, multiplier, rounds, rate)
        spent = _pld_epsilon(delta, multiplier, rounds, rate, grid)
        return math.log(max(spent / epsilon, 1e-9))

    # Central limit of many sampled rounds (Dong, Roth & Su 2022, section 4): rate^2 R
    # (exp(1/sigma^2) - 1) = mu^2, where R / high^2 = mu^2 belongs to the unsampled plan.
    guess = 1 / math.sqrt(math.log1p((1 / (rate * high)) ** 2))
    return private_side(excess, max(guess, 1.1 * low), low, high)


def private_side(excess: Callable[[float], float], guess: float, low: float, high: float) -> float:
    """Return a multiplier in [low, high] with -_SLACK <= excess <= 0, in few evaluations.

    ``excess`` falls with the multiplier, is log_odds to be above 0 at ``low`` and at most 0 at
    ``high``, and costs a PLD each time: walk out from ``guess`` until the root is bracketed, then
    regula falsi in log multiplier (Illinois), aimed at the middle of the tolerance.
    """
    bottom, top = math.log(low), math.log(high)
    a, b = bottom, top  # a too small, b enough
    f_a = f_b = math.nan  # not evaluated yet
    x, step, side = math.log(guess), 0.02, 0
    for _ in range(_MOST_STEPS):
        x = min(max(x, a), b)
        if x in (a, b):  # ran into an end, or the bracket is closed
            if b - a < 1e-9:
                break
            x = (a + b) / 2
        f = excess(math.exp(x))
        if -_SLACK <= f <= 0:
            return math.exp(x)
        f += _SLACK / 2
        if f > 0:
            a, f_a, moved = x, f, 1
        else:
            b, f_b, moved = x, f, -1
        if math.isnan(f_a) or math.isnan(f_b):
            # epsilon falls at least as fast as the multiplier grows, so |f| is more than enough
            x += moved * max(step, min(abs(f), 0.5))
            step *= 2
            continue
        if moved == side == 1:
            f_b /= 2
        elif moved == side == -1:
            f_a /= 2
        side = moved
        x = (a * f_b - b * f_a) / (f_b - f_a)
    return math.exp(b)
