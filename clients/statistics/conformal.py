"""Rows by the conformity score of their label: what prediction sets are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcal.clients.statistics.evaluation import MOST_IN_HALVES, counted_words, halves_of
from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers, Words
from fedcal.evaluation.counting import group_of
from fedcal.queries.conformal import SetCounts, SetGaps, SetQuery
from fedcal.secure_aggregation import ClientSums, Ring
from fedcal.units.bounding import Bound

_APART = 0x5E75
"""What tells the hash that a row is drawn by from that which randomises its score."""


def set_gaps(shards: Shards, query: SetGaps) -> Floats:
    """sum_i (hit [score_i <= t] - need) of each part and threshold.

    Returns (clients, parts * thresholds).
    """
    shape = (shards.clients, query.parts, len(query.thresholds))
    sums = np.zeros(shape)
    for which, hit, need in _kinds(shards, query):
        counts = _counts(shards, query, which).astype(np.float64)
        rows = counts.sum(axis=2, keepdims=True)
        sums += np.cumsum(counts, axis=2)[:, :, :-1] * hit - rows * need
    return sums.reshape(shards.clients, -1)


def set_counts(shards: Shards, query: SetCounts) -> Floats:
    """Rows in each bucket of each part, encoded.

    Returns (clients, numbers) in rows times the encoding's weights.
    """
    counts = _counts(shards, query)[:, :, :-1].astype(np.float64)  # whole numbers: exact
    coded = counts if query.encoding == "flat" else counts @ query.matrix.T
    return coded.reshape(shards.clients, -1)


def row_words(shards: Shards, query: SetGaps | SetCounts, bound: Bound, ring: Ring) -> Words | None:
    """Each client's sum over its rows, every row encoded by itself; None = not by this way.

    The words are those that clipping, encoding and adding up row after row gives: what a row adds
    to a number is one of two values, both inside the bound, so they are added up by how often they
    occur.

    Returns
    -------
    Words or None
        (clients, length) uint64, saturated as `ClientSums` is
    """
    many = shards.rows.max(initial=0) > MOST_IN_HALVES
    if len(bound.norms) > 1 or many or query.once or not _inside(query, bound):
        return None
    sums = ClientSums(shards.clients, bound.length, ring)
    if isinstance(query, SetGaps):
        for which, hit, need in _kinds(shards, query):
            counts = _counts(shards, query, which)
            below, rows = np.cumsum(counts, axis=2)[:, :, :-1], counts.sum(axis=2, keepdims=True)
            values = ring.encode(np.array([[hit - need, -need]]))
            parts = [
                (below * each[0, 0] + (rows - below) * each[0, 1]).reshape(shards.clients, -1)
                for each in halves_of(values)
            ]
            sums.add_halves(*parts)
    else:
        counts = _counts(shards, query)[:, :, :-1]
        sums.add_halves(*counted_words(counts, ring.encode(query.matrix.T)))
    return sums.saturated()


def _inside(query: SetGaps | SetCounts, bound: Bound) -> bool:
    """Return whether no row is clipped."""
    room = min(bound.norms, default=0.0) * bound.most
    if isinstance(query, SetGaps):
        return query.row_bound <= room
    return bool(np.linalg.norm(query.matrix, bound.order, axis=0).max() <= room)


def _kinds(shards: Shards, query: SetGaps) -> list[tuple[NDArray[np.bool_] | None, float, float]]:
    """Labels with the same hit and need: which rows have them (None = all), hit, need."""
    both = np.stack(np.broadcast_arrays(query.hit, query.need), axis=1)
    each, of = np.unique(both, axis=0, return_inverse=True)
    if len(each) == 1:
        return [(None, float(each[0, 0]), float(each[0, 1]))]
    of_row = of.reshape(-1)[shards.labels]
    return [(of_row == k, float(hit), float(need)) for k, (hit, need) in enumerate(each)]


def _counts(shards: Shards, query: SetQuery, which: NDArray[np.bool_] | None = None) -> Integers:
    """Rows in each bucket, and above the last threshold, (clients, parts, thresholds + 1)."""
    buckets = len(query.thresholds) + 1
    cells = (shards.owner * query.parts + _parts(shards, query)) * buckets + _buckets(shards, query)
    shape = (shards.clients, query.parts, buckets)
    if query.once:
        first = shards.drawn(query.seed ^ _APART)
        which = first if which is None else which & first
    picked = cells if which is None else cells[which]
    return np.bincount(picked, minlength=int(np.prod(shape))).reshape(shape)


def _parts(shards: Shards, query: SetQuery) -> Integers:
    """Return the part of each row, (n,)."""
    if query.by == "class":
        return shards.labels
    return group_of(shards, query.names)


def _buckets(shards: Shards, query: SetQuery) -> Integers:
    """Return the bucket of each row, (n,), computed once a run."""
    of = query.conformity
    scores = shards.derived(("conformity", of), lambda s: of.of_labels(s.logits, s.labels, s.input))
    return np.searchsorted(query.thresholds, scores, side="left")
