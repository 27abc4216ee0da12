"""Questions about one temperature: local optima, derivatives at a temperature, scores on a grid."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from fedcal.core import checks, fitting, numerics
from fedcal.core.numerics import Floats, Integers, override
from fedcal.core.options import Classes, Positive, within
from fedcal.core.shards import Shards
from fedcal.privacy.query import Order, Part, Query, Summed
from fedcal.units import Bound

Average = Literal["inverse", "temperature"]

LIMIT = 20.0
"""Default limit of 1/T and of T, exp(LOG_A_LIMIT)."""

MOST_STEPS, MOST_POINTS = 10**6, 65536

Logarithm = Annotated[float, checks.interval("[-100, 100]")]
"""Logarithm of a temperature, or a number of that size, within +-100."""

ROW_GRADIENT = 4.0
"""Bound of one row's gradient of the negative log-likelihood in log(1/T), in nats."""

_NO_WEIGHT, _MOST_A = np.float32(-104.0), 1e38  # exp is 0 there, in single precision; below inf

COUNTED = 2.0
"""Bound of a count that is at most 1, and so is never clipped."""


check_limit = checks.interval("(1, 1e6]")
"""Check of the largest 1/T and T."""


class Update(Query):
    """Question for the change of w by training on a client's rows (Maddock et al., Algorithm 2).

    The answer has as many numbers as w and, with `count`, a 1 if the client has rows. `bound` needs
    the clip of the update.
    """

    row_sums = False

    w: Any
    count: bool

    def lengths(self) -> tuple[int, ...]:
        """Return a block with the update, and a block with the count."""
        size = int(np.size(self.w))
        return (size, 1) if self.count else (size,)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound: the clip for the update; the count has its own and is never clipped."""
        self.takes_clips(part, clips, 1)
        if not self.count:
            return Bound(self.lengths(), (clips[0],), order=order)
        return Bound(self.lengths(), (clips[0], COUNTED), "per_block", order)

    def counted(self, update: Floats, shards: Shards) -> Floats:
        """Return the answers to the question, from each client's update, (clients, numbers)."""
        return np.column_stack([update, shards.rows > 0]) if self.count else update


@dataclass(frozen=True)
class TemperatureUpdate(Update):
    """Question for the difference of a client's own optimum from w (Maddock et al., Algorithm 2).

    The answer is one number and, with `count`, a 1 if the client has rows. `bound` needs the clip
    of the number.

    Parameters
    ----------
    w
        global parameter, > 0
    average
        w is 1/T ("inverse") or T ("temperature")
    count
        send also whether there are rows (without privacy, where the mean is over clients with rows)
    limit
        largest 1/T and T, in (1, 1e6]
    steps
        maximum steps of a client's optimisation; None = to the optimum
    """

    kind = "temperature_update"
    optional = None
    examples = (
        {"w": 1.0, "average": "inverse", "count": True},
        {"w": 2.375, "average": "temperature", "count": False},
        {"w": 20.0, "average": "inverse", "count": False},
        {"w": 1.5, "average": "inverse", "count": True, "limit": 3.0, "steps": 4},
    )

    w: Positive
    average: Average
    count: bool
    limit: Annotated[float, check_limit] = LIMIT
    steps: Annotated[int, within(1, MOST_STEPS)] | None = None

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """u_k = w - w_k, how far the client's own optimum is from the global parameter w.

        (Maddock et al., Algorithm 2 and B.2.) A client without rows sends zeros.

        Returns (clients, 1) or, with `count`, (clients, 2).
        """
        w, inverse = self.w, self.average == "inverse"
        limit = fitting.LOG_A_LIMIT if self.limit == LIMIT else float(np.log(self.limit))
        log_a = local_log_a(shards, np.log(w) if inverse else -np.log(w), limit, self.steps)
        has_rows = shards.rows > 0
        update = np.where(has_rows, w - np.exp(log_a if inverse else -log_a), 0.0)
        return self.counted(update[:, None], shards)


