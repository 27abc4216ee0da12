"""Laws that every client statistic satisfies, whatever it computes.

The cases are the `examples` of `fedcal.privacy.query.QUERIES`: a new question needs no line here.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from neighbours import (
    CLASSES,
    CLIENTS,
    assert_within,
    kinds,
    numbers,
    of_client,
    query_of,
    request,
    resized,
    same_bits,
)

from fedcal.clients.answers import answer
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy.query import QUERIES, Query
from fedcal.units import Bound, Per, Rule


def cases(kind: str) -> Iterator[tuple[Query, int]]:
    """Its examples as they are; for two and for many classes by turns, the first for both."""
    for number in numbers(kind):
        yield query_of(kind, number), CLASSES
        for c in (2, 13) if number == 0 else ((2, 13)[number % 2],):
            if (query := resized(kind, number, c)) is not None:
                yield query, c


EMPTY = (0, 8, CLIENTS - 1)


def some_shards(c: int, seed: int = 0, rows: int = 150) -> Shards:
    """Accurate but overconfident rows of 17 clients; first, middle and last one are empty."""
    rng = np.random.default_rng([seed, c])
    labels = rng.integers(0, c, rows)
    logits = rng.normal(0, 4, (rows, c))
    logits[np.arange(rows), labels] += 5
    owner = rng.choice(np.setdiff1d(np.arange(CLIENTS), EMPTY), rows)
    owner[:12] = 3  # a large client beside those with a handful of rows
    return rows_by_owner(logits, labels, owner, CLIENTS)


def alone(shards: Shards, k: int) -> Shards:
    """Client k as it would be at its own site: nothing precomputed, its own memory."""
    rows = slice(int(shards.offsets[k]), int(shards.offsets[k + 1]))
    offsets = np.array([0, shards.rows[k]])
    return Shards(shards.logits[rows].copy(), shards.labels[rows].copy(), offsets)


@kinds
def test_single_calls_blocks_and_any_order_are_one_batched_call(kind):
    everybody, order = np.arange(CLIENTS), np.random.default_rng(5).permutation(CLIENTS)
    for query, c in cases(kind):
        shards = some_shards(c)
        batched = query.sums(shards)
        assert batched.dtype == np.float64
        assert batched.any()
        fresh = [query.sums(alone(shards, k)) for k in range(CLIENTS)]
        assert same_bits(np.concatenate(fresh), batched), (query, c)
        for size, ids in ((1, everybody), (7, order)):
            pieces = [query.sums(part) for _, part in shards.blocks(ids, size)]
            assert same_bits(np.concatenate(pieces), batched[ids]), (query, c, size)


@kinds
def test_an_empty_shard_is_zero(kind):
    """And each answer has the lengths and signs that its query says."""
    for query, c in cases(kind):
        x = query.sums(some_shards(c))
        assert x.shape == (CLIENTS, sum(query.lengths())), (query, c)
        assert query.signed or (x >= 0).all(), (query, c)
        assert not x[list(EMPTY)].any(), (query, c)
        none = np.zeros(0, np.int64)
        empty = query.sums(rows_by_owner(np.zeros((0, c)), none, none, 3))
        assert empty.shape == (3, x.shape[1]), (query, c)
        assert not empty.any(), (query, c)


@kinds
@pytest.mark.filterwarnings("error")
def test_extreme_logits_stay_finite_and_bounded(kind):
    for query, c in cases(kind):
        first = np.arange(c) == 0
        rows = [
            np.zeros(c),  # all tied
            np.where(first, 1e100, -1e100),
            np.where(first, -1e100, 1e100),
            np.full(c, -1e100),
            np.linspace(-1e100, 1e100, c),
            np.linspace(-800.0, 800.0, c),
            np.linspace(0.0, 5e-324, c),
        ]
        logits, labels = np.repeat(np.array(rows), 2, axis=0), np.tile([0, c - 1], len(rows))
        n = len(logits)
        shards = rows_by_owner(logits, labels, np.arange(n), n)
        x = query.sums(shards)
        assert np.isfinite(x).all(), (query, c)
        assert x.any(), (query, c)
        pooled = rows_by_owner(logits, labels, np.zeros(n, np.int64), 1)
        assert np.isfinite(query.sums(pooled)).all(), (query, c)
        bound = Bound((x.shape[1],), (2.0,))
        words = answer(shards, request(query, bound, clients=n))
        assert_within(words, bound, 2.0**-24)


RULES: tuple[Rule, ...] = ("joint", "per_block", "per_value")


@kinds
def test_neighbours_differ_by_at_most_the_declared_bound(kind):
    norms = ((0.25, 2), (3.0, 1), (1e4, 2), (0.25, 1), (3.0, 2))
    for number in numbers(kind):
        query = query_of(kind, number)
        for turn, (norm, order) in enumerate(norms[:3]):
            bound = in_halves(query, RULES[(turn + number) % 3], norm, order)
            neighbours_differ(query, CLASSES, bound)
        if (more := resized(kind, number, 10)) is not None:
            norm, order = norms[2 + number % 3]
            neighbours_differ(more, 10, in_halves(more, RULES[number % 3], norm, order))
        for order in (1, 2):
            neighbours_differ(query, CLASSES, of_client(query, order))


def in_halves(query: Query, rule: Rule, norm: float, order: Any, per: Per = "client") -> Bound:
    """Two blocks, the second with three times the norm."""
    length = sum(query.lengths())
    cut = max(1, length // 2)
    lengths = (cut, length - cut) if length > 1 else (1,)
    return Bound(lengths, (norm, 3 * norm)[: len(lengths)], rule, order, per)


def neighbours_differ(query: Query, c: int, bound: Bound) -> None:
    shards = some_shards(c)
    asked = request(query, bound)
    words = answer(shards, asked)
    neighbour = answer(shards.keep(np.flatnonzero(shards.owner != 3)), asked)
    assert same_bits(np.delete(neighbour, 3, axis=0), np.delete(words, 3, axis=0))
    change = words.sum(axis=0, dtype=np.uint64) - neighbour.sum(axis=0, dtype=np.uint64)
    assert change.any()
    assert_within(change[None], bound, asked.ring.grid)


@kinds
def test_with_a_bound_per_row_one_row_changes_no_more_than_it(kind):
    for number in numbers(kind) if QUERIES[kind].row_sums else ():
        query = query_of(kind, number)
        for turn, rule in enumerate(RULES):
            rows_differ(query, in_halves(query, rule, 0.5, 1 + (turn + number) % 2, "row"))
        for order in (1, 2):
            rows_differ(query, replace(query.bound("row", (), order), per="row"))


def rows_differ(query: Query, bound: Bound) -> None:
    shards = some_shards(CLASSES, rows=40)
    asked = request(query, bound)
    words = answer(shards, asked)
    change = words - answer(shards.keep(np.arange(1, len(shards.labels))), asked)
    others = np.delete(np.arange(CLIENTS), shards.owner[0])
    assert not change[others].any()
    assert_within(change[shards.owner[0]][None], bound, asked.ring.grid)
    same = answer(shards.take(np.arange(CLIENTS)[::-1]), asked)[::-1]
    assert same_bits(np.ascontiguousarray(same), words)


@kinds
def test_rows_in_one_pass_have_the_bits_of_rows(kind, monkeypatch):
    """On a fine grid rows are rounded as they are made: see `tests/fedcal/training`."""
    assert QUERIES[kind].examples, f"{kind} has no example"
    if QUERIES[kind].row_words is Query.row_words or QUERIES[kind].fine:
        return
    for number in numbers(kind):
        query = query_of(kind, number)
        own = replace(query.bound("row"), per="row")
        for asked in (request(query, own), request(query, replace(own, rule="joint"))):
            quick = answer(some_shards(CLASSES), asked)
            with monkeypatch.context() as patch:
                patch.setattr(QUERIES[kind], "row_words", Query.row_words)
                assert same_bits(quick, answer(some_shards(CLASSES), asked)), query


@kinds
def test_only_a_sum_over_rows_says_that_it_is_one(kind):
    """And only what may be negative says so: a needless sign costs noise where none would be."""
    least = [query_of(kind, i).sums(some_shards(CLASSES)).min() for i in numbers(kind)]
    assert (min(least) < 0) == QUERIES[kind].signed
    shards = some_shards(CLASSES, rows=40)
    for query in (query_of(kind, i) for i in numbers(kind)):
        full = query.sums(shards)
        summed = np.zeros_like(full)
        np.add.at(summed, shards.owner, query.sums(shards.each_row()))
        assert np.allclose(summed, full, rtol=1e-9, atol=1e-9) == query.row_sums, query
