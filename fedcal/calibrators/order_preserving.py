"""Scaling that keeps the ranking of the classes (Rahimi et al. 2020; Maddock et al., B.6).

A row is sorted, y_1 >= ... >= y_c, and its calibrated scores are sums of non-negative steps,

    f_i = sum_{k >= i} w_k,    w_k = (y_k - y_{k+1}) softplus(m_k) >= 0 for k < c,

put back in the order of the classes. So f ranks the classes as the model does, whatever m is; a
method is a choice of m. Decisions that the papers leave open:

- y are log-probabilities, so that a constant added to a row's logits changes nothing.
- w_c adds the same number to all scores of a row: softmax does not see it. Here it is the one
  with f_1 = 0, that is f_i = -sum_{k < i} w_k. Summed from the top, a gap of 1e30 below the
  ranks that matter takes no digits from them, and since a float minus a non-negative one is
  never larger, the ranking holds in floats, too.
- m sees y cut at log 1e-12, as `numerics.logits_from_probs` cuts; the gaps are not cut.
- In floats two scores, or two probabilities, may tie where the logits did not (a gap times a
  tiny softplus, or an exponential, underflows). They never swap, and a tie at the top is broken
  in favour of the model's own prediction (`keep_top`).
"""

from __future__ import annotations

import math

import numpy as np

from fedcal.calibrators.fits.curvature import rank_variances
from fedcal.calibrators.parametric import ParametricScaling
from fedcal.core.numerics import FLOOR, row_max, row_sum, sigmoid, softmax, softplus
from fedcal.core.scores import Kind
from fedcal.core.types import Floats, Integers, override

UNIT = math.log(math.e - 1)
"""softplus(UNIT) = 1: with all m_k = UNIT the scores are the logits."""

LOWEST = math.log(FLOOR)
"""m sees no log-probability below this one."""


def sorted_log_probs(logits: Floats) -> tuple[Floats, Integers]:
    """Return each row's falling log-probabilities, and their columns; ties stay in order.

    Parameters
    ----------
    logits
        (n, c)

    Returns
    -------
    tuple[Floats, Integers]
        y : (n, c)
        order : (n, c), y[i, k] belongs to class order[i, k]
    """
    order = np.argsort(-logits, axis=1, kind="stable")
    z = np.take_along_axis(logits, order, axis=1)
    z -= z[:, :1]
    z -= np.log(row_sum(np.exp(z)))[:, None]
    return z, order


def seen(y: Floats) -> Floats:
    """Return y as m may use it: clipped to [log 1e-12, 0], shape kept."""
    return np.maximum(y, LOWEST)


def scores_from_slopes(y: Floats, m: Floats) -> Floats:
    """Return f of sorted rows, falling from f_1 = 0.

    Parameters
    ----------
    y
        (n, c) from `sorted_log_probs`
    m
        (n, c) or (c,); its last column belongs to w_c and is not looked at

    Returns
    -------
    Floats
        (n, c)
    """
    f = np.zeros_like(y)
    np.cumsum((y[:, 1:] - y[:, :-1]) * softplus(m[..., :-1]), axis=1, out=f[:, 1:])
    return f


def slopes_gradient(y: Floats, m: Floats, residual: Floats) -> Floats:
    """Return the gradient in m of each row's loss, (n, c), last column 0.

    dL/dw_k = sum_{i <= k} r_i = -sum_{i > k} r_i, because residuals sum to 0. The second form
    does without the top class, whose residual of a confident row is 1 minus nearly 1.

    Parameters
    ----------
    y, m
        as in `scores_from_slopes`
    residual
        (n, c) gradient in f, in the sorted columns; rows sum to 0
    """
    below = np.cumsum(residual[:, :0:-1], axis=1)[:, ::-1]
    out = np.zeros_like(y)
    np.multiply(below, y[:, 1:] - y[:, :-1], out=out[:, :-1])
    out[:, :-1] *= sigmoid(m[..., :-1])
    return out


def keep_top(probs: Floats, logits: Floats) -> Floats:
    """Change `probs` in place so that their argmax is that of `logits`.

    For probabilities that fall with the logits: where another class of lower index has come to
    tie with the top one, the top one (with all that tie in the logits) is raised by an ulp or two.
    """
    moved = np.flatnonzero(probs.argmax(axis=1) != logits.argmax(axis=1))
    if len(moved):
        z = logits[moved]
        probs[moved] *= np.where(z == row_max(z)[:, None], 1 + np.finfo(np.float64).eps, 1.0)
    return probs


class OrderPreserving(ParametricScaling):
    """Base of order-preserving calibrators; each kind defines m, up to `scores`.

    In the form, rows are sorted once, by `features`, and all trained values stay sorted.
    """

    @classmethod
    def features(cls, logits: Floats, labels: Integers) -> tuple[Floats, Integers]:
        """Return sorted log-probabilities, (n, c), and the label's rank among them, (n,)."""
        y, order = sorted_log_probs(logits)
        return y, np.asarray((order == labels[:, None]).argmax(axis=1))

    def _predict(self, logits: Floats, input: Kind) -> Floats:
        y, order = sorted_log_probs(logits)
        probs, out = softmax(self.scores(y, self.w)), np.empty_like(y)
        np.minimum.accumulate(probs, axis=1, out=probs)  # exp may be a last bit from monotone
        np.put_along_axis(out, order, probs, axis=1)
        return keep_top(out, logits)


class OrderPreservingVector(OrderPreserving):
    """m_k = a_k y_k + b_k: w = (a, b), 2c numbers (FedOPVector). Predictions never change.

    a and b belong to ranks, not to classes. a_c and b_c exist only to match the number of
    parameters of vector scaling: nothing depends on them, and their gradient is 0.
    """

    kind = "order-preserving-vector"

    @classmethod
    @override
    def size(cls, classes: int) -> int:
        return 2 * classes

    @classmethod
    @override
    def identity(cls, classes: int) -> Floats:
        return np.concatenate([np.zeros(classes), np.full(classes, UNIT)])

    @classmethod
    def scores(cls, features: Floats, w: Floats) -> Floats:
        """Return f of sorted log-probabilities."""
        return scores_from_slopes(features, cls._slopes(features, w))

    @classmethod
    def pull_back(cls, features: Floats, w: Floats, residual: Floats) -> Floats:
        """Return (dL/dm y, dL/dm), (n, 2c)."""
        g = slopes_gradient(features, cls._slopes(features, w), residual)
        return np.concatenate([g * seen(features), g], axis=1)

    @classmethod
    def diagonal(cls, features: Floats, w: Floats, probs: Floats) -> Floats:
        """Return S_k (1 - S_k) (df/da_k, df/db_k)^2, S_k the probability of ranks up to k."""
        return np.tile(rank_variances(probs), 2) * cls._factors(features, w) ** 2

    @classmethod
    def _factors(cls, y: Floats, w: Floats) -> Floats:
        """Return the change by a_k and b_k of each score down to rank k, (n, 2c)."""
        g = np.zeros_like(y)
        np.multiply(y[:, :-1] - y[:, 1:], sigmoid(cls._slopes(y, w)[..., :-1]), out=g[:, :-1])
        return np.concatenate([g * seen(y), g], axis=1)

    @staticmethod
    def _slopes(y: Floats, w: Floats) -> Floats:
        c = y.shape[1]
        return np.asarray(seen(y) * w[..., :c] + w[..., c:])
