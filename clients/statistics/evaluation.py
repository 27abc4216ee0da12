"""Rows by score and outcome, encoded; sums of differences of one metric alone."""

from __future__ import annotations

import math

import numpy as np

from fedcal.clients.statistics.histograms import one_of_each
from fedcal.core.shards import Shards
from fedcal.core.types import Floats, Integers, Words
from fedcal.evaluation.counting import cells_of, counts_of
from fedcal.queries import ScoreCell, ScoreCounts
from fedcal.queries.encodings import node_of
from fedcal.secure_aggregation import ClientSums, Ring
from fedcal.units.bounding import Bound

MOST_IN_HALVES = 2**20
"""Rows of a client up to which sums of 32-bit halves are exact in doubles."""


def score_counts(shards: Shards, query: ScoreCounts) -> Floats:
    """Return each client's counts, or their difference from the reference, encoded.

    Returns (clients, numbers) in rows times the encoding's weights and `gain`.
    """
    answers = query.encode(counts_of(shards, query).astype(np.float64))  # exact: short numbers
    if query.reference is not None:
        expected = query.encode(query.reference[None])[0]
        answers = answers - shards.rows[:, None] * expected
    return answers if query.gain == 1 else answers * query.gain


def score_cell(shards: Shards, query: ScoreCell) -> Floats:
    """Return the node of one row of each client, drawn as in `outcomes.outcome_cell`.

    Returns (clients, numbers): a single 1; zeros if the client has no rows.
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
    if query.pad or query.subject_rows or (query.tail_nodes and not query.seed):
        return None
    inside = query.row_norm(bound.order) * query.gain <= min(bound.norms) * bound.most
    most = int(shards.rows.max(initial=0))
    if not inside or len(bound.norms) > 1 or query.reference is not None or most > MOST_IN_HALVES:
        return None
    counts = counts_of(shards, query).astype(np.int64)
    size = math.prod(query.shape)
    halves = counts[:, :size].reshape(shards.clients, -1, query.buckets)
    sums = ClientSums(shards.clients, bound.length, ring)
    parts = counted_words(halves, ring.encode(query.matrix.T * query.gain))
    for k, word in enumerate(halves_of(ring.encode(np.array([[query.weight * query.gain]])))):
        parts[k] = np.concatenate([parts[k], counts[:, size:] * word[0, 0]], axis=1)
    sums.add_halves(*parts)
    return sums.saturated()


def counted_words(counts: Integers, words: Words) -> list[Integers]:
    """Upper and lower 32 bits of words, times how often each row of them occurs, added up.

    By products of doubles, which are exact for `MOST_IN_HALVES` rows of a client.

    Parameters
    ----------
    counts
        (clients, groups, kinds)
    words
        (kinds, numbers)

    Returns
    -------
    list[Integers]
        two of (clients, groups * numbers)
    """
    each, many = counts.astype(np.float64), len(counts)
    sums = (each @ half.astype(np.float64) for half in halves_of(words))
    return [total.astype(np.int64).reshape(many, -1) for total in sums]


def halves_of(words: Words) -> tuple[Integers, Integers]:
    """Upper and lower 32 bits of signed words."""
    signed = words.view(np.int64)
    return signed >> 32, signed & np.int64(2**32 - 1)