class Newton(Query):
    """Question for gradients G and curvatures H, which are clipped together.

    `bound` needs the clip of a client's gradient.
    """

    classes: int
    facts = ("classes",)

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bounds of G and H: the clip and 3 times the clip; a row has constants.

        In log(1/T), in nats. A row's H has 2 + log(c)^2 / 2, twice the bound of the variance of
        log-probabilities of c classes (Reeb & Wolf 2015), so that G uses up most of the joint clip.
        """
        if self.takes_clips(part, clips, 1):
            return Bound(self.lengths(), (clips[0], 3.0 * clips[0]), order=order)
        norms = ROW_GRADIENT, 2.0 + math.log(self.classes) ** 2 / 2.0
        return Bound(self.lengths(), norms, order=order)


@dataclass(frozen=True)
class TemperatureNewton(Newton):
    """Gradient and curvature of the negative log-likelihood at log(1/T), in nats.

    `bound` needs the clip of a client's gradient; both numbers are clipped together.

    Parameters
    ----------
    log_a
        log(1/T)
    classes
        of the model
    """

    kind = "temperature_newton"
    examples = tuple({"log_a": log_a, "classes": 3} for log_a in (0.0, -0.875, 2.5))

    log_a: Logarithm
    classes: Classes

    def lengths(self) -> tuple[int, ...]:
        """Return blocks G and H of one number each."""
        return (1, 1)

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Gradient and curvature of the negative log-likelihood in log a, a = 1/T.

        G = sum_i a (E_p[z_i] - z_i[y_i]) and H = sum_i a^2 Var_p[z_i], p = softmax(a z).

        Returns (clients, 2): G, H in nats.
        """
        a = math.exp(self.log_a)
        mean, var = fitting.tempered_moments(shifted_logits(shards), a)
        g = a * (mean - label_logits(shards))
        return np.stack([shards.sum_rows(g), shards.sum_rows(a * a * var)], axis=1)


@dataclass(frozen=True)
class TemperatureScores(Summed):
    """Score, T times the derivative of the negative log-likelihood, on a log grid of T.

    `bound` needs the clip of each of a client's scores, in nats.

    Parameters
    ----------
    low, high
        ends of the grid
    points
        number of points, the ends included
    """

    kind = "temperature_scores"
    rule = "per_value"
    examples = ({"low": 0.25, "high": 8.0, "points": 7},)

    low: Positive
    high: Positive
    points: Annotated[int, within(1, MOST_POINTS)]

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.interval(f"({self.low!r}, inf)", "above low")("high", self.high)

    def lengths(self) -> tuple[int, ...]:
        """Return one block with a score for each temperature."""
        return (self.points,)

    @override
    def added(self, part: Part, order: Order) -> float:
        return ROW_GRADIENT

    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """S_k(T) = sum_i a (E_p[z_i] - z_i[y_i]), a = 1/T, on a public grid of temperatures.

        The root in T of the federation's sum is the pooled optimum: the score is a times the
        derivative of the negative log-likelihood in a, which is monotone.

        Returns (clients, points) in nats.
        """
        log_t = fitting.log_grid(self.low, self.high, self.points)
        nodes = score_nodes(self, shards.classes)
        if len(nodes) >= self.points:
            return np.stack([_score(shards, a)[0] for a in np.exp(-log_t)], axis=1)
        known = np.concatenate([_score(shards, a) for a in np.exp(-nodes)]).T[:, None]
        # a product for each client: bits of one for all may depend on how many there are
        return fitting.product(np.ascontiguousarray(known), interpolation(nodes, log_t))[:, 0]


def shifted_logits(shards: Shards) -> Floats:
    """Return the rows' logits minus their maximum, computed once a run, (n, c)."""
    return shards.derived("shifted", lambda s: numerics.shifted(fitting.by_class(s.logits)))


def label_logits(shards: Shards) -> Floats:
    """Return the shifted logit of each row's label, computed once a run, (n,)."""
    return shards.derived("label", lambda s: fitting.label_entries(shifted_logits(s), s.labels))


def correct(shards: Shards) -> Floats:
    """1 where the first largest logit is the label's, computed once a run, (n,)."""
    return shards.derived(
        "correct", lambda s: (s.logits.argmax(axis=1) == s.labels).astype(np.float64)
    )


def _score(shards: Shards, a: float) -> Floats:
    """Return each client's score at T = 1 / a and its derivative in log T, (2, clients).

    Of a row they are E_p[w] - w_y and minus the sum of that and Var_p[w], where w = a (z - max z)
    and p = softmax(w): single precision up to the sums over classes, double from there, and an
    error of some 1e-6 nats at most. Not for questions whose parameters follow from answers: noise
    is drawn anew where they differ in the ninth digit, and processors differ in the seventh.
    """
    with np.errstate(over="ignore"):  # far below any weight
        w = shards.derived("single", lambda s: shifted_logits(s).astype(np.float32))
        w = w * np.float32(min(a, _MOST_A))
    e = np.exp(np.maximum(w, _NO_WEIGHT, out=w))
    total = numerics.row_sum(e).astype(np.float64)
    e *= w
    mean = numerics.row_sum(e) / total
    e *= w
    g = mean - a * label_logits(shards)
    slope = mean * mean - numerics.row_sum(e) / total - g
    return np.stack([shards.sum_rows(g), shards.sum_rows(slope)])


