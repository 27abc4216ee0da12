"""Base of scaling calibrators with a vector of parameters: forms, fits, files.

The best parameters on each client's own rows are found for all clients at once, by batched L-BFGS;
a pooled fit is that of a single client.

Gauss-Newton curvature J' (diag p - p p') J, in closed form, summed over blocks of rows.

Parameter j of the forms here moves the indicator 1{i = k}, k = j mod c, of the class i that is
drawn from p. With J's entry as `factors`,

    H[j, l] = sum over rows of factors_j factors_l Cov(indicator of j, indicator of l).

Complements 1 - p are added up from the other classes: of a confident row the difference has no
digits left.

A block is `rows` rows of *one* client, one behind the other, and its sum is one small matrix
product of a shape of its own. So it has the same bits alone and among other blocks and, with at
most 64 rows, for any number of threads of the library that multiplies.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedcal.calibrators.base import Calibrator
from fedcal.calibrators.minimisers import MEMORY, dot_rows, fit_in_span, minimize, residuals
from fedcal.core.checks import integer
from fedcal.core.fitting import INNER
from fedcal.core.numerics import Floats, Integers, Kind, softmax
from fedcal.core.options import array
from fedcal.core.scores import LARGEST_LOGIT
from fedcal.core.shards import Shards


def class_triangle(probs: Floats, factors: Floats, rows: int) -> Floats:
    """Return H's upper triangle for indicators 1{i = k}: p_k (1 - p_k), and -p_k p_l beside it.

    Parameters
    ----------
    probs
        (blocks rows, c)
    factors
        (blocks rows, size), size a multiple of c
    rows
        number of rows of each block

    Returns
    -------
    Floats
        (blocks, size (size + 1) / 2) row by row
    """
    others = np.zeros_like(probs)
    others[:, 1:] = np.cumsum(probs[:, :-1], axis=1)
    others[:, :-1] += _tails(probs)
    c, size = probs.shape[1], factors.shape[1]
    drawn = factors * np.tile(probs, size // c)
    out = product_triangle(-drawn, drawn, rows)
    first, second = _pairs(size)
    same = np.flatnonzero(first % c == second % c)
    first, second = first[same], second[same]
    variances = factors[:, first] * (probs * others)[:, first % c] * factors[:, second]
    out[:, same] = variances.reshape(-1, rows, len(same)).sum(axis=1)
    return out


def product_triangle(left: Floats, right: Floats, rows: int) -> Floats:
    """Return left' right's upper triangle by block: (blocks rows, size) as `class_triangle`."""
    size = left.shape[1]
    first, second = _pairs(size)
    a, b = left.reshape(-1, rows, size), right.reshape(-1, rows, size)
    product = np.matmul(a.swapaxes(1, 2), b).reshape(-1, size * size)
    return np.asarray(np.take(product, first * size + second, axis=1))


def rank_variances(probs: Floats) -> Floats:
    """Return Var 1{i <= k} = S_k (1 - S_k), (n, c) -> (n, c)."""
    out = np.zeros_like(probs)
    np.multiply(np.cumsum(probs[:, :-1], axis=1), _tails(probs), out=out[:, :-1])
    return out


def _tails(probs: Floats) -> Floats:
    """Return sum_{l > k} p_l for all k but the last, (n, c - 1)."""
    return np.cumsum(probs[:, :0:-1], axis=1)[:, ::-1]


@lru_cache(maxsize=8)
def _pairs(size: int) -> tuple[Integers, Integers]:
    """Return row and column of each entry of the upper triangle."""
    first, second = np.triu_indices(size)
    first.flags.writeable = second.flags.writeable = False
    return first, second


LIMIT = 20.0
"""No parameter leaves its identity by more: rows without errors have their optimum at infinity."""

_CACHED = 1 << 14  # numbers of a piece of rows, times parameters
_WIDE = 1 << 20  # the same where one row has so many parameters
_MANY = 32  # classes from which on c^2 parameters are more work than n^2 products of rows
_LONG = 4096  # rows of a piece: a library that adds more at once may split them over threads
_STATE = 1 << 24  # numbers that the memory of a block of clients may hold
_POOLED_LOGITS, _POOLED_STEPS = 200_000_000, (300, 2000)


class ParametricScaling(Calibrator):
    """softmax(scores), where the scores of a row depend on one flat vector of parameters.

    The class methods are the *form*: pure functions over rows that clients, server and pooled
    fit share. In all of them `w` is the one vector of everybody, (size,), or each row's own,
    (n, size), and no row looks at another one.

    Parameters
    ----------
    w
        (size,) parameters; None = the identity map
    classes
        number of classes; 0 = not fitted yet
    """

    parameters = ("w",)
    limits: ClassVar[tuple[float, ...]] = (LIMIT,)
    """Maximum distance of the parameters from the identity, one for all or one for each."""

    def __init__(self, w: ArrayLike | None = None, classes: int = 0) -> None:
        super().__init__(classes)
        if w is None:
            self.w = self.identity(classes) if classes else np.zeros(0)
            return
        size = (self.size(integer("classes", classes, 2)),)
        what = f"parameters of {self.kind} scaling of {classes} classes"
        self.w = array(what, w, size, -LARGEST_LOGIT, LARGEST_LOGIT)  # finite products with logits

    # -- the form -------------------------------------------------------------------------

    @classmethod
    def size(cls, classes: int) -> int:
        """Return the number of parameters."""
        return len(cls.identity(classes))

    @classmethod
    @abstractmethod
    def identity(cls, classes: int) -> Floats:
        """Return the parameters, (size,), that leave probabilities unchanged."""

    @classmethod
    def features(cls, logits: Floats, labels: Integers) -> tuple[Floats, Integers]:
        """Return each row's input of `scores`, (n, c), and the column of its label there, (n,)."""
        return logits, labels

    @classmethod
    @abstractmethod
    def scores(cls, features: Floats, w: Floats) -> Floats:
        """Return calibrated logits in the columns of `features`, (n, c)."""

    @classmethod
    @abstractmethod
    def pull_back(cls, features: Floats, w: Floats, residual: Floats) -> Floats:
        """Return the gradient in w of each row's loss, (n, size), from that in scores, (n, c)."""

    wide: ClassVar[bool] = False
    """More parameters than there is room for beside each row: `scores` gets one w at a time."""

    @classmethod
    def gradient(cls, features: Floats, w: Floats, residual: Floats) -> Floats:
        """Return `pull_back` summed in order over rows that share one w, (size,)."""
        return np.asarray(cls.pull_back(features, w, residual).sum(axis=0))

    @classmethod
    def diagonal(cls, features: Floats, w: Floats, probs: Floats) -> Floats:
        """Return each row's diagonal of the Gauss-Newton curvature at `probs`, (n, size).

        Here of forms whose scores are linear in w: of (a, b), (p (1 - p) z^2, p (1 - p)).
        """
        return cls.pull_back(features * features, w, probs * (1 - probs))

    @classmethod
    def triangle(cls, features: Floats, w: Floats, probs: Floats, rows: int) -> Floats:
        """Return the complete curvature, summed over blocks of `rows` consecutive rows.

        Upper triangle row by row, (n / rows, size (size + 1) / 2).
        """
        raise NotImplementedError(f"{cls.kind} scaling has no full curvature")

    # -- the calibrator -------------------------------------------------------------------

    def _fit(self, z: Floats, y: Integers) -> None:
        """Fit the parameters by maximum likelihood on pooled rows.

        Each within 20 of the identity. Where the loss is not convex (order-preserving kinds): a
        minimum downhill from the identity.

        The number of evaluations of the loss is at most that which reads 2e8 logits, from 300 to
        2000. Up to 10 classes most fits converge before. With 100 classes and 5000 rows these are
        400: the order-preserving vector form ends 2e-5 nats a row above its loss after 2000, and
        matrix scaling, whose optimum on rows without errors is at infinity, goes part of the way.
        """
        shards = Shards(z, y, np.array([0, len(y)]))
        start = self.identity(shards.classes)
        steps = int(np.clip(_POOLED_LOGITS // z.size, *_POOLED_STEPS))
        self.w = local_fits(type(self), shards, start, steps=steps)[0]

    def _predict(self, logits: Floats, input: Kind) -> Floats:
        return softmax(self.scores(logits, self.w))

    def at_limits(self) -> list[str]:
        """Say how many parameters are as far from the identity as they may be."""
        off = np.abs(self.w - self.identity(self.classes)) >= np.multiply(self.limits, 1 - 1e-6)
        sentence = f"{off.sum()} of {off.size} parameters are at a limit: the best may lie beyond."
        return [sentence] * bool(off.any())


def local_fits(
    form: type[ParametricScaling],
    shards: Shards,
    start: Floats,
    *,
    proximal: float = 0.0,
    steps: int = 50,
) -> Floats:
    """Fit each client's parameters by maximum likelihood on its own rows.

    The objective is sum_i -log p_i[y_i] + `(proximal / 2) |w - start|^2`, within
    `|w - identity| <= 20` for each parameter. `proximal` = 0 is the local training of Maddock et
    al., Algorithm 2, solved instead of stepped; > 0 is FedProx (Li et al. 2020), which keeps a
    client of few rows near all others.

    L-BFGS from the diagonal of the curvature at `start`, projected on the box, with backtracking:
    no step ends higher than it began, also where the loss is not convex. With 32 classes or more,
    matrix scaling that is held near its start is fitted in the span of the client's rows instead
    (see `span_fit`), if that optimum lies in the box. All clients are fitted together, but a client
    is frozen at *its own* convergence, and its sums run over its own rows in an order that depends
    on these alone. So its answer does not depend on which clients share the block.

    Parameters
    ----------
    form
        kind of scaling
    shards
        rows of the clients; clients without rows stay at `start`
    start
        (size,)
    proximal
        weight of the squared distance from `start`, in nats, >= 0
    steps
        maximum number of evaluations of the loss and its gradient, each a pass over the rows

    Returns
    -------
    Floats
        (clients, size)
    """
    start = np.asarray(start, np.float64)
    out = np.tile(start, (shards.clients, 1))
    rows_of(form, shards)  # computed once, carried along by `blocks`
    middle = form.identity(shards.classes)
    low, high = middle - LIMIT, middle + LIMIT
    left = shards.rows > 0
    if form.wide and proximal > 0 and shards.classes >= _MANY:
        for k in np.flatnonzero(left & (shards.rows <= 2 * shards.classes)).tolist():
            x, columns = rows_of(form, shards.block(k, k + 1))
            w = start + fit_in_span(x, columns, form.scores(x, start), proximal, steps)
            if (low <= w).all() and (w <= high).all():
                out[k], left[k] = w, False
    block = max(1, _STATE // (2 * MEMORY * len(middle)))
    for ids, part in shards.blocks(np.flatnonzero(left), block):
        problems = LocalLosses(form, *rows_of(form, part), part.rows, start, proximal)
        begin = np.tile(np.clip(start, low, high), (len(ids), 1))
        out[ids] = minimize(problems, begin, low, high, steps)
    return out


def rows_of(form: type[ParametricScaling], shards: Shards) -> tuple[Floats, Integers]:
    """Return the form's features (n, c) and columns of the labels (n,), computed once a run."""
    return (
        shards.derived(("features", form.kind), lambda s: form.features(s.logits, s.labels)[0]),
        shards.derived(("column", form.kind), lambda s: form.features(s.logits, s.labels)[1]),
    )


class LocalLosses:
    """Objectives of `local_fits` for clients that all have rows, in pieces that fit the cache.

    A piece is some clients with all of their rows, or some of the rows of one client. The number of
    pieces of a client depends on its own number of rows alone.
    """

    def __init__(
        self,
        form: type[ParametricScaling],
        features: Floats,
        columns: Integers,
        rows: Integers,
        start: Floats,
        proximal: float = 0.0,
    ) -> None:
        self.form, self.features, self.columns, self.rows = form, features, columns, rows
        self.start, self.proximal = start, proximal
        self.scale = rows.astype(np.float64)
        self._owner = np.repeat(np.arange(len(rows)), rows)
        self._pieces = self._cut(features.shape[1] if form.wide else len(start))

    def _cut(self, width: int) -> list[tuple[int, int, int, int]]:
        """Return first client, last + 1, first row, last + 1 of each piece."""
        most = min(max(1, _CACHED // width), _LONG)
        ends, pieces, k = np.cumsum(self.rows), [], 0
        while k < len(ends):
            first, stop = int(ends[k] - self.rows[k]), k + 1
            if not self.form.wide:
                stop = max(stop, int(np.searchsorted(ends, first + most, "right")))
            last = int(ends[stop - 1])
            pieces += [(k, stop, a, min(a + most, last)) for a in range(first, last, most)]
            k = stop
        return pieces

    def take(self, ids: Integers) -> LocalLosses:
        """Return the clients `ids`, in rising order (a copy)."""
        keep = np.isin(self._owner, ids)
        features, columns = self.features[keep], self.columns[keep]
        return LocalLosses(self.form, features, columns, self.rows[ids], self.start, self.proximal)

    def value(self, w: Floats) -> tuple[Floats, Floats]:
        """Return each client's objective and its gradient: (k, size) -> (k,), (k, size)."""
        away = w - self.start
        value = self.proximal / 2 * dot_rows(away, away)
        gradient = self.proximal * away
        for k, stop, a, b in self._pieces:
            x, own = self.features[a:b], self._own(w, k, stop, a, b)
            loss, residual = residuals(self.form.scores(x, own), self.columns[a:b])
            value[k:stop] += np.bincount(self._owner[a:b] - k, loss, stop - k)
            if stop == k + 1:
                gradient[k] += self.form.gradient(x, own, residual)
            else:
                of_rows = self.form.pull_back(x, own, residual)
                gradient[k:stop] += self._sum(of_rows, k, stop, a, b)
        return value, gradient

    def diagonal(self, w: Floats) -> Floats:
        """Return the diagonal of each client's curvature, (k, size) -> (k, size)."""
        out = np.full(w.shape, self.proximal)
        for k, stop, first, last in self._pieces:
            most = max(1, _WIDE // w.shape[1]) if self.form.wide else last - first
            for a in range(first, last, most):
                b = min(a + most, last)
                x, own = self.features[a:b], self._own(w, k, stop, a, b)
                p = softmax(self.form.scores(x, own))
                out[k:stop] += self._sum(self.form.diagonal(x, own, p), k, stop, a, b)
        return out

    def triangle(self, w: Floats) -> Floats:
        """Return each client's curvature without `proximal`: its upper triangle, row by row.

        (k, size) -> (k, size (size + 1) / 2)
        """
        size = w.shape[1]
        out = np.zeros((len(w), size * (size + 1) // 2))
        for ids, rows in self._blocks(size):
            x, n = self.features[rows.ravel()], rows.shape[1]
            own = w[ids[0]] if len(ids) == 1 else np.repeat(w[ids], n, axis=0)
            p = softmax(self.form.scores(x, own))
            for k, total in zip(ids, self.form.triangle(x, own, p, n), strict=True):
                out[k] += total  # a client may have a number of blocks
        return out

    def _blocks(self, size: int) -> Iterator[tuple[Integers, Integers]]:
        """Yield clients, (m,), and rows, (m, n), of blocks of n rows of one client each.

        A client's rows are cut into blocks of 64 and a rest; those of equal length come
        together, the longest first, so that each client sees its rows in their order.
        """
        count, ends = -(-self.rows // INNER), np.cumsum(self.rows)
        ids = np.repeat(np.arange(len(count)), count)
        nth = np.arange(len(ids)) - np.repeat(np.cumsum(count) - count, count)
        first = (ends - self.rows)[ids] + INNER * nth
        lengths = np.minimum(ends[ids] - first, INNER)
        for n in np.unique(lengths)[::-1].tolist():
            equal = np.flatnonzero(lengths == n)
            most = 1 if self.form.wide else max(1, _CACHED // (size * max(size, n)))
            for i in range(0, len(equal), most):
                at = equal[i : i + most]
                yield ids[at], first[at, None] + np.arange(n)

    def _own(self, w: Floats, k: int, stop: int, a: int, b: int) -> Floats:
        """Return one client's w, or that of each row."""
        return w[k] if stop == k + 1 else np.take(w, self._owner[a:b], axis=0)

    def _sum(self, of_rows: Floats, k: int, stop: int, a: int, b: int) -> Floats:
        """Sum over each client's rows in order (as `sum(axis=0)` adds, except one column)."""
        size = of_rows.shape[1]
        cells = (self._owner[a:b] - k)[:, None] * size + np.arange(size)
        total = np.bincount(cells.ravel(), of_rows.ravel(), (stop - k) * size)
        return np.asarray(total.reshape(-1, size))
