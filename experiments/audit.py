"""Audit of runs: what they promise, measured on themselves.

A run of a method is watched (`watch`) in the engine that others use. Three parts together are its
epsilon:

* **Sensitivity** (`Run.attained`): neighbours go through the client's code without noise. The worst
  change of the encoded sum among many pairs of data sets, in the norm of the mechanism and in units
  of the noise that is drawn, is divided by the change that a release's epsilon is for: 1 at most,
  and 1 where the bound is tight.
* **Noise** (`check_noise`): what is released minus the exact sum, or what each client adds, in
  steps of the grid, against the exact law: scale, shape, and independence of coordinates, rounds
  and clients. With `values_needed` noise of .95 of the due standard deviation is found.
* **Account** (`Run.spent`): epsilon of the releases that were charged, at the change of the first
  part, by composition or dp-accounting's PLD accountant; and how many took part (`Run.taken`).

Beside them an attack on the noise of pure mechanisms: `epsilon_lower_bound` is above the true
epsilon with probability `error` at most. A bound below the claim proves nothing.

Source: Jagielski, Ullman & Oprea 2020 (Auditing differentially private machine learning) for the
bound from two error rates by Clopper & Pearson 1934; here the event is chosen on one half of the
trials and its rates are taken from the other half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from scipy import stats

from experiments.studies.spec import Record
from fedcal.clients.answers import contribute
from fedcal.core.numerics import Floats, Integers, Purpose, Words, stream
from fedcal.core.shards import Shards
from fedcal.mechanisms import Unary
from fedcal.mechanisms.choice import scores_of
from fedcal.partition import numbered
from fedcal.privacy import Ledger, Plan
from fedcal.privacy.curator import OpenRound, Release
from fedcal.privacy.query import Request
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import FederatedStrategy

GAPS = (0.01, 1.0, 5.0, 40.0, 400.0, -5.0, -400.0)
"""Distances of a logit from all others, in rows of the neighbours."""

COPIES = 60
"""Rows of each kind of a client, or a subject, that uses up its bound."""

_EDGES = stats.norm.cdf(np.linspace(-3.4, 3.4, 35))
"""Quantiles that are edges of cells and events."""


# --- a run that is watched ----------------------------------------------------------------------


@dataclass
class Run:
    """A run of a method, and what was seen of it.

    Attributes
    ----------
    plan
        of the run
    asked
        request of each round
    exact
        of each round the exact sum, in steps of the grid, (1, length); where clients add noise the
        exact answers, (clients, length)
    noise
        of each round what was added to these
    attained
        of each round the worst change over the allowed one, where neighbours were asked for
    taken
        of each round how many clients (or rows) took part, and how many could
    worst
        of a draw the sum of all clients with the unit of the worst pair
    releases
        number of rounds that were charged
    """

    plan: Plan
    asked: list[Request] = field(default_factory=list)
    exact: list[Integers] = field(default_factory=list)
    noise: list[Integers] = field(default_factory=list)
    attained: list[float] = field(default_factory=list)
    taken: list[tuple[int, int]] = field(default_factory=list)
    worst: Floats = field(default_factory=lambda: np.zeros(0))
    releases: int = 0

    @property
    def spent(self) -> float:
        """Epsilon of the releases, at the plan's delta and rate."""
        plan, mechanism, rate = self.plan, self.plan.mechanism, self.plan.amplifying_rate
        each, change = self.releases // plan.parts, max(self.attained)
        if mechanism.pure:
            return each * math.log1p(rate * math.expm1(change * mechanism.epsilon))
        one = PoissonSampledDpEvent(rate, GaussianDpEvent(mechanism.multiplier / change))
        return float(PLDAccountant().compose(one, each).get_epsilon(plan.delta))


