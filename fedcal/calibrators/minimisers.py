"""Many small minimisation problems at once: batched L-BFGS in a box.

Matrix scaling on few rows and many classes: Newton's method in the span of the rows.

What is minimised, `sum_i -log p_i[y_i] + (proximal / 2) |w - start|^2`, has its optimum at::

    w = start + (A'x, A'1) for one (n, c) matrix A of coefficients, a row for each row of data.

Nothing of the size of w, c^2 + c numbers, is needed but the answer: the scores are those at `start`
plus K A, K = x x' + 1 the (n, n) products of the rows, and the gradient has the
coefficients p - onehot + proximal A. The loss is convex, and Newton's steps are found by conjugate
gradients in the inner product <A, B> = tr A'KB, each at the price of one product K A.

One client at a time, by products of at most 64 terms: as everywhere, the bits depend on nothing
but the client's own rows.
"""

from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.core.fitting import product
from fedcal.core.numerics import Floats, Integers, row_max, row_sum

MEMORY = 10
"""Pairs of step and change of gradient that are remembered for each problem."""

_DECREASE = 1e-4  # of what the slope promises, for a step to be accepted (Armijo)
_PROMISE = 1e-14  # of the value and the scale: a step that promises less is not taken
_FLAT = 1e-12  # least curvature, of the scale
_CURVED = 1e-10  # least cosine between a step and the change of the gradient
_FIRST = 0.5  # longest first step of a variable: the diagonal knows nothing of the others
_LONG = 4096  # numbers of a row that are multiplied and added in one piece
_CROWD = 0.75  # finished problems leave when fewer than this share is left


class Problems(Protocol):
    """k independent problems in `size` variables each.

    What is computed for one of them must not depend on which others are beside it.
    """

    scale: Floats
    """(k,) size of a value that matters, such as the number of rows."""

    def value(self, w: Floats) -> tuple[Floats, Floats]:
        """Return the values (k,) and gradients (k, size) at points (k, size)."""

    def diagonal(self, w: Floats) -> Floats:
        """Return about the diagonal of the curvature, >= 0, (k, size) -> (k, size)."""

    def take(self, ids: Integers) -> Self:
        """Return the problems `ids` alone."""


def minimize(problems: Problems, start: Floats, low: Floats, high: Floats, steps: int) -> Floats:
    """Minimise each problem in the box, as far as `steps` evaluations lead.

    L-BFGS (Nocedal & Wright 2006, Algorithm 7.4) that begins from the diagonal of the curvature
    and fixes variables that press against the box; a step is projected on the box and
    shortened until its decrease is a fraction of the decrease that its slope predicts. So no value
    ever rises, also where a problem is not convex. Each pass evaluates one trial point of each
    problem; a problem is frozen at its own convergence, when a step predicts less than 1e-14 of
    its value and scale.

    Parameters
    ----------
    start
        (k, size) inside the box
    low, high
        (size,)
    steps
        maximum number of evaluations

    Returns
    -------
    Floats
        (k, size)
    """
    out = start.copy()
    ids = np.arange(len(out))
    now = _State(problems, out)
    now.turn(np.ones(len(ids), np.bool_), low, high)
    now.t = _FIRST / np.maximum(_FIRST, np.abs(now.direction).max(axis=1))
    for step in range(steps - 1):
        live = -now.t * now.slope > _PROMISE * (np.abs(now.value) + problems.scale)
        if not live.any():
            break
        if live.sum() < _CROWD * len(live):
            out[ids] = now.w
            keep = np.flatnonzero(live)
            now.keep(keep)
            ids, problems, live = ids[keep], problems.take(keep), live[keep]
        trial = np.clip(now.w + now.t[:, None] * now.direction, low, high)
        value, gradient = problems.value(trial)
        moved = now.try_step(trial, value, gradient, live, step % MEMORY)
        now.turn(moved, low, high)
    out[ids] = now.w
    return out


