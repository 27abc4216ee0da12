"""What a run promises, measured on the run itself: sensitivity, noise, number of releases.

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

Beside them an attack on pure mechanisms: `epsilon_lower_bound` is above the true epsilon with
probability `error` at most. A bound below the claim proves nothing.

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

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from numpy.typing import NDArray
from scipy import stats

from experiments.studies.spec import Record
from fedcal.clients.answers import contribute
from fedcal.core.numerics import Floats, Integers, Purpose, Words, stream
from fedcal.core.shards import Shards
from fedcal.mechanisms import Laplace, Unary
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

_TAIL = [3e-4, 1e-3, 3e-3, 0.01, 0.02]
_EDGES = np.array([*_TAIL, *np.linspace(0.04, 0.96, 24), *(1.0 - x for x in _TAIL[::-1])])
"""Of events and cells, as quantiles."""

_SELECTING = 3.0  # standard errors by which an event must be good on the first half

DataSet = tuple[Sequence[int], Sequence[int]]
"""Kinds of a client's rows: those of others than the unit, and those of the unit."""


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
        of each round the exact sum, in steps of the grid, (length,)
    noise
        of each round what was added, in steps, (vectors, length): to the sum, or by each client
    attained
        of each round the worst change over the allowed one, where neighbours were asked for
    worst
        of a draw the sums of all clients in its worst pair
    releases
        number of rounds that were charged
    taken, possible
        how many clients (or rows) took part in the rounds, and how many could
    """

    plan: Plan
    asked: list[Request] = field(default_factory=list)
    exact: list[Integers] = field(default_factory=list)
    noise: list[Integers] = field(default_factory=list)
    attained: list[float] = field(default_factory=list)
    worst: tuple[Floats, ...] = ()
    releases: int = 0
    taken: int = 0
    possible: int = 0

    @property
    def spent(self) -> float:
        """Epsilon of the releases, at the plan's delta and rate."""
        plan, mechanism, rate = self.plan, self.plan.mechanism, self.plan.amplifying_rate
        each, change = self.releases // plan.parts, max(self.attained)
        if mechanism.pure:
            return each * math.log1p(rate * math.expm1(change * mechanism.epsilon))
        one: Any = dp_accounting.GaussianDpEvent(mechanism.multiplier / change)
        one = dp_accounting.PoissonSampledDpEvent(rate, one) if rate < 1 else one
        account = PLDAccountant().compose(dp_accounting.SelfComposedDpEvent(one, each))
        return float(account.get_epsilon(plan.delta))


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
        at, total = int(np.abs(one).argmax()), exact.sum(axis=0)
        run.taken += round(float(total[at] * rows / (one[at] or 1)))
        run.possible += rows * shards.clients // plan.parts
        run.asked.append(request)
        run.exact.append(total)
        if plan.model.noise_by == "client":
            run.noise.append(sent.view(np.int64) - exact)
        if len(run.attained) < neighbours:
            run.attained.append(_attained(run, request))
        return sent.sum(axis=0, dtype=np.uint64)

    def on_release(release: Release) -> None:
        if plan.model.noise_by == "server" and plan.noise is not None:
            steps = np.rint(release.values / plan.grid).astype(np.int64)
            run.noise.append((steps - run.exact[-1])[None])

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
                run.worst = sums[x[at]], sums[y[at]]
        return far
    scaled = found / np.repeat(plan.noise.scales, plan.noise.lengths)
    parts = (np.array_split(each, 1 + len(x) * found.shape[1] // 2**20) for each in (x, y))
    pairs = (scaled[i] - scaled[j] for i, j in zip(*parts, strict=True))
    most = max(np.linalg.norm(change, mechanism.order, axis=1).max() for change in pairs)
    return float(most) * (mechanism.multiplier or 1.0 / mechanism.epsilon)


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


def _neighbours(plan: Plan) -> tuple[list[DataSet], Integers, Integers]:
    """Return data sets of a client, and the places of both of each pair of neighbours."""
    classes, per = plan.federation.classes, plan.protected.per
    rows, units = _clients(classes, 1)[: 2 * classes * len(GAPS)], _clients(classes)
    if plan.adjacency == "replace":
        return [((), unit) for unit in units], *np.indices([len(units)] * 2).reshape(2, -1)
    bases = [[], *([] if per == "client" else rows[::classes])]
    units = rows if per == "row" else units
    sets = [*product(bases, [()]), *product(bases, units)]
    return sets, np.arange(len(bases), len(sets)), np.repeat(np.arange(len(bases)), len(units))


def rows_of(sets: Sequence[DataSet], classes: int) -> Shards:
    """Return rows of a client for each data set; those of the unit are of one subject.

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

    Parameters
    ----------
    draws
        number of draws of an index, from a sum of the first run's worst pair

    Returns
    -------
    dict
        `values`, their number; `std`, the root of their mean square over the due one; `at_least`,
        its lower confidence bound of 99 %; `p`, the probability at most that noise of the due law
        is as far from it in any of the tests
    """
    plan, mechanism = runs[0].plan, runs[0].plan.mechanism
    if plan.noise is None:
        costs = _costs(plan, runs[0].asked[0], runs[0].worst[0])
        values, place = np.unique(costs, return_inverse=True)
        chances = np.bincount(place, np.exp(costs.min() - costs))
        law = stats.rv_discrete(values=(values, chances / chances.sum()))
        return _tested((costs[drawn(runs[0], 0, draws)], law, 1))
    (noise, ones), scale = _noise_of(runs), plan.noise.scales[0]
    if isinstance(mechanism, Unary):
        samples = ((noise[~ones], scale), (noise[ones] + 1.0, 0.5))
        return _tested(*((bits - p, stats.bernoulli(p, loc=-p), 1) for bits, p in samples))
    law = stats.dlaplace(1.0 / scale) if isinstance(mechanism, Laplace) else stats.norm(0.0, scale)
    sums = noise.reshape(-1, plan.quorum, noise.shape[1]).sum(axis=1)
    return _tested((sums, law, 1), *[(noise, law, plan.quorum)] * (plan.quorum > 1))


def _noise_of(runs: Sequence[Run]) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the noise of all rounds, and where answers are above 0, (vectors, length) each."""
    rounds = [both for run in runs for both in zip(run.noise, run.exact, strict=True)]
    ones = [np.broadcast_to(exact > 0, noise.shape) for noise, exact in rounds]
    return np.concatenate([noise for noise, _ in rounds]).astype(np.float64), np.concatenate(ones)


def _tested(*samples: tuple[Floats, Any, int]) -> Record:
    """Test values against laws; of shares of a law only the scale is known."""
    ps, found = list[float](), list[tuple[int, float, float]]()
    for values, law, shares in samples:
        due, n = law.moment(2), values.size
        error = math.sqrt((shares * (law.moment(4) / due**2 - 3.0) + 2.0) / n) / 2.0
        std = math.sqrt(float((values**2).mean()) * shares / due)
        found.append((n, std, std - float(stats.norm.isf(0.01)) * error))
        ps += [2.0 * float(stats.norm.sf(abs(std - 1.0) / (error or 1.0))), _echo(values)]
        if shares == 1:
            edges = np.unique(law.ppf(_EDGES))
            chances = np.diff(law.cdf(edges), prepend=0.0, append=1.0)
            cells = np.searchsorted(edges, values.ravel())
            ps.append(_shape(np.bincount(cells, minlength=len(chances)), chances * n))
    names = ("values", "std", "at_least", "p")
    return dict(zip(names, (*found[0], min(1.0, len(ps) * min(ps))), strict=True))


def _shape(seen: Integers, due: Floats) -> float:
    """Return the p-value of Pearson's chi-square; cells below 5 due are added to the fullest."""
    rare, most = due < 5, due == due.max()
    seen, due = (np.where(most, each + each[rare].sum(), each)[~rare] for each in (seen, due))
    return float(stats.chi2.sf(((seen - due) ** 2 / due).sum(), max(len(due) - 1, 1)))


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


def drawn(run: Run, world: int, draws: int) -> Integers:
    """Return indices drawn from one sum of the worst pair, (draws,)."""
    plan, request = run.plan, run.asked[0]
    of = plan.sum_of(request.bound, plan.clients, request.query.costs)
    seeded = plan.federation.noise_source == "seeded"
    source = stream(plan.federation.seed, Purpose.NOISE, world, "audit") if seeded else None
    each = (plan.mechanism.release(run.worst[world], of, lambda: source) for _ in range(draws))
    return np.fromiter((index[0] for index, _ in each), np.int64, draws)


def attack(runs: Sequence[Run], draws: int = 0, error: float = 1e-3) -> float:
    """Return a lower bound on epsilon, of a pure mechanism with one number changed.

    Half of the noise is that of each of two worlds, whose sums differ by `Run.attained`.
    """
    run, plan, mechanism = runs[0], runs[0].plan, runs[0].plan.mechanism
    if plan.noise is None:
        there, gone = (_costs(plan, run.asked[0], sums) for sums in run.worst)
        return epsilon_lower_bound(*((gone - there)[drawn(run, k, draws)] for k in (0, 1)), error)
    noise, ones = _noise_of(runs)
    if isinstance(mechanism, Unary):
        seen = (noise + ones)[ones] - noise[np.roll(ones, 1, axis=1)]
        return epsilon_lower_bound(seen[::2], -seen[1::2], error)
    sums = noise.reshape(-1, plan.quorum, noise.shape[1]).sum(axis=1) / plan.noise.scales[0]
    sums = sums.reshape(len(runs), plan.rounds, -1)
    change = max(run.attained) * mechanism.epsilon
    worlds = (sums[:, :, ::2] + change, sums[:, :, 1::2])
    ratios = ((np.abs(x) - np.abs(x - change)).sum(axis=1) for x in worlds)
    return epsilon_lower_bound(*(np.round(ratio, 9).ravel() for ratio in ratios), error)


def epsilon_lower_bound(present: Floats, absent: Floats, error: float = 1e-3) -> float:
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
    far, near = (_SELECTING * np.sqrt(r * (1.0 - r) / len(present) * 2.0) for r in (p, q))
    gain = np.maximum(p - far, 1e-300) / (q + near + _SELECTING**2 / len(absent))
    events = ((world >= edges[gain.argmax()]) for world in rest)
    tests = (stats.binomtest(int(event.sum()), len(event)) for event in events)
    low, high = (test.proportion_ci(1.0 - error) for test in tests)
    return max(0.0, math.log(max(low.low, 1e-300) / high.high))