def watch(make: Callable[..., FederatedStrategy], shards: Shards, neighbours: float = 0) -> Run:
    """Run a private method with seeded coins, and watch it.

    Parameters
    ----------
    make
        the method, of its `ledger`
    shards
        rows of the clients; all have those of the first, of one kind where rows are sampled
    neighbours
        number of rounds in which the worst pair is looked for
    """
    ledger = Ledger(None, 1e6, 0.5)
    method = make(ledger=ledger)
    run, plan = Run(method.plan), method.plan
    rows = int(shards.rows[0]) if plan.row_rate < 1 else 1

    def sum_of(asked: OpenRound, alive: Integers) -> Words:
        request, mine = asked.request, shards.take(alive)
        exact = contribute(mine, replace(request, noise=None), alive).view(np.int64)  # same coins
        sent, one = contribute(mine, request, alive), _answers(request, shards.block(0, 1))[0]
        at, by_client = int(np.abs(one).argmax()), plan.model.noise_by == "client"
        many = round(float(exact[:, at].sum() * rows / (one[at] or 1)))
        run.taken.append((many, rows * shards.clients // plan.parts))
        run.asked.append(request)
        run.exact.append(exact if by_client else exact.sum(axis=0, keepdims=True))
        if by_client:
            run.noise.append(sent.view(np.int64) - exact)
        if len(run.attained) < neighbours:
            run.attained.append(_attained(run, request))
        return np.asarray(sent.sum(axis=0, dtype=np.uint64))

    def on_release(release: Release) -> None:
        if plan.model.noise_by == "server" and plan.noise is not None:
            run.noise.append(np.rint(release.values / plan.grid).astype(np.int64) - run.exact[-1])

    method.on_release = on_release
    run_inline(method, shards, sum_of=sum_of)
    run.releases = max(method.released, *(len(entry.charged) for entry in ledger.entries()))
    return run


# --- neighbours ---------------------------------------------------------------------------------


def _answers(request: Request, shards: Shards) -> Integers:
    """Return each client's encoded answer without noise, in steps, (clients, length)."""
    bare = replace(request, noise=None, rate=1.0, row_rate=1.0)
    return contribute(shards, bare, np.arange(shards.clients)).view(np.int64)


def _attained(run: Run, request: Request) -> float:
    """Return the largest change by a neighbour, over the one that a release's epsilon is for."""
    plan, mechanism, classes = run.plan, run.plan.mechanism, run.plan.federation.classes
    sets, x, y = _neighbours(plan)
    found = _answers(request, rows_of(sets, classes))
    if isinstance(mechanism, Unary):
        return float((found[x] != found[y]).sum(axis=1).max() / 2)
    if plan.noise is None:  # by how much the changes of two costs differ, whoever else answers
        far, others = 0.0, rows_of([(unit, ()) for unit in _clients(classes)], classes)
        for rest in (plan.clients - 1) * _answers(request, others):
            sums = (rest + found) * plan.grid
            costs = np.stack([_costs(plan, request, one) for one in sums])
            ranges = np.ptp(costs[x] - costs[y], axis=1) / mechanism.epsilon
            if ranges.max() > far:
                far, at = float(ranges.max()), int(ranges.argmax())
                run.worst = sums[x[at]]
        return far
    scaled = found / np.repeat(plan.noise.scales, plan.noise.lengths)
    pairs = (scaled[i] - scaled[j] for i, j in zip(x, y, strict=True))
    far = max(float(np.linalg.norm(change, mechanism.order)) for change in pairs)
    return far * (mechanism.multiplier or 1.0 / mechanism.epsilon)


def _costs(plan: Plan, request: Request, sums: Floats) -> Floats:
    """Return minus the log-probabilities of a draw from exact sums, but for a constant."""
    costs, bound = request.query.costs(sums), request.bound
    costs = scores_of(sums, bound) if costs is None else costs
    return costs * plan.mechanism.epsilon / (2.0 * max(bound.norms) * plan.diameter)


def _clients(classes: int, copies: int = COPIES) -> list[list[int]]:
    """Return kinds of the rows of clients: of one kind each, then of one for each class."""
    kinds = np.arange(2 * classes * len(GAPS))
    mixed = np.tile(kinds.reshape(-1, classes), copies)
    return [*np.repeat(kinds[:, None], copies, axis=1).tolist(), *mixed.tolist()]


def _neighbours(plan: Plan) -> tuple[list[Any], Integers, Integers]:
    """Return data sets of a client for `rows_of`, and the places of both of each pair."""
    classes, per = plan.federation.classes, plan.protected.per
    rows, units = _clients(classes, 1)[: 2 * classes * len(GAPS)], _clients(classes)
    step = len(rows) if plan.bound is not None and plan.bound.per == per else classes
    if plan.adjacency == "replace":
        return [((), unit) for unit in units], *np.indices([len(units)] * 2).reshape(2, -1)
    bases = [[], *([] if per == "client" else rows[::step])]  # few if units are clipped apart
    units = rows if per == "row" else units
    sets = [*product(bases, [()]), *product(bases, units)]
    return sets, np.arange(len(bases), len(sets)), np.repeat(np.arange(len(bases)), len(units))


def rows_of(sets: Sequence[tuple[Sequence[int], Sequence[int]]], classes: int) -> Shards:
    """Return rows of a client for each data set: kinds of others' rows, and of the unit's.

    A row of kind k has one of `GAPS` between the logit of class k % classes and all others, and
    this class for a label, or the next one.
    """
    kinds = np.array([kind for both in sets for part in both for kind in part], np.int64)
    sizes = np.array([[len(part) for part in both] for both in sets])
    top, ours = kinds % classes, np.repeat(np.tile([False, True], len(sets)), sizes.ravel())
    return Shards(
        np.eye(classes)[top] * np.array(GAPS)[kinds // (2 * classes)][:, None],
        (top + kinds // classes % 2) % classes,
        np.cumsum([0, *sizes.sum(axis=1)]),
        subjects=np.where(ours, -1, np.arange(len(kinds))),
        names=numbered(1) * len(sets),
    )


# --- noise --------------------------------------------------------------------------------------


def check_noise(runs: Sequence[Run], draws: int = 0) -> Record:
    """Hold the noise of runs of one plan, with different seeds, against its law.

    Raises ValueError if blocks have noise of different scales.

    Parameters
    ----------
    draws
        number of draws of an index, from the sum of the first run's worst pair

    Returns
    -------
    dict
        `values`, their number; `std`, the root of their mean square over the due one; `at_least`,
        its lower confidence bound of 99 %; `p`, the probability at most that noise of the due law
        is as far from it in any of the tests
    """
    run, plan, mechanism = runs[0], runs[0].plan, runs[0].plan.mechanism
    if plan.noise is None:
        request, seeded = run.asked[0], plan.federation.noise_source == "seeded"
        of = plan.sum_of(request.bound, plan.clients, request.query.costs)
        source = stream(plan.federation.seed, Purpose.NOISE, 0, "audit") if seeded else None
        each = [mechanism.release(run.worst, of, lambda: source)[0] for _ in range(draws)]
        costs = _costs(plan, request, run.worst)
        values, place = np.unique(costs, return_inverse=True)
        chances = np.bincount(place, np.exp(costs.min() - costs))
        shape: Any = stats.rv_discrete(values=(values, chances / chances.sum()))
        return _tested((costs[np.concatenate(each).astype(np.int64)], shape, 1))
    noise, exact, (scale,) = _all(runs, "noise"), _all(runs, "exact"), {*plan.noise.scales}
    if isinstance(mechanism, Unary):
        bits = (((noise + exact)[exact == k], p) for k, p in enumerate((scale, 0.5)))
        return _tested(*((each - p, stats.bernoulli(p, loc=-p), 1) for each, p in bits))
    shape = stats.dlaplace(1.0 / scale) if mechanism.tailed else stats.norm(0.0, scale)
    sums = noise.reshape(-1, plan.quorum, noise.shape[1]).sum(axis=1)
    return _tested((sums, shape, 1), *[(noise, shape, plan.quorum)] * (plan.quorum > 1))


def _all(runs: Sequence[Run], name: str) -> Floats:
    return np.concatenate([each for run in runs for each in getattr(run, name)]) * 1.0


def _tested(*samples: tuple[Floats, Any, int]) -> Record:
    """Test values against distributions; of shares of one only the scale is known."""
    ps, row = list[float](), Record()
    for values, shape, shares in samples:
        due, n = shape.moment(2), values.size
        error = math.sqrt((shares * (shape.moment(4) / due**2 - 3.0) + 2.0) / n) / 2.0
        std = math.sqrt(float((values**2).mean()) * shares / due)
        row = row or {"values": n, "std": std, "at_least": std - 2.3264 * error}  # of 99 %
        ps += [2.0 * float(stats.norm.sf(abs(std - 1.0) / (error or 1.0))), _echo(values)]
        if shares == 1:
            edges = np.unique(shape.ppf(_EDGES))
            chances = np.diff(shape.cdf(edges), prepend=0.0, append=1.0)
            cells = np.searchsorted(edges, values.ravel())
            far = (np.bincount(cells, minlength=len(chances)) - n * chances) ** 2
            ps.append(float(stats.chi2.sf((far / np.maximum(n * chances, 5)).sum(), len(edges))))
    return row | {"p": min(1.0, len(ps) * min(ps))}


def _echo(values: Floats) -> float:
    """Return the p-value of the largest correlation of values with others at one distance.

    Of ranks, one vector after another: what coordinates, rounds or clients share is an echo.
    """
    ranks = stats.rankdata(values) - (values.size + 1) / 2
    echo = np.fft.irfft(np.abs(np.fft.rfft(ranks)) ** 2, values.size)
    most = np.abs(echo[1 : values.size // 2 + 1]).max() / (echo[0] or 1.0)
    return min(1.0, values.size * float(stats.norm.sf(most * math.sqrt(values.size))))


def values_needed(found: float, level: float, kurtosis: float = 3.0) -> int:
    """Return how many values find noise of `found` times the due std, but for a chance of 1e-3.

    By a test of this level. A Gaussian value has 2 of Fisher's information about log std.
    """
    far = (stats.norm.isf(level / 2) + stats.norm.isf(1e-3)) / (1.0 - found)
    return math.ceil(far**2 * (kurtosis - 1.0) / 4.0)


# --- attacks on pure mechanisms -----------------------------------------------------------------


def attack(runs: Sequence[Run], error: float) -> float:
    """Return a lower bound on epsilon, of noise of a pure mechanism with one number changed.

    Half of the noise is that of each of two worlds, whose sums differ by `Run.attained`.
    """
    plan, noise, exact = runs[0].plan, _all(runs, "noise"), _all(runs, "exact")
    if isinstance(plan.mechanism, Unary):
        seen = noise[exact > 0] + 1.0 - noise[np.roll(exact, 1, axis=1) > 0]
        return epsilon_lower_bound(seen[::2], -seen[1::2], error=error)
    sums = noise.reshape(-1, plan.quorum, noise.shape[1]).sum(axis=1)
    sums = sums.reshape(len(runs), plan.rounds, -1) / (plan.noise.scales[0] if plan.noise else 1.0)
    change = max(runs[0].attained) * plan.mechanism.epsilon
    worlds = sums[:, :, ::2] + change, sums[:, :, 1::2]
    ratios = ((np.abs(x) - np.abs(x - change)).sum(axis=1).ravel() for x in worlds)
    return epsilon_lower_bound(*(np.round(ratio, 9) for ratio in ratios), error=error)


def epsilon_lower_bound(present: Floats, absent: Floats, *, error: float = 1e-3) -> float:
    """Lower confidence bound on a pure epsilon from an attacker's number in two worlds.

    On the first half of the trials a threshold is chosen above which numbers lie far more often
    where the unit is `present`. Of the second half only the two rates above it are used: one from
    below, one from above, each with confidence 1 - error / 2 (Clopper & Pearson).

    Parameters
    ----------
    present, absent
        (trials,) one number of each independent run

    Returns
    -------
    float
        At least 0; epsilon-DP with a smaller epsilon would give so much with probability `error` at
        most.
    """
    first, rest = zip(*(np.array_split(world, 2) for world in (present, absent)), strict=True)
    edges = np.unique(np.quantile(np.concatenate(first), _EDGES, method="lower"))
    p, q = (1.0 - np.searchsorted(np.sort(world), edges) / len(world) for world in first)
    far, near = (3.0 * np.sqrt(r * (1.0 - r) / len(first[0])) for r in (p, q))  # standard errors
    gain = np.maximum(p - far, 1e-300) / (q + near + 9.0 / len(first[0]))
    (hits, n), (alarms, m) = ((int((w >= edges[gain.argmax()]).sum()), len(w)) for w in rest)
    low = np.nan_to_num(stats.beta.ppf(error / 2, hits, n - hits + 1))
    high = np.nan_to_num(stats.beta.isf(error / 2, alarms + 1, m - alarms), nan=1.0)
    return max(0.0, math.log(max(float(low), 1e-300) / float(high)))