class _State:
    """State of the k problems.

    w, gradient, direction : (k, size); value, t (length of the next step), slope : (k,)
    flat : (k, size) inverse of the curvature's diagonal at the start; gamma : (k,) its factor
    steps, changes : (MEMORY, k, size) pairs; weight : (MEMORY, k) 1 / (step change), 0 without
        a pair
    newest : slot of the newest pair
    """

    def __init__(self, problems: Problems, w: Floats) -> None:
        k, size = w.shape
        self.w, self.direction = w.copy(), np.zeros_like(w)
        self.value, self.gradient = problems.value(w)
        self.flat = 1 / np.maximum(problems.diagonal(w), _FLAT * problems.scale[:, None])
        self.t, self.slope, self.gamma = np.ones(k), -np.ones(k), np.ones(k)
        self.steps, self.changes = np.zeros((MEMORY, k, size)), np.zeros((MEMORY, k, size))
        self.weight, self.newest = np.zeros((MEMORY, k)), -1

    def keep(self, ids: Integers) -> None:
        """Leave out all problems but `ids`."""
        for name, value in vars(self).items():
            if name in ("steps", "changes", "weight"):
                setattr(self, name, value[:, ids])
            elif name != "newest":
                setattr(self, name, value[ids])

    def try_step(
        self, trial: Floats, value: Floats, gradient: Floats, live: NDArray[Any], slot: int
    ) -> NDArray[Any]:
        """Move to the trial points that are low enough, (k,) bool; shorten all other steps."""
        step = trial - self.w
        promised = dot_rows(self.gradient, step)
        moved = live & (value <= self.value + _DECREASE * promised) & (promised < 0)
        change = gradient - self.gradient
        product, length = dot_rows(step, change), np.sqrt(dot_rows(change, change))
        paired = moved & (product > _CURVED * np.sqrt(dot_rows(step, step)) * length)
        self.weight[slot] = np.divide(1.0, product, out=np.zeros_like(product), where=paired)
        self.steps[slot] = np.where(paired[:, None], step, 0.0)
        self.changes[slot] = np.where(paired[:, None], change, 0.0)
        bent = dot_rows(change, self.flat * change)
        self.gamma = np.divide(product, bent, out=self.gamma.copy(), where=paired & (bent > 0))
        self.newest = slot
        # the parabola through both values and the slope has its least value here
        rise = value - self.value - promised
        part = np.divide(-promised, 2 * rise, out=np.full_like(rise, 0.5), where=rise > 0)
        self.t = np.where(moved, 1.0, self.t * np.clip(part, 0.1, 0.5))
        at = moved[:, None]
        self.w, self.value = np.where(at, trial, self.w), np.where(moved, value, self.value)
        self.gradient = np.where(at, gradient, self.gradient)
        return moved

    def turn(self, moved: NDArray[Any], low: Floats, high: Floats) -> None:
        """Set new directions of the problems that moved."""
        at_low, at_high = self.w <= low, self.w >= high
        free = ~((at_low & (self.gradient > 0)) | (at_high & (self.gradient < 0)))
        downhill = np.clip(-self.flat * self.gradient, low - high, high - low) * free
        with np.errstate(over="ignore", invalid="ignore"):  # then `downhill` takes over
            d = np.clip(-self._newton(self.gradient * free), low - high, high - low) * free
        d[(at_low & (d < 0)) | (at_high & (d > 0))] = 0.0
        slope = dot_rows(self.gradient, d)
        fine = slope < 0
        d = np.where(fine[:, None], d, downhill)
        slope = np.where(fine, slope, dot_rows(self.gradient, downhill))
        self.direction = np.where(moved[:, None], d, self.direction)
        self.slope = np.where(moved, slope, self.slope)

    def _newton(self, q: Floats) -> Floats:
        """Return the inverse curvature by the pairs, times q: the two loops of L-BFGS."""
        slots = [(self.newest - i) % MEMORY for i in range(MEMORY)] if self.newest >= 0 else []
        alphas = []
        for i in slots:
            alphas.append(self.weight[i] * dot_rows(self.steps[i], q))
            q = q - alphas[-1][:, None] * self.changes[i]
        q = self.gamma[:, None] * self.flat * q
        for i, alpha in zip(reversed(slots), reversed(alphas), strict=True):
            beta = self.weight[i] * dot_rows(self.changes[i], q)
            q += (alpha - beta)[:, None] * self.steps[i]
        return q


def dot_rows(x: Floats, y: Floats) -> Floats:
    """Return the dot product of matching rows, (k, size), (k, size) -> (k,).

    In pieces: a library for vectors may split a long row over a number of threads of its own.
    """
    total = np.vecdot(x[:, :_LONG], y[:, :_LONG])
    for i in range(_LONG, x.shape[1], _LONG):
        total += np.vecdot(x[:, i : i + _LONG], y[:, i : i + _LONG])
    return np.asarray(total)


