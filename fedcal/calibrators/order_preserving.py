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

FedCal's calibrator (Peng et al. 2024): an MLP stretches the gaps between sorted log-probs.
"""

import math
from collections.abc import Callable

import numpy as np

from fedcal.calibrators.parametric import ParametricScaling, rank_variances
from fedcal.core import fitting, numerics
from fedcal.core.numerics import Floats, Integers, Kind, override

UNIT = math.log(math.e - 1)
"""softplus(UNIT) = 1: with all m_k = UNIT the scores are the logits."""

LOWEST = math.log(numerics.FLOOR)
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
    z -= np.log(numerics.row_sum(np.exp(z)))[:, None]
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
    np.cumsum((y[:, 1:] - y[:, :-1]) * fitting.softplus(m[..., :-1]), axis=1, out=f[:, 1:])
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
    out[:, :-1] *= fitting.sigmoid(m[..., :-1])
    return out


def keep_top(probs: Floats, logits: Floats) -> Floats:
    """Change `probs` in place so that their argmax is that of `logits`.

    For probabilities that fall with the logits: where another class of lower index has come to
    tie with the top one, the top one (with all that tie in the logits) is raised by an ulp or two.
    """
    moved = np.flatnonzero(probs.argmax(axis=1) != logits.argmax(axis=1))
    if len(moved):
        z = logits[moved]
        top = z == numerics.row_max(z)[:, None]
        probs[moved] *= np.where(top, 1 + np.finfo(np.float64).eps, 1.0)
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
        probs, out = numerics.softmax(self.scores(y, self.w)), np.empty_like(y)
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
        y, g = features, np.zeros_like(features)  # change by b_k of each score down to rank k
        slopes = fitting.sigmoid(cls._slopes(y, w)[..., :-1])
        np.multiply(y[:, :-1] - y[:, 1:], slopes, out=g[:, :-1])
        factors = np.concatenate([g * seen(y), g], axis=1)
        return np.asarray(np.tile(rank_variances(probs), 2) * factors**2)

    @staticmethod
    def _slopes(y: Floats, w: Floats) -> Floats:
        c = y.shape[1]
        return np.asarray(seen(y) * w[..., :c] + w[..., c:])


HIDDEN = 64
"""Neurons of each of the two hidden layers (Peng et al. 2024)."""

EPOCHS, BATCH, LR, LARGEST_GRADIENT = 3, 64, 0.03, 5.0
"""Hyperparameters of a client's training; see `OrderPreservingMLP`."""

_LARGEST_WEIGHT = 1e12  # one beyond counts as this: products of three layers must not overflow
_ROWS = 256  # a block of rows whose hidden layers stay in the processor's cache
_START = 64064  # key of the public stream that the hidden layers start from
_POOLED_EPOCHS, _POOLED_ROWS, _POOLED_LR, _POOLED_SEED = 10, 50_000, 0.1, 0

Multiply = Callable[[Floats, Floats], Floats]


