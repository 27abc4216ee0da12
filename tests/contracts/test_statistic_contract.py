"""What every client statistic must satisfy, whatever it computes.

The cases are the `examples` of `fedcal.queries.QUERIES`: a new question needs no line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from fedcal.bounding import Bound, Rule
from fedcal.calibrators import OrderPreservingMLP
from fedcal.clients.answers import STATISTICS, answer
from fedcal.errors import InputError
from fedcal.queries import QUERIES, AccuracyGap, Query
from fedcal.queries.request import Request
from fedcal.queries.scaling import form_of
from fedcal.secure_aggregation import Ring
from fedcal.shards import Shards
from fedcal.training.networks import NETWORKS
from fedcal.types import Floats, Integers, Words


def query_of(kind: str, number: int, c: int) -> Query:
    """An example for c classes, with a vector of parameters of the size that these need."""
    query = QUERIES[kind]
    given = dict(query.examples[number])
    given |= {name: c for name in query.facts if name == "classes"}
    if "network" in given:  # of the logits that are there
        given |= {"shape": str(c)} | ({"reach": 100.0} if "reach" in given else {})
        size = NETWORKS[given["network"]].size((c,), c)
        given["w"] = np.random.default_rng(c).normal(0, 0.2, size)
    elif given.get("form") != "temperature" and np.ndim(given.get("w", 0.0)):
        form = form_of(given["form"]) if "form" in given else OrderPreservingMLP
        if len(given["w"]) != form.size(c):
            spread = 0.2 if number else 0.0  # the first one at the identity
            noise = np.random.default_rng(c).normal(0, spread, form.size(c))
            given["w"] = form.identity(c) + noise
    return query(**given)


def fits_any(query: type[Query], example: Mapping[str, Any]) -> bool:
    """Whether `query_of` can make it for another number of classes than three."""
    return "w" in example or not any(np.ndim(v) for v in query(**example).params().values())


EXAMPLES = [(kind, i) for kind, query in QUERIES.items() for i in range(len(query.examples))]
examples = pytest.mark.parametrize(("kind", "number"), EXAMPLES)
cases = pytest.mark.parametrize(
    ("kind", "number", "c"),
    [
        (kind, i, c)
        for kind, i in EXAMPLES
        for c in ((2, 10, 100) if fits_any(QUERIES[kind], QUERIES[kind].examples[i]) else (3,))
    ],
)

CLIENTS = 17
EMPTY = (0, 8, CLIENTS - 1)


def some_shards(c: int, seed: int = 0, rows: int = 150) -> Shards:
    """Accurate but overconfident rows of 17 clients; first, middle and last one are empty."""
    rng = np.random.default_rng([seed, c])
    labels = rng.integers(0, c, rows)
    logits = rng.normal(0, 4, (rows, c))
    logits[np.arange(rows), labels] += 5
    owner = rng.choice(np.setdiff1d(np.arange(CLIENTS), EMPTY), rows)
    owner[:12] = 3  # a large client beside those with a handful of rows
    return Shards.from_owner(logits, labels, owner, CLIENTS)


def alone(shards: Shards, k: int) -> Shards:
    """Client k as it would be at its own site: nothing precomputed, its own memory."""
    rows = slice(int(shards.offsets[k]), int(shards.offsets[k + 1]))
    offsets = np.array([0, shards.rows[k]])
    return Shards(shards.logits[rows].copy(), shards.labels[rows].copy(), offsets)


def without(shards: Shards, k: int) -> Shards:
    """The zero-out neighbour: client k's shard is empty."""
    keep = shards.owner != k
    return Shards.from_owner(
        shards.logits[keep], shards.labels[keep], shards.owner[keep], shards.clients
    )


def same_bits(x: Floats | Words, y: Floats | Words) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes()


def request(query: Query, bound: Bound, clients: int = CLIENTS) -> Request:
    fine = query.fine and bound.per == "row"
    return Request(query, bound, Ring(clients, 2.0**-38 if fine else 2.0**-24), round=1)