_FORCED = 0.25  # largest residual of a Newton step, of the gradient; less and less on the way
_FAR = 8.0  # change of a score, from which the curvature at its old value is unreliable
_PRODUCTS = 200  # most conjugate gradient steps for one


def residuals(scores: Floats, columns: Integers) -> tuple[Floats, Floats]:
    """Return the loss of each row and its gradient in the scores.

    Parameters
    ----------
    scores
        (n, c)
    columns
        (n,) the labels

    Returns
    -------
    tuple[Floats, Floats]
        (n,) -log p[label], (n, c) p - onehot
    """
    at = (np.arange(len(columns)), columns)
    p = scores - row_max(scores)[:, None]
    of_label = p[at]
    np.exp(p, out=p)
    total = row_sum(p)
    p /= total[:, None]
    p[at] -= 1
    return np.log(total) - of_label, p


def fit_in_span(
    x: Floats, columns: Integers, scores: Floats, proximal: float, steps: int
) -> Floats:
    """Return the change from its start that fits matrix scaling to one client's rows.

    Parameters
    ----------
    x
        (n, c) logits
    columns
        (n,) labels
    scores
        (n, c) calibrated logits at the start
    proximal
        > 0
    steps
        maximum number of evaluations of the loss

    Returns
    -------
    Floats
        (c^2 + c,) change of the matrix, row by row, and of the offsets
    """
    kernel = product(x, x.T) + 1.0
    best = _Point(scores, columns, np.zeros_like(scores), np.zeros_like(scores), proximal)
    left = steps - 1
    while left > 0:
        step, moved = _newton(kernel, best, proximal)
        slope = _inner(best.gradient, moved)
        t = 1.0
        while left > 0 and -t * slope > _PROMISE * (abs(best.value) + len(x)):
            left -= 1
            trial = _Point(
                scores, columns, best.of_rows + t * step, best.added + t * moved, proximal
            )
            if trial.value <= best.value + _DECREASE * t * slope:
                best = trial
                break
            rise = trial.value - best.value - t * slope  # the parabola through what is known
            t *= min(max(-t * slope / (2 * rise), 0.1), 0.5)
        else:
            break
    matrix, offsets = product(best.of_rows.T, x), best.of_rows.sum(axis=0)
    return np.concatenate([matrix.ravel(), offsets])


class _Point:
    """The objective at the coefficients `of_rows`, (n, c), with `added` = K of_rows.

    value : summed loss and the proximal term, in nats
    gradient : (n, c), its coefficients; the slope along D is <gradient, K D>
    probs : (n, c)
    """

    def __init__(
        self, start: Floats, columns: Integers, of_rows: Floats, added: Floats, proximal: float
    ) -> None:
        self.of_rows, self.added = of_rows, added
        losses, residual = residuals(start + added, columns)
        self.value = float(losses.sum()) + proximal / 2 * _inner(of_rows, added)
        self.gradient = residual + proximal * of_rows
        self.probs = residual
        self.probs[np.arange(len(columns)), columns] += 1


def _newton(kernel: Floats, at: _Point, proximal: float) -> tuple[Floats, Floats]:
    """Return a nearly Newton step's coefficients, and K times them, by conjugate gradients."""
    p = at.probs
    step, moved = np.zeros_like(p), np.zeros_like(p)
    rest = -at.gradient
    k_rest = product(kernel, rest)
    direction, k_direction = rest.copy(), k_rest.copy()
    size = first = _inner(rest, k_rest)
    # the forcing term min(.1, |g|^1/2) makes the whole superlinear (Nocedal & Wright 2006, 7.1)
    enough = first * min(_FORCED, np.sqrt(first / len(p))) ** 2
    for _ in range(_PRODUCTS):
        curved = p * k_direction
        curved -= p * row_sum(curved)[:, None]
        curved += proximal * direction
        length = size / _inner(curved, k_direction)
        step += length * direction
        moved += length * k_direction
        rest -= length * curved
        k_rest = product(kernel, rest)
        size, before = _inner(rest, k_rest), size
        if not size > enough or max(moved.max(), -moved.min()) > _FAR:
            break
        direction *= size / before
        direction += rest
        k_direction *= size / before
        k_direction += k_rest
    return step, moved


def _inner(a: Floats, b: Floats) -> float:
    """Return the sum of all products, row by row."""
    return float(np.vecdot(a, b).sum())
