"""Rows by score and outcome, encoded."""

from __future__ import annotations

import base64
import binascii
import math
from functools import lru_cache
from io import BytesIO

import numpy as np

from fedcal.bounding import SLACK, Bound
from fedcal.buckets import Score, bucket_of, scored
from fedcal.calibrators import Calibrator, load
from fedcal.clients.outcomes import one_of_each
from fedcal.encodings import node_of
from fedcal.errors import InputError
from fedcal.queries import ScoreCell, ScoreCounts
from fedcal.secure_aggregation import ClientSums, Ring
from fedcal.shards import Shards
from fedcal.types import Floats, Integers, Words

_MOST_IN_HALVES = 2**20
"""Rows of a client up to which sums of 32-bit halves are exact in doubles."""


def score_counts(shards: Shards, query: ScoreCounts) -> Floats:
    """What each client sends: its counts, or what they differ from the reference by, encoded.

    Returns
    -------
    Floats
        (clients, numbers) in rows times the encoding's weights and `gain`
    """
    answers = query.encode(counts_of(shards, query).astype(np.float64))  # whole numbers: exact
    if query.reference is not None:
        expected = query.encode(query.reference[None])[0]
        answers = answers - shards.rows[:, None] * expected
    return answers if query.gain == 1 else answers * query.gain


def counts_of(shards: Shards, query: ScoreCounts) -> Integers:
    """The counts themselves, (clients, counts)."""
    each = cells_of(shards, query)
    place = shards.owner[:, None] * query.counts + each
    counted = np.bincount(place[each >= 0], minlength=shards.clients * query.counts)
    return counted.reshape(shards.clients, query.counts)


def score_cell(shards: Shards, query: ScoreCell) -> Floats:
    """The node that one row of each client is under, drawn as in `outcomes.outcome_cell`.

    Returns
    -------
    Floats
        (clients, numbers): a single 1; zeros if the client has no rows
    """
    asked = query.as_counts
    outcome, bucket = np.divmod(cells_of(shards, asked)[:, 0], asked.buckets)
    nodes = query.nodes.start + node_of(asked.buckets, asked.height, query.level)
    return one_of_each(
        shards, outcome * sum(asked.levels) + nodes[bucket], query.lengths()[0], query.seed
    )


def row_words(shards: Shards, query: ScoreCounts, bound: Bound, ring: Ring) -> Words | None:
    """Each client's sum over its rows, every row encoded by itself; None = not by this way.

    The words are those that clipping, encoding and adding up row after row gives: a row's part is
    a 1 in one count of each histogram, so it has one of few values, all of them inside the bound.
    They are added up by how often they occur.

    Returns
    -------
    Words or None
        (clients, length) uint64, saturated as `ClientSums` is
    """
    inside = query.row_norm(bound.order) * query.gain <= min(bound.norms) * (1.0 - SLACK)
    most = int(shards.rows.max(initial=0))
    if not inside or len(bound.norms) > 1 or query.reference is not None or most > _MOST_IN_HALVES:
        return None
    counts = counts_of(shards, query)
    size = math.prod(query.shape)
    halves = counts[:, :size].reshape(shards.clients, -1, query.buckets)
    sums = ClientSums(shards.clients, bound.length, ring)
    parts = []
    for high_or_low in _halves(ring.encode(query.matrix.T * query.gain)):
        coded = halves.astype(np.float64) @ high_or_low.astype(np.float64)
        parts.append(coded.astype(np.int64).reshape(shards.clients, -1))
    for k, word in enumerate(_halves(ring.encode(np.array([[query.weight * query.gain]])))):
        parts[k] = np.concatenate([parts[k], counts[:, size:] * word[0, 0]], axis=1)
    sums.add_halves(*parts)
    return sums.saturated()


def _halves(words: Words) -> tuple[Integers, Integers]:
    """Upper and lower 32 bits of signed words."""
    signed = words.view(np.int64)
    return signed >> 32, signed & np.int64(2**32 - 1)


def cells_of(shards: Shards, query: ScoreCounts) -> Integers:
    """The counts that each row is in, (n, query.ones); -1 = in none."""
    return shards.derived(("score cells", query.counted), lambda s: _cells(s, query))


def _cells(shards: Shards, query: ScoreCounts) -> Integers:
    views, groups, parts, _, buckets = query.shape
    score: Score = query.score  # type: ignore[assignment]
    group = _group_of(shards, query)[:, None]
    rows = [_logits(shards, view, query) for view in query.view_names]
    found = []
    for v, logits in enumerate(rows):
        value, outcome = scored(logits, shards.labels, score)
        place = ((v * groups + group) * parts + np.arange(parts)) * 2 + outcome
        cell = place * buckets + bucket_of(value, query.bucket_edges)
        found.append(np.where(group >= 0, cell, -1))
    start, classes = math.prod(query.shape), query.classes
    predicted = [logits.argmax(axis=1) for logits in rows]
    if query.confusion:
        for v, of in enumerate(predicted):
            found.append((start + (v * classes + of) * classes + shards.labels)[:, None])
        start += views * classes**2
    if views == 2:
        first, second = (of == shards.labels for of in predicted)
        found.append((start + 2 * ~first + ~second)[:, None])
    return np.concatenate(found, axis=1)


def _group_of(shards: Shards, query: ScoreCounts) -> Integers:
    """Number of each row's group in the question, (n,); -1 = it has none of them."""
    names = query.group_names
    if names == ("",):
        return np.zeros(len(shards.labels), np.int64)
    if shards.groups is None:
        raise InputError("the question counts groups of rows, and these rows have no column group")
    place = {name: k for k, name in enumerate(names)}
    of = np.array([place.get(name, -1) for name in shards.group_names], np.int64)
    return of[shards.groups]


def _logits(shards: Shards, view: str, query: ScoreCounts) -> Floats:
    """The scores that a view is about, as logits, (n, c)."""
    if view == "model":
        return shards.logits
    if view == "other":
        if shards.other is None:
            raise InputError("the question is about a second model, and these rows have one only")
        return shards.other
    calibrator = _calibrator(query.calibrator)
    return np.log(np.maximum(calibrator.calibrated(shards.logits), 1e-12))


@lru_cache(4)
def _calibrator(text: str) -> Calibrator:
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("the calibrator of the question is no base64 text") from None
    return load(BytesIO(content))