@cases
def test_single_calls_stacked_are_one_batched_call(kind: str, number: int, c: int) -> None:
    shards, query = some_shards(c), query_of(kind, number, c)
    batched = STATISTICS[kind](shards, query)
    assert batched.dtype == np.float64
    assert batched.shape[0] == CLIENTS
    assert batched.any()
    fresh = [STATISTICS[kind](alone(shards, k), query) for k in range(CLIENTS)]
    assert same_bits(np.concatenate(fresh), batched)
    carried = [STATISTICS[kind](shards.block(k, k + 1), query) for k in range(CLIENTS)]
    assert same_bits(np.concatenate(carried), batched)


@cases
def test_block_size_and_client_order_change_no_bit(kind: str, number: int, c: int) -> None:
    shards, query = some_shards(c), query_of(kind, number, c)
    whole = STATISTICS[kind](shards, query)
    everybody = np.arange(CLIENTS)
    order = np.random.default_rng(5).permutation(CLIENTS)
    for size in (1, 2, 7, 64):
        ids_of: list[tuple[Integers, Integers]] = [(everybody, everybody), (order, order)]
        for ids, rows in ids_of:
            pieces = [STATISTICS[kind](part, query) for _, part in shards.blocks(ids, size)]
            assert same_bits(np.concatenate(pieces), whole[rows])


@cases
def test_an_empty_shard_is_zero(kind: str, number: int, c: int) -> None:
    query = query_of(kind, number, c)
    inside = STATISTICS[kind](some_shards(c), query)
    assert not inside[list(EMPTY)].any()
    nobody = Shards.from_owner(np.zeros((0, c)), np.zeros(0, np.int64), np.zeros(0, np.int64), 3)
    empty = STATISTICS[kind](nobody, query)
    assert empty.shape == (3, inside.shape[1])
    assert not empty.any()


@cases
@pytest.mark.filterwarnings("error")
def test_extreme_logits_stay_finite_and_bounded(kind: str, number: int, c: int) -> None:
    rows = [
        np.zeros(c),  # all tied
        np.where(np.arange(c) == 0, 1e100, -1e100),
        np.where(np.arange(c) == 0, -1e100, 1e100),
        np.full(c, -1e100),
        np.linspace(-1e100, 1e100, c),
        np.linspace(-800.0, 800.0, c),
        np.linspace(0.0, 5e-324, c),
    ]
    logits = np.repeat(np.array(rows), 2, axis=0)
    labels = np.tile([0, c - 1], len(rows))
    n, query = len(logits), query_of(kind, number, c)
    shards = Shards.from_owner(logits, labels, np.arange(n), n)
    x = STATISTICS[kind](shards, query)
    assert np.isfinite(x).all()
    assert x.any()
    pooled = Shards.from_owner(logits, labels, np.zeros(n, np.int64), 1)
    assert np.isfinite(STATISTICS[kind](pooled, query)).all()
    bound = Bound((x.shape[1],), (2.0,))
    words = answer(shards, request(query, bound, clients=n))
    assert_within(words, bound, 2.0**-24)


RULES: tuple[Rule, ...] = ("joint", "per_block", "per_value")


@examples
def test_neighbours_differ_by_at_most_the_declared_bound(kind: str, number: int) -> None:
    norms = ((0.25, 2), (3.0, 2), (1e4, 2), (0.25, 1), (3.0, 1))
    for rule, (norm, order) in product(RULES, norms):
        neighbours_differ(kind, number, rule, norm, order)


