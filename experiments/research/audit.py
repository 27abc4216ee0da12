"""Attacks on a plan: how much epsilon its noise spends at least, found by experiment.

What is attacked: the noise that a `Plan` asks for, drawn by the code that a run uses (`Noise.draw`,
`mechanisms.exponential`, `mechanisms.unary`) and added to contributions that went through the
clipping that a run uses (`encode_bounded`). Two inputs that differ in one protected unit are given
to it many times over; whoever can tell their outputs apart has shown that epsilon is at least so
much. The units, and which inputs are neighbours, are the plan's:

* unit "user", zero-out: one client's contribution, as large as its bound lets it be, or zero;
* unit "user", replace (trust `local`): that contribution, or its opposite;
* unit "example" or "subject": what one row, or all of a subject, adds, as large as its bound lets
  it be, or nothing; where a client's contribution is not a sum over rows, one end of the client's
  bound or the other.

Who attacks: under trust `central` a reader of all releases, who knows all other rows; under
`distributed` the server, which sees the sum of the contributions of just as many clients as the
quorum asks for (with more there is more noise); under `local` the server, which sees the one
contribution. With sampling the attacker does not know whether the unit took part. Seeds are never
known.

What it shows: `epsilon_lower_bound` is above the true epsilon with probability `error` at most, so
a bound above the claim is a proof (but for that error) that the claim is false. A bound below the
claim proves nothing: another attack, another pair of inputs or a rare event may be worse.

Source: Jagielski, Ullman & Oprea 2020 (Auditing differentially private machine learning) for the
bound from two error rates by Clopper & Pearson 1934; here the event is chosen on one half of the
trials and its rates are taken from the other half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from fedcal.core.checks import whole
from fedcal.core.errors import InputError
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats
from fedcal.mechanisms import View
from fedcal.privacy.noise_plan import Plan
from fedcal.units.bounding import Bound, encode_bounded

__all__ = ["Finding", "attack", "audit", "epsilon_lower_bound", "worst_pair"]

_LEAST_TRIALS = 100

_LEVELS = np.concatenate([[3e-4, 1e-3, 3e-3, 0.01, 0.02], np.linspace(0.04, 0.96, 24)])
_EDGES = np.concatenate([_LEVELS, 1.0 - _LEVELS[:5]])  # of the events, as quantiles
_SELECTING = 3.0  # standard errors by which an event must be good on the first half


@dataclass(frozen=True)
class Finding:
    """Result of an audit.

    Attributes
    ----------
    lower_bound
        epsilon is at least this, at the plan's delta
    claimed
        the plan's epsilon
    delta
        the plan's
    trials
        runs in each of the two worlds
    error
        probability at most that the true epsilon is below `lower_bound`
    """

    lower_bound: float
    claimed: float
    delta: float
    trials: int
    error: float

    @property
    def refuted(self) -> bool:
        """True if the claim is false (but for `error`); False proves nothing."""
        return self.lower_bound > self.claimed


def audit(
    plan: Plan,
    trials: int,
    *,
    error: float = 1e-3,
    seed: int = 0,
    pair: tuple[Floats, Floats] | None = None,
) -> Finding:
    """Attack a private plan on a pair of neighbours; see the module for who attacks what.

    Parameters
    ----------
    plan
        with differential privacy
    trials
        runs in each world, of which the attacker learns from one half
    error
        of the lower bound; with m audits take a total of `error` / m for each (Bonferroni)
    seed
        of the trials, for a plan with seeded noise
    pair
        the unit's contributions (length,) in the two worlds, in the statistic's own units, which
        are clipped to the bound; None = `worst_pair`

    Raises
    ------
    InputError
        If the plan has no privacy, or for too few trials.
    """
    present, absent = (
        attack(plan, trials, present=there, seed=seed, pair=pair) for there in (True, False)
    )
    bound = epsilon_lower_bound(present, absent, plan.delta, error)
    return Finding(bound, plan.epsilon, plan.delta, trials, error)


def epsilon_lower_bound(
    present: ArrayLike, absent: ArrayLike, delta: float = 0.0, error: float = 1e-3
) -> float:
    """Lower confidence bound on epsilon from an attacker's number in two worlds.

    On the first half of the trials an interval is chosen in which one world's numbers lie far more
    often than the other's. Of the second half only the two rates of that interval are used: one
    from below, one from above, each with confidence 1 - error / 2 (Clopper & Pearson).

    Parameters
    ----------
    present, absent
        (trials,) one number of each independent run
    delta
        at which epsilon is bounded

    Returns
    -------
    float
        At least 0; (epsilon, delta)-DP with a smaller epsilon would give so much with probability
        `error` at most.
    """
    worlds = [np.asarray(present, np.float64), np.asarray(absent, np.float64)]
    for world in worlds:
        whole("trials", len(world), _LEAST_TRIALS)
    if not 0 < error < 1:
        raise InputError(f"error must be in (0, 1), got {error!r}")
    first = [world[: len(world) // 2] for world in worlds]
    rest = [world[len(world) // 2 :] for world in worlds]
    likely, low, high = _choose(first, delta)
    hits = int(_inside(rest[likely], low, high).sum())
    alarms = int(_inside(rest[1 - likely], low, high).sum())
    return _bound(hits, len(rest[likely]), alarms, len(rest[1 - likely]), delta, error)


def _choose(worlds: list[Floats], delta: float) -> tuple[int, float, float]:
    """Return the likelier world of the best interval (low, high], and the interval."""
    pooled = np.concatenate(worlds)
    inner = np.unique(np.quantile(pooled, np.sort(_EDGES), method="lower"))
    edges = np.concatenate([[-math.inf], inner, [math.inf]])
    below = [np.searchsorted(np.sort(world), edges, side="right") for world in worlds]
    i, j = np.triu_indices(len(edges), 1)
    best = (-math.inf, 0, -math.inf, math.inf)
    for likely in (0, 1):
        p, q = ((below[w][j] - below[w][i]) / len(worlds[w]) for w in (likely, 1 - likely))
        n, m = len(worlds[likely]), len(worlds[1 - likely])
        sure = p - _SELECTING * np.sqrt(p * (1 - p) / n) - delta
        alarm = q + _SELECTING * np.sqrt(q * (1 - q) / m) + _SELECTING**2 / m
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(sure > 0, np.log(np.maximum(sure, 1e-300) / alarm), -math.inf)
        k = int(gain.argmax())
        best = max(best, (float(gain[k]), likely, float(edges[i[k]]), float(edges[j[k]])))
    return best[1:]


def _inside(world: Floats, low: float, high: float) -> NDArray[np.bool_]:
    return np.asarray((world > low) & (world <= high))


def _bound(hits: int, n: int, alarms: int, m: int, delta: float, error: float) -> float:
    if hits == 0 or alarms == m:
        return 0.0
    hit = float(stats.beta.ppf(error / 2, hits, n - hits + 1))
    alarm = float(stats.beta.isf(error / 2, alarms + 1, m - alarms))
    return max(0.0, math.log((hit - delta) / alarm)) if hit > delta else 0.0


# --- the two worlds -----------------------------------------------------------------------------


def worst_pair(plan: Plan) -> tuple[Floats, Floats]:
    """Return the unit's contributions in the two worlds, (length,) each, easiest to tell apart.

    The other world's is the opposite where a neighbour may be any other contribution
    (`Plan.diameter` 2, unary encoding), else zero; see `Mechanism.worst_pair`.
    """
    return plan.law.worst_pair(_bound_of(plan), plan.diameter == 2)


def _bound_of(plan: Plan) -> Bound:
    if plan.bound is None:
        raise InputError("a plan without privacy claims nothing that could be attacked")
    return plan.bound


# --- attacks ------------------------------------------------------------------------------------


def attack(
    plan: Plan,
    trials: int,
    *,
    present: bool,
    seed: int = 0,
    pair: tuple[Floats, Floats] | None = None,
) -> Floats:
    """Return the attacker's number in each of `trials` runs of one world, (trials,).

    For noise on a sum it is the log-likelihood ratio of all that is released (of the noise that the
    plan claims), or the released number itself if there is but one. For the exponential mechanism:
    whether one of those candidates was drawn that are better in the world `present`. For unary
    encoding: the bit of that world's cell minus that of the other's.

    Parameters
    ----------
    present
        which of the two worlds
    seed, pair
        as in `audit`
    """
    bound = _bound_of(plan)
    whole("trials", trials, _LEAST_TRIALS)
    source = None
    if plan.noise_source == "seeded":
        source = stream(seed, Purpose.NOISE, 0, f"audit {plan.key} {present}")
    view = View(
        bound=bound,
        diameter=plan.diameter,
        ring=plan.ring,
        rounds=plan.rounds,
        shares=plan.shares,
        noise=plan.noise,
        words=encode_bounded(np.stack(pair or worst_pair(plan)), bound, plan.ring),
        present=present,
        rate=plan.amplifying_rate,
        trials=trials,
        source=source,
    )
    return plan.law.attack(view)
