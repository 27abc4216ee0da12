"""What every client statistic must satisfy, whatever it computes.

The cases are the `examples` of `fedcal.queries.QUERIES`: a new question needs no line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest

from fedcal.bounding import Bound, Per, Rule
from fedcal.calibrators import OrderPreservingMLP
from fedcal.clients.answers import QUICK, STATISTICS, answer
from fedcal.errors import InputError
from fedcal.queries import QUERIES, AccuracyGap, Query
from fedcal.queries.request import Request
from fedcal.queries.scaling import form_of
from fedcal.secure_aggregation import Ring
from fedcal.shards import Shards
from fedcal.training.networks import NETWORKS
from fedcal.types import Floats, Integers, Words

CLASSES = 3
"""That examples are for."""


def of_network(example: Mapping[str, Any], c: int) -> dict[str, Any]:
    """Weights of a network that reads the logits that are there."""
    size = NETWORKS[example["network"]].size((c,), c)
    return {"shape": str(c), "w": np.random.default_rng(c).normal(0, 0.2, size)}


def of_form(example: Mapping[str, Any], c: int) -> dict[str, Any]:
    """Parameters of a scaling near its identity."""
    name = example.get("form", OrderPreservingMLP.kind)
    if name == "temperature":
        return {}
    form = form_of(name) if "form" in example else OrderPreservingMLP
    return {"w": form.identity(c) + np.random.default_rng(c).normal(0, 0.2, form.size(c))}


RESIZED = {
    "gradients": of_network,
    "local_update": of_network,
    "mlp_update": of_form,
    "scaling_gradients": of_form,
    "scaling_newton": of_form,
    "scaling_update": of_form,
}
"""Questions with a vector whose size depends on the classes, and how to make it. A question that is
not here is tested with its own examples, and for other numbers of classes if it has no vector."""


def query_of(kind: str, number: int, c: int = CLASSES) -> Query:
    """An example as its question has it, or for another number of classes."""
    query = QUERIES[kind]
    given = dict(query.examples[number])
    if c != CLASSES:
        given |= {name: c for name in query.facts if name == "classes"}
        given |= RESIZED[kind](given, c) if kind in RESIZED else {}
    return query(**given)


def fits_any(kind: str, number: int) -> bool:
    """Return whether `query_of` can make it for another number of classes."""
    vectors = any(np.ndim(v) for v in query_of(kind, number).params().values())
    return kind in RESIZED or not vectors


EXAMPLES = [(kind, i) for kind, query in QUERIES.items() for i in range(len(query.examples))]
examples = pytest.mark.parametrize(("kind", "number"), EXAMPLES)
cases = pytest.mark.parametrize(
    ("kind", "number", "c"),
    [
        (kind, i, c)
        for kind, i in EXAMPLES
        for c in ((CLASSES, 2, 10, 100) if fits_any(kind, i) else (CLASSES,))
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


MOST_CLIPS = 8
RULES: tuple[Rule, ...] = ("joint", "per_block", "per_value")


@examples
def test_neighbours_differ_by_at_most_the_declared_bound(kind: str, number: int) -> None:
    norms = ((0.25, 2), (3.0, 2), (1e4, 2), (0.25, 1), (3.0, 1))
    for c in (CLASSES, 10) if fits_any(kind, number) else (CLASSES,):
        query = query_of(kind, number, c)
        for rule, (norm, order) in product(RULES, norms):
            neighbours_differ(query, c, in_halves(query, rule, norm, order))
    for order in (1, 2):
        neighbours_differ(query_of(kind, number), CLASSES, of_client(query_of(kind, number), order))


def in_halves(query: Query, rule: Rule, norm: float, order: Any, per: Per = "client") -> Bound:
    """Two blocks, the second with three times the norm."""
    length = sum(query.lengths())
    cut = max(1, length // 2)
    lengths = (cut, length - cut) if length > 1 else (1,)
    return Bound(lengths, (norm, 3 * norm)[: len(lengths)], rule, order, per)


def of_client(query: Query, order: Any) -> Bound:
    """The question's own bound of a client, with as many clips as it takes."""
    for clips in range(MOST_CLIPS + 1):
        with suppress(InputError):
            return query.bound("client", (2.0,) * clips, order)
    raise AssertionError(f"{query.kind} has no bound of a client")