def neighbours_differ(kind: str, number: int, rule: Rule, norm: float, order: Any) -> None:
    c = 10 if fits_any(QUERIES[kind], QUERIES[kind].examples[number]) else 3
    shards, query = some_shards(c), query_of(kind, number, c)
    length = STATISTICS[kind](shards, query).shape[1]
    cut = max(1, length // 2)
    lengths = (cut, length - cut) if length > 1 else (1,)
    bound = Bound(lengths, (norm, 3 * norm)[: len(lengths)], rule, order)
    asked = request(query, bound)
    words = answer(shards, asked)
    total = words.sum(axis=0, dtype=np.uint64)
    for k in (0, 3, 5):
        neighbour = answer(without(shards, k), asked)
        others = np.delete(np.arange(CLIENTS), k)
        assert same_bits(neighbour[others], words[others])
        change = total - neighbour.sum(axis=0, dtype=np.uint64)
        assert change.any() == (k != 0)
        assert_within(change[None], bound, asked.ring.grid)


@examples
def test_with_a_bound_per_row_one_row_changes_no_more_than_it(kind: str, number: int) -> None:
    """Whatever the statistic, also where the sum of its rows' parts means nothing."""
    for rule, order in product(RULES, (1, 2)):
        rows_differ(kind, number, rule, order)


def rows_differ(kind: str, number: int, rule: Rule, order: Any) -> None:
    shards, query = some_shards(3, rows=40), query_of(kind, number, 3)
    length = STATISTICS[kind](shards, query).shape[1]
    cut = max(1, length // 2)
    lengths = (cut, length - cut) if length > 1 else (1,)
    bound = Bound(lengths, (0.5, 1.5)[: len(lengths)], rule, order, "row")
    asked = request(query, bound)
    words = answer(shards, asked)
    for row in (0, 20):
        keep = np.arange(len(shards.labels)) != row
        fewer = answer(
            Shards.from_owner(
                shards.logits[keep], shards.labels[keep], shards.owner[keep], CLIENTS
            ),
            asked,
        )
        change = words - fewer
        others = np.delete(np.arange(CLIENTS), shards.owner[row])
        assert not change[others].any()
        assert_within(change[shards.owner[row]][None], bound, asked.ring.grid)
    same = answer(shards.take(np.arange(CLIENTS)[::-1]), asked)[::-1]
    assert same_bits(np.ascontiguousarray(same), words)


def assert_within(words: Words, bound: Bound, grid: float) -> None:
    """The rule's norms, in exact rational arithmetic."""
    edges = np.cumsum((0, *bound.lengths))
    step = Fraction(grid)
    for row in words.view(np.int64).tolist():
        shares = []
        for b, norm in enumerate(bound.norms):
            block = [int(v) for v in row[edges[b] : edges[b + 1]] if v]
            if bound.rule == "per_value":
                assert max(map(abs, block), default=0) * step <= Fraction(norm)
            total = sum(abs(v) ** bound.order for v in block)
            shares.append(total * (step / Fraction(norm)) ** bound.order)
        if bound.rule == "per_block":
            assert max(shares) <= 1
        elif bound.rule == "joint":
            assert sum(shares) <= 1


class Unknown(AccuracyGap):
    """A question that no client has a statistic for."""

    kind = "row_dump"


def test_an_unknown_query_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="row_dump") as caught:
        answer(some_shards(2), request(Unknown(1.0), Bound((1,))))
    assert "\n" not in str(caught.value)


# --- what a query says of its answer --------------------------------------------------------------


@cases
def test_an_answer_has_the_lengths_and_signs_that_its_query_says(
    kind: str, number: int, c: int
) -> None:
    query = query_of(kind, number, c)
    x = STATISTICS[kind](some_shards(c), query)
    assert x.shape == (CLIENTS, sum(query.lengths()))
    if not query.signed:
        assert (x >= 0).all()


@pytest.mark.parametrize("kind", QUERIES)
def test_what_may_be_negative_is(kind: str) -> None:
    """A sign that is claimed without need costs noise where none would be."""
    least = [
        STATISTICS[kind](some_shards(3), query_of(kind, i, 3)).min()
        for i in range(len(QUERIES[kind].examples))
    ]
    assert (min(least) < 0) == QUERIES[kind].signed


@examples
def test_only_a_sum_over_rows_says_that_it_is_one(kind: str, number: int) -> None:
    shards, query = some_shards(3, rows=40), query_of(kind, number, 3)
    whole = STATISTICS[kind](shards, query)
    rows = STATISTICS[kind](shards.each_row(), query)
    summed = np.zeros_like(whole)
    np.add.at(summed, shards.owner, rows)
    assert np.allclose(summed, whole, rtol=1e-9, atol=1e-9) == query.row_sums


@examples
@pytest.mark.parametrize("order", [1, 2])
def test_the_rows_of_plain_data_mostly_lie_within_the_rows_bound(
    kind: str, number: int, order: Any
) -> None:
    """So that the public rule of a row is about such rows, in the units of the answer."""
    query = query_of(kind, number, 3)
    if not query.row_sums:
        pytest.skip("no sum over rows")
    rows = STATISTICS[kind](some_shards(3, rows=300).each_row(), query)
    norms = query.bound("row", (), order).norms_of(rows).max(axis=1)
    assert norms.max() > 0.05
    assert (norms <= 1 + 1e-9).mean() > 0.3
