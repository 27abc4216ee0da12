"""Attacks on a plan: how much epsilon its noise spends at least, found by experiment.

What is attacked: the noise that a `Plan` asks for, drawn by the code that a run uses (`Noise.draw`,
`mechanisms.choice`) and added to contributions that went through the
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

from fedcal.core.checks import InputError, integer
from fedcal.core.numerics import Floats, Integers, Purpose, Words, stream
from fedcal.mechanisms import Exponential, Laplace, Noise, Source, Unary, samplers, words_of
from fedcal.mechanisms.choice import draw_index, scores_of
from fedcal.privacy.noise_plan import Plan
from fedcal.units import Bound, encode_bounded

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
        integer("trials", len(world), _LEAST_TRIALS)
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
    (`Plan.diameter` 2), else zero. Noise on a sum: a change that uses up all norms in the first
    number of each group. The exponential mechanism: changes that improve the favoured candidates
    and worsen all others. Unary encoding: two different one-hot answers.
    """
    bound, mechanism = _bound_of(plan), plan.mechanism
    if isinstance(mechanism, Unary):
        if bound.length < 2:
            raise InputError("unary encoding of one number has no pair of one-hot answers")
        return np.eye(bound.length)[0], np.eye(bound.length)[1]
    change = np.zeros(bound.length)
    if bound.rule == "joint":
        change[0] = 1.0
    else:
        change[bound.firsts if bound.rule == "per_block" else slice(None)] = 1.0
    if isinstance(mechanism, Exponential):
        change[: _favoured(bound)[1]] *= -1.0
    change *= bound.scale
    return change, -change if plan.diameter == 2 else np.zeros_like(change)


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
    integer("trials", trials, _LEAST_TRIALS)
    source = None
    if plan.federation.noise_source == "seeded":
        source = stream(seed, Purpose.NOISE, 0, f"audit {plan.key} {present}")
    words = encode_bounded(np.stack(pair or worst_pair(plan)), bound, plan.ring)
    if isinstance(plan.mechanism, Exponential):
        return _drawn(plan, plan.mechanism, words, present, trials, source)
    mine = words[0 if present else 1]
    if isinstance(plan.mechanism, Unary):
        return _encoded(plan, plan.mechanism, words, mine, trials, source)
    return _distinguished(plan, words, mine, trials, source)


def _coins(plan: Plan, trials: int, source: Source) -> NDArray[np.bool_]:
    """Return whether the unit takes part in each run, given the attacker's knowledge, (trials,)."""
    return np.asarray(samplers.bernoulli(plan.amplifying_rate, trials, words_of(source)))


def _distinguished(plan: Plan, words: Words, mine: Words, trials: int, source: Source) -> Floats:
    """Return the log-likelihood ratio of all releases, or the number if there is only one."""
    noise, ring, rate = plan.noise, plan.ring, plan.amplifying_rate
    if noise is None:
        raise InputError(f"'{plan.mechanism.name}' adds no noise")
    a, b = ring.decode(words)
    scales = np.repeat(noise.scales, noise.lengths) * ring.grid
    seen = np.zeros(trials)
    for _ in range(plan.rounds):
        sent = np.where(_coins(plan, trials, source)[:, None], mine, np.uint64(0))
        for _ in range(plan.shares):
            sent = ring.add(sent, _wide(noise, trials, source))
        x = ring.decode(sent)
        if plan.rounds == 1 and words.shape[1] == 1:
            return np.asarray(x[:, 0])
        if isinstance(plan.mechanism, Laplace):
            ratio = ((np.abs(x - b) - np.abs(x - a)) / scales).sum(axis=1)
        else:
            ratio = ((x - (a + b) / 2) * (a - b) / scales**2).sum(axis=1)
        seen += ratio if rate == 1 else np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)
    # values that are equal up to rounding must not become different events
    return np.asarray(np.round(seen, 9))


def _wide(noise: Noise, trials: int, source: Source) -> Integers:
    """Return `trials` draws of one noise, (trials, length), as one draw of longer blocks."""
    lengths = tuple(n * trials for n in noise.lengths)
    long = Noise(noise.mechanism, lengths, noise.scales, noise.shares)
    blocks = np.split(long.draw(source), np.cumsum(lengths)[:-1])
    return np.concatenate([block.reshape(trials, -1) for block in blocks], axis=1)


def _drawn(
    plan: Plan, mechanism: Exponential, words: Words, present: bool, trials: int, source: Source
) -> Floats:
    """Return whether a candidate was drawn that the unit improved, (trials,)."""
    bound = _bound_of(plan)
    few, numbers = _favoured(bound)
    # Sums of the other units: the favoured are best with the unit, the rest without it.
    change, instead = words.view(np.int64)
    base = -instead.copy()
    base[:numbers] = -change[:numbers]
    mine = change if present else instead
    norm = max(bound.norms) * plan.diameter
    coins = _coins(plan, trials, source)
    with_it, without = (
        scores_of(plan.ring.decode(w.view(np.uint64)), bound) for w in (base + mine, base)
    )
    drawn = [
        draw_index(with_it if coin else without, mechanism.epsilon, norm, source) for coin in coins
    ]
    return np.asarray((np.array(drawn) < few).astype(np.float64))


def _favoured(bound: Bound) -> tuple[int, int]:
    """Return the size of the favoured seventh of the candidates: (candidates, numbers)."""
    candidates = len(bound.lengths) if bound.rule == "per_block" else bound.length
    few = max(1, candidates // 7)
    return few, sum(bound.lengths[:few]) if bound.rule == "per_block" else few


def _encoded(
    plan: Plan, mechanism: Unary, words: Words, mine: Words, trials: int, source: Source
) -> Floats:
    """Return the bit of this world's cell minus that of the other world's, (trials,)."""
    noise = mechanism.noise_of(np.zeros(0), plan.ring.grid, _bound_of(plan), 1)
    if noise is None:
        raise InputError(f"'{mechanism.name}' encodes nothing")
    sent = [mechanism.client(mine, plan.ring, noise, source) for _ in range(trials)]
    there, gone = plan.ring.decode(words)
    return np.asarray((plan.ring.decode(np.stack(sent)) * (there - gone)).sum(axis=1))