def score_nodes(query: TemperatureScores, classes: int) -> Floats:
    """Return the logarithms of the temperatures between which a polynomial gives the score.

    A row's score is analytic in log T where sum_j exp(a z_j) is not 0 for complex a. If all other
    classes are equally far from the largest, a zero has the angle atan(pi / log(c - 1)); other rows
    have theirs farther from the real axis (tried, not proven). So the polynomial through Chebyshev
    nodes converges like rho^-nodes, rho of the largest ellipse in that strip (Trefethen 2013,
    theorem 8.2); each node tells its derivative, too, and counts twice. Nodes are enough for 1e-7
    of the largest score, which is what single precision leaves.
    """
    half = math.log(query.high / query.low) / 2
    width = math.atan(math.pi / math.log(classes - 1)) if classes > 2 else math.pi / 2
    many = math.ceil(math.log(1e7) / math.asinh(width / half) / 2)
    angles = np.pi * (np.arange(many) + 0.5) / many
    return math.log(query.low * query.high) / 2 + half * np.cos(angles)


def interpolation(nodes: Floats, at: Floats) -> Floats:
    """Return weights of the value and the derivative at each Chebyshev node, (2 nodes, points).

    Hermite's formula; Lagrange's basis is the barycentric one for the first kind of nodes (Berrut
    and Trefethen 2004, section 5).
    """
    angles = np.pi * (np.arange(len(nodes)) + 0.5) / len(nodes)
    signed = np.sin(angles) * (-1.0) ** np.arange(len(nodes))
    apart = at - nodes[:, None]
    met = apart == 0
    basis = signed[:, None] / np.where(met, 1.0, apart)
    basis = np.where(met.any(axis=0), met, basis)
    square = (basis / basis.sum(axis=0)) ** 2
    slope = 2 * np.cos(angles[0]) / (nodes[0] - nodes[-1]) * np.cos(angles) / np.sin(angles) ** 2
    both = [square * (1.0 - slope[:, None] * apart), square * apart]
    return np.stack(both, axis=1).reshape(-1, len(at))


_TOLERANCE = 1e-9

_STEPS = 80

_FLAT = 1e-300  # a curvature of 0 asks for the largest step


def local_log_a(
    shards: Shards, start: float, limit: float = fitting.LOG_A_LIMIT, steps: int | None = None
) -> Floats:
    """Each client's best log(1/T), bounded to [-limit, limit], shape (clients,).

    A shard without errors has its optimum at T = 0: the score has one sign all the way and the
    bound is returned. Otherwise Newton inside a bracket of the monotone score, for all clients
    together; a client is frozen at *its own* convergence, so that its answer does not depend on
    who shares the block. A client without rows stays at `start`.

    Parameters
    ----------
    start
        log(1/T) to begin from
    limit
        bound of `|log(1/T)|`, by default log 20
    steps
        most steps of Newton, as an optimiser that gives up would take them: a shard without
        errors then ends on its way to the bound; None = to the optimum
    """
    shifted_logits(shards), label_logits(shards)  # computed once, carried along by `take`
    log_a = np.full(shards.clients, start)
    active = np.flatnonzero(shards.rows > 0)
    for bound, sign in ((limit, -1.0), (-limit, 1.0)) if steps is None else ():
        g, _ = _derivatives(shards.take(active), np.full(len(active), bound))
        at_bound = sign * g >= 0
        log_a[active[at_bound]] = bound
        active = active[~at_bound]
    part = shards.take(active)
    now = np.full(len(active), min(max(start, -limit), limit))
    low, high = np.full(len(active), -limit), np.full(len(active), limit)
    for _ in range(_STEPS if steps is None else steps):
        if not len(active):
            break
        g, h = _derivatives(part, now)
        low, high = np.where(g < 0, now, low), np.where(g < 0, high, now)
        with np.errstate(over="ignore"):  # an infinite step is the longest there is
            step = -g / np.maximum(h, _FLAT)
        moved = now + np.clip(step, -1.0, 1.0)
        moved = np.where((moved > low) & (moved < high), moved, (low + high) / 2)
        log_a[active] = moved
        going = np.flatnonzero(np.abs(moved - now) > _TOLERANCE)
        if len(going) < len(active):
            active, part = active[going], part.take(going)
            low, high = low[going], high[going]
        now = moved[going]
    return log_a


def _derivatives(part: Shards, log_a: Floats) -> tuple[Floats, Floats]:
    """First and Gauss-Newton second derivative of each client's loss at its own log(1/T)."""
    a = np.exp(log_a)[part.owner]
    mean, var = fitting.tempered_moments(shifted_logits(part), a[:, None])
    return part.sum_rows(a * (mean - label_logits(part))), part.sum_rows(a * a * var)