class OrderPreservingMLP(OrderPreserving):
    """m(y) = W3 relu(W2 relu(W1 x + b1) + b2) + b3 with two hidden layers of 64.

    The input x = y cut to [log 1e-12, 0] and divided by `|log 1e-12|` lies in [-1, 0] for any
    logits: the network sees inputs of one public range, and a log-probability of -1e30 moves
    no weight further than one of -28. The gaps that m multiplies are not cut.

    w = (W1, b1, W2, b2, W3, b3), each matrix (inputs, outputs) and row by row:
    c 64 + 64 + 64 64 + 64 + 64 c + c numbers. For c = 10 these are 5,514, and 5,514 float64 are
    the 43.08 kb each way of Maddock et al., Table 6. The outputs are as many as classes; nothing
    depends on the last one, since w_c is not seen by softmax.

    `identity` has W3 = 0 and b3 = log(e - 1), hence m = log(e - 1) for every row. Its hidden
    layers are He-initialised from a fixed public stream, the same for everybody: were they 0,
    too, no gradient would ever reach them.

    Federated training (Maddock et al., B.2) is local SGD: `EPOCHS` 3 as in Peng et al., `BATCH`
    64, `LR` 0.03, no momentum. The papers do not state its step; ours is measured (12 rounds, a
    tenth of 100 clients each, Dirichlet 0.1): 0.01 is slow, and 0.1 gains in log-likelihood but
    scatters more from federation to federation. The gradient of a step is cut to the norm
    `LARGEST_GRADIENT`, so that a step moves w by at most 0.15 whatever the logits; on real
    networks the cut changes next to nothing.
    """

    kind = "order-preserving-mlp"
    wide = True

    @classmethod
    def size(cls, classes: int) -> int:
        """Return 64c + 64 + 64 * 64 + 64 + 64c + c."""
        return sum(rows * columns for rows, columns in _shapes(classes))

    @classmethod
    def identity(cls, classes: int) -> Floats:
        """Return the public hidden layers, W3 = 0, b3 = log(e - 1)."""
        rng = np.random.Generator(np.random.Philox(key=_START))
        w = np.zeros(cls.size(classes))
        w1, _, w2, _, _, b3 = layers(w, classes)
        w1[:] = rng.standard_normal(w1.shape) * math.sqrt(2.0 / classes)
        w2[:] = rng.standard_normal(w2.shape) * math.sqrt(2.0 / HIDDEN)
        b3[:] = UNIT
        return w

    @classmethod
    def scores(cls, features: Floats, w: Floats) -> Floats:
        """Return f of sorted log-probabilities; w is (size,)."""
        m, w = np.empty_like(features), moderate(w)
        for i in range(0, len(m), _ROWS):
            rows = slice(i, i + _ROWS)
            m[rows] = _forward(_inputs(features[rows]), w, _by_columns)[2]
        return scores_from_slopes(features, m)

    @classmethod
    def pull_back(cls, features: Floats, w: Floats, residual: Floats) -> Floats:
        """Back-propagate each row; only for checks of few rows: (n, size) is large.

        Training uses `batch_gradient`, which adds up a batch before anything has that size.
        """
        x, w = _inputs(features)[:, None], moderate(w)
        h1, h2, m = _forward(x, w, _by_columns)
        slope = slopes_gradient(features, m[:, 0], residual)[:, None]
        out = np.empty((len(x), len(w)))
        _backward((x, h1, h2), slope, w, out, _by_columns)
        return out

    def _fit(self, z: Floats, labels: Integers) -> None:
        """Fit by SGD on pooled rows from the identity, which is kept if its loss is lower.

        10 epochs, or as many as see 50,000 rows but at least one, of batches of at most 64 rows,
        with a step that falls linearly from 0.1 to 0 (measured: more or slower changes little).
        The order of the rows is fixed: the same rows give the same parameters.
        """
        y, rank = self.features(z, labels)
        start = self.identity(z.shape[1])
        w = start[None].copy()
        epochs = max(1, min(_POOLED_EPOCHS, _POOLED_ROWS // len(y)))
        order, weights = batches(len(y), epochs, BATCH, _POOLED_SEED)
        for t, (rows, weight) in enumerate(zip(order, weights, strict=True)):
            lr = _POOLED_LR * (1 - t / len(order))
            sgd_step(w, y[rows][None], rank[rows][None], weight[None], lr)

        def loss(w: Floats) -> float:
            own = fitting.label_entries(numerics.softmax(self.scores(y, w)), rank)
            return float(-np.log(np.maximum(own, numerics.FLOOR)).mean())

        self.w = min((w[0], start), key=loss)


# -- training, for many clients at once ----------------------------------------------------


def batches(rows: int, epochs: int, batch: int, seed: int) -> tuple[Integers, Floats]:
    """Return a client's rows in their order of training, a function of these four numbers.

    An epoch is a fresh public permutation, cut into as few batches of at most `batch` rows as
    there can be, of nearly equal size (a last batch of one row would be a step as long as that
    of 64). They are filled up to a multiple of 8 rows with the client's row 0 of weight 0.

    Returns
    -------
    tuple[Integers, Floats]
        order : (steps, width) rows
        weights : (steps, width) one over the rows of the batch, or 0
    """
    per_epoch, size, width = batch_shape(rows, batch)
    rng = np.random.Generator(np.random.Philox(key=[seed, rows]))
    order = np.zeros((epochs, per_epoch, width), np.int64)
    weights = np.zeros(order.shape)
    for e in range(epochs):
        shuffled = rng.permutation(rows)
        for s in range(per_epoch):
            own = shuffled[s * size : (s + 1) * size]
            order[e, s, : len(own)] = own
            weights[e, s, : len(own)] = 1.0 / len(own)
    return order.reshape(-1, width), weights.reshape(-1, width)


def batch_shape(rows: int, batch: int) -> tuple[int, int, int]:
    """Return the batches of an epoch, rows of each, and rows with padding."""
    per_epoch = -(-rows // batch)
    size = -(-rows // per_epoch)
    return per_epoch, size, -(-size // 8) * 8


def sgd_step(w: Floats, y: Floats, rank: Integers, weights: Floats, lr: float) -> None:
    """Take one step of each client by its batch's gradient, clipped to norm 5; changes w.

    Parameters
    ----------
    w
        (clients, size)
    y, rank
        (clients, rows, c) and (clients, rows) from `features`
    weights
        (clients, rows), from `batches`
    lr
        step
    """
    g = batch_gradient(w, y, rank, weights)
    norm = np.sqrt(numerics.row_sum(g * g))
    g *= (lr * LARGEST_GRADIENT / np.maximum(norm, LARGEST_GRADIENT))[:, None]
    w -= g


def batch_gradient(w: Floats, y: Floats, rank: Integers, weights: Floats) -> Floats:
    """Return each client's gradient of its weighted loss, (clients, size); as for `sgd_step`.

    Products are by BLAS, one call of a fixed shape for each client: it gives the same bits for
    a client alone and among others, and with 64 terms at most also on one thread and on many.
    (Over the rows of several clients it would not.)
    """
    c = y.shape[-1]
    x, w = _inputs(y), moderate(w)
    h1, h2, m = _forward(x, w, fitting.product)
    flat_y, flat_m = y.reshape(-1, c), m.reshape(-1, c)
    residual = numerics.softmax(scores_from_slopes(flat_y, flat_m))
    residual[np.arange(len(residual)), rank.ravel()] -= 1.0
    residual *= weights.reshape(-1, 1)
    slope = slopes_gradient(flat_y, flat_m, residual).reshape(y.shape)
    out = np.empty(w.shape)
    _backward((x, h1, h2), slope, w, out, fitting.product)
    return out


# -- the network: rows are (..., rows, width), parameters (size,) or (clients, size) ---------


def _shapes(classes: int) -> tuple[tuple[int, int], ...]:
    """Return the shapes of W1, b1, W2, b2, W3, b3."""
    inner = ((classes, HIDDEN), (1, HIDDEN), (HIDDEN, HIDDEN), (1, HIDDEN))
    return (*inner, (HIDDEN, classes), (1, classes))


def layers(w: Floats, classes: int) -> list[Floats]:
    """Return W1, b1, W2, b2, W3, b3 as views of w."""
    views, start = [], 0
    for rows, columns in _shapes(classes):
        stop = start + rows * columns
        views.append(w[..., start:stop].reshape(*w.shape[:-1], rows, columns))
        start = stop
    return views


def moderate(w: Floats) -> Floats:
    """Return weights clipped to +-1e12, shape kept."""
    return np.clip(w, -_LARGEST_WEIGHT, _LARGEST_WEIGHT)


def _inputs(y: Floats) -> Floats:
    return seen(y) / -LOWEST


def _forward(x: Floats, w: Floats, multiply: Multiply) -> list[Floats]:
    """Return both hidden layers and m."""
    parts, out = layers(w, x.shape[-1]), []
    for layer in range(3):
        x = multiply(x, parts[2 * layer])
        x += parts[2 * layer + 1]
        if layer < 2:
            np.maximum(x, 0.0, out=x)
        out.append(x)
    return out


def _backward(
    inputs: tuple[Floats, Floats, Floats], slope: Floats, w: Floats, out: Floats, multiply: Multiply
) -> None:
    """Write the gradient in w to `out`, from that in m; `inputs` of the three layers."""
    into, at = layers(out, slope.shape[-1]), layers(w, slope.shape[-1])
    for layer in (2, 1, 0):
        x = inputs[layer]
        into[2 * layer][:] = fitting.product(x.swapaxes(-1, -2), slope)
        slope.sum(axis=-2, keepdims=True, out=into[2 * layer + 1])
        if layer:
            slope = multiply(slope, at[2 * layer].swapaxes(-1, -2))
            slope *= x > 0


def _by_columns(x: Floats, w: Floats) -> Floats:
    """Return x @ w of one w, input by input: a row's bits do not depend on other rows."""
    columns = np.ascontiguousarray(x.reshape(-1, x.shape[-1]).T)
    out = w[0][:, None] * columns[0]
    term = np.empty_like(out)
    for of_input, column in zip(w[1:], columns[1:], strict=True):
        np.multiply(of_input[:, None], column, out=term)
        out += term
    return np.asarray(out.T.reshape(*x.shape[:-1], len(out)))
