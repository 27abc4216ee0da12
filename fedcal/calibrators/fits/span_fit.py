"""Matrix scaling on few rows and many classes: Newton's method in the span of the rows.

What is minimised, `sum_i -log p_i[y_i] + (proximal / 2) |w - start|^2`, has its optimum at::

    w = start + (A'x, A'1) for one (n, c) matrix A of coefficients, a row for each row of data.

Nothing of the size of w, c^2 + c numbers, is needed but the answer: the scores are those at `start`
plus K A, K = x x' + 1 the (n, n) products of the rows, and the gradient has the
coefficients p - onehot + proximal A. The loss is convex, and Newton's steps are found by conjugate
gradients in the inner product <A, B> = tr A'KB, each at the price of one product K A.

One client at a time, by products of at most 64 terms: as everywhere, the bits depend on nothing
but the client's own rows.
"""

from __future__ import annotations

import numpy as np

from fedcal.core.numerics import product, row_max, row_sum
from fedcal.core.types import Floats, Integers

_DECREASE, _PROMISE = 1e-4, 1e-14  # as in `lbfgs`
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