def neighbours_differ(query: Query, c: int, bound: Bound) -> None:
    shards = some_shards(c)
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
    query = query_of(kind, number)
    for rule, order in product(RULES, (1, 2)):
        rows_differ(query, in_halves(query, rule, 0.5, order, "row"))
    for order in (1, 2) if query.row_sums else ():
        rows_differ(query, replace(query.bound("row", (), order), per="row"))


def rows_differ(query: Query, bound: Bound) -> None:
    shards = some_shards(CLASSES, rows=40)
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


@pytest.mark.parametrize("kind", QUERIES)
def test_each_question_has_examples_that_are_tested(kind: str) -> None:
    assert [i for k, i in EXAMPLES if k == kind], f"{kind} has no example"


ONE_PASS = [(k, i) for k, i in EXAMPLES if k in QUICK and not QUERIES[k].fine]
"""On a fine grid rows are rounded as they are made, and not to the bits of floats: see
`tests/fedcal/training`."""


@pytest.mark.parametrize(("kind", "number"), ONE_PASS)
def test_rows_in_one_pass_have_the_bits_of_rows(
    kind: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = query_of(kind, number)
    asked = request(query, replace(query.bound("row"), per="row"))
    quick = answer(some_shards(CLASSES), asked)
    monkeypatch.delitem(QUICK, kind)
    assert same_bits(quick, answer(some_shards(CLASSES), asked))


@dataclass(frozen=True, eq=False)
class Weighed(Query):
    """A question nobody has thought of: its `w` is of the labels, and of no form of scaling."""

    kind = "weighed"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({"w": np.array([0.5, -1.0, 0.25])},)
    w: Floats

    def lengths(self) -> tuple[int, ...]:
        return (2,)

    def params(self) -> Mapping[str, Any]:
        return {"w": self.w}

    def bound(self, part: Any, clips: Any = (), order: Any = 2) -> Bound:
        norm = clips[0] if self.takes(part, clips, 1) else 2.0
        return Bound((2,), (norm,), order=order)


@pytest.mark.parametrize("leak", [0.0, 1.0])
def test_a_new_question_is_tested_as_it_is(leak: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its bounds and its neighbours; a statistic that tells of other clients is found."""

    def statistic(shards: Shards, query: Weighed) -> Floats:
        weights = query.w[shards.labels]
        own = np.stack([shards.sum_rows(weights), shards.sum_rows(np.ones_like(weights))], axis=1)
        return np.asarray(own + leak * own.sum(axis=0))

    monkeypatch.setitem(QUERIES, "weighed", Weighed)
    monkeypatch.setitem(STATISTICS, "weighed", statistic)
    query = query_of("weighed", 0)
    np.testing.assert_array_equal(query.params()["w"], Weighed.examples[0]["w"])
    assert not fits_any("weighed", 0)
    if not leak:
        test_neighbours_differ_by_at_most_the_declared_bound("weighed", 0)
        test_with_a_bound_per_row_one_row_changes_no_more_than_it("weighed", 0)
        return
    with pytest.raises(AssertionError):
        test_neighbours_differ_by_at_most_the_declared_bound("weighed", 0)


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
        STATISTICS[kind](some_shards(CLASSES), query_of(kind, i)).min()
        for i in range(len(QUERIES[kind].examples))
    ]
    assert (min(least) < 0) == QUERIES[kind].signed


@examples
def test_only_a_sum_over_rows_says_that_it_is_one(kind: str, number: int) -> None:
    shards, query = some_shards(CLASSES, rows=40), query_of(kind, number)
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
    query = query_of(kind, number)
    if not query.row_sums:
        pytest.skip("no sum over rows")
    rows = STATISTICS[kind](some_shards(CLASSES, rows=300).each_row(), query)
    norms = query.bound("row", (), order).norms_of(rows).max(axis=1)
    assert norms.max() > 0.05
    assert (norms <= 1 + 1e-9).mean() > 0.3
