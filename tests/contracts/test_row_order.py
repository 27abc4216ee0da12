"""A client's contribution is a function of the multiset of its rows, not of their order.

So a bound holds whatever the order in which neighbouring data lie in their files, and whatever
numbers their readers give to groups and subjects. The questions are those of `QUERIES`, by their
examples and by every setting of `SETTINGS` that one of them takes.
"""

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
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
    same_bits,
)
from strategy_checks import BUDGETED

from fedcal.clients.answers import answer, contribute
from fedcal.core.checks import InputError
from fedcal.core.scores import LARGEST_LOGIT, rows_by_owner
from fedcal.core.shards import Shards
from fedcal.partition import numbered
from fedcal.privacy import Federation
from fedcal.privacy.query import QUERIES, Query, Request
from fedcal.run.engines.inline import run_inline
from fedcal.secure_aggregation import Ring
from fedcal.strategies import STRATEGIES
from fedcal.strategies.settings import settings_of
from fedcal.units import UNITS, Bound

GROUPS = '["b", "c"]'
SETTINGS: tuple[dict[str, Any], ...] = (
    {"once": True},
    {"once": True, "by": "group", "groups": GROUPS},
    {"once": True, "by": "class"},
    {"once": True, "score": "aps", "randomised": True},
    {"score": "raps", "randomised": True},
    {"groups": GROUPS},
    {"by": "group", "groups": GROUPS},
    {"subject_rows": 2},
    {"views": "model,other"},
    {"views": "model,other", "groups": GROUPS, "subject_rows": 1},
    {"average": True},
    {"batch": 2},
    {"steps": 3},
)


def settled(kind: str) -> Iterator[Query]:
    """The examples, and the first of them under each setting that it takes."""
    for number in numbers(kind):
        yield query_of(kind, number)
    for more in SETTINGS:
        try:
            yield QUERIES[kind](**{**QUERIES[kind].examples[0], **more})
        except (InputError, TypeError):
            continue


def table(seed: int = 0) -> dict[str, Any]:
    """Rows of which many are equal in scores, labels and groups, of few subjects at each client.

    A third have one of two scores, 0 and -0 among them; the others are normal, and half of these
    stand twice, so that sums in another order have other last bits.
    """
    rng = np.random.default_rng(seed)
    n = 180
    logits = rng.normal(0, 3, (n, CLASSES))
    logits[1::4] = logits[::4]
    few = np.array([[0.3, -0.0, -1.7], [0.3, 0.0, -1.7], [2.2, 1.1, 1.1], [2.2, 1.1, 1.1]])
    tied = rng.random(n) < 1 / 3
    logits[tied] = few[rng.integers(0, 4, tied.sum())]
    return {
        "logits": logits,
        "labels": rng.integers(0, CLASSES, n),
        "owner": rng.integers(0, 6, n) * 2 + 1,
        "subject": rng.choice(["ada", "bob", "cyd", "dan", "eve"], n),
        "group": rng.choice(["a", "b", "c"], n, p=[0.1, 0.5, 0.4]),
        "other": np.where(rng.random((n, 1)) < 0.5, few[2], few[0]),
    }


def kept(rows: dict[str, Any], which: Any) -> dict[str, Any]:
    return {name: column[which] for name, column in rows.items()}


def shards_of(rows: dict[str, Any], seed: int | None = None) -> Shards:
    """The rows in another order, and as readers number groups and subjects: those that occur."""
    if seed is not None:
        rows = kept(rows, np.random.default_rng(seed).permutation(len(rows["labels"])))
    groups, of = np.unique(rows["group"], return_inverse=True)
    return rows_by_owner(
        rows["logits"],
        rows["labels"],
        rows["owner"],
        CLIENTS,
        subjects=np.unique(rows["subject"], return_inverse=True)[1],
        groups=of,
        group_names=tuple(groups.tolist()),
        other=rows["other"],
        names=tuple(f"site {k}" for k in range(CLIENTS)),
    )


def asked_of(query: Query, bound: Bound, row_rate: float = 1.0) -> Request:
    """On a grid so fine that the last bits of sums of floats show."""
    return Request(query, bound, Ring(CLIENTS, 2.0**-46), round=1, row_rate=row_rate, seed=4)


def bounds(query: Query) -> Iterator[tuple[str, Bound]]:
    """The question's own bounds of each unit whose part of an answer is clipped, in each norm."""
    for unit in UNITS:
        part = query.part(unit)
        for order in (1, 2):
            if part != "client":
                with suppress(InputError):  # a mean over a client's rows has no part of a row
                    yield unit, replace(query.bound(part, (), order), per=part)
            elif unit == "user":
                yield unit, of_client(query, order)


@kinds
def test_the_order_of_rows_changes_no_bit(kind):
    rows = table()
    for query in settled(kind):
        for _, bound in bounds(query):
            asked = asked_of(query, bound)
            first = answer(shards_of(rows), asked)
            assert first.any()
            for seed in range(2):
                assert same_bits(answer(shards_of(rows, seed), asked), first), (query, bound)


@kinds
def test_neighbours_in_another_order_differ_by_at_most_the_bound(kind):
    """One client, one subject of a client, or one row is left out, and the others are moved."""
    rows = table()
    of = {
        "user": rows["owner"] == 3,
        "subject": (rows["owner"] == 3) & (rows["subject"] == "cyd"),
        "example": np.arange(len(rows["labels"])) == 7,
    }
    # one of whose group nobody else is: without it readers number all other groups anew
    only = (rows["owner"] == 5) & (rows["subject"] == "dan")
    alone = {**rows, "group": np.where(only, "a", np.where(rows["group"] == "a", "b", "c"))}
    for query in settled(kind):
        for unit, bound in bounds(query):
            asked = asked_of(query, bound)
            data = [(rows, of[unit]), *([(alone, only)] if unit == "subject" else [])]
            for more, gone in data:
                total = answer(shards_of(more), asked).sum(axis=0, dtype=np.uint64)
                fewer = answer(shards_of(kept(more, ~gone), 0), asked)
                change = total - fewer.sum(axis=0, dtype=np.uint64)
                assert_within(change[None], bound, asked.ring.grid)


@pytest.mark.parametrize("kind", ["gradients", "set_counts", "score_counts", "accuracy_gap"])
def test_rows_that_take_part_by_a_simulated_coin_do_not_depend_on_the_order(kind):
    query = query_of(kind, 0)
    asked = asked_of(query, replace(query.bound("row"), per="row"), row_rate=0.5)
    first, *others = (
        contribute(shards_of(table(), seed), asked, np.arange(CLIENTS)) for seed in (None, 0, 1)
    )
    assert first.any()
    assert all(same_bits(first, other) for other in others)


@pytest.mark.parametrize("kind", ["mlp_update", "score_cell", "set_counts", "weighted_update"])
def test_rows_of_one_hash_do_not_depend_on_the_order(kind, monkeypatch):
    """Whoever makes rows can make different ones of one hash."""
    monkeypatch.setattr(
        "fedcal.core.row_order.row_hashes", lambda *c: np.zeros(len(c[0]), np.uint64)
    )
    for query in settled(kind):
        for _, bound in bounds(query):
            first, *others = (
                answer(shards_of(table(), seed), asked_of(query, bound)) for seed in (None, 0, 1)
            )
            assert all(same_bits(first, other) for other in others), query


# -- no row that the readers accept makes a client raise where a bound is promised: an error, or its
# absence, would tell a neighbour apart with certainty

EXTREME = (LARGEST_LOGIT, 3e77, 0.0, -LARGEST_LOGIT)
SMALL = {"epochs": 1, "steps": 5, "rows_per_client": 10}
ABSURD = {"lr": 1e300, "server_lr": 1e300}
TRUSTS = [("central", "user"), ("central", "example"), ("local", "user")]


def extreme_rows() -> Shards:
    """Ties, and differences whose squares overflow, at every client but one."""
    logits = np.array(list(itertools.product(EXTREME, repeat=3)))
    i = np.arange(len(logits))
    return rows_by_owner(logits, i % 3, i % 5, 6, names=numbered(6))


@pytest.mark.parametrize("method", BUDGETED)
def test_extreme_rows_are_answered(method):
    """Also with step sizes out of reason, where the method has any."""
    settings = {k: v for k, v in (SMALL | ABSURD).items() if k in settings_of(method)}
    turn = BUDGETED.index(method)
    for trust, unit in (TRUSTS[turn % 3], TRUSTS[(turn + 1) % 3]):
        public = Federation(clients=6, classes=3, epsilon=5.0, trust=trust, unit=unit)
        strategy = STRATEGIES[method](public, **settings)
        run_inline(strategy, extreme_rows())
        assert strategy.released == strategy.plan.rounds


@pytest.mark.parametrize("method", ["fedbbq", "fednewton", "acct"])
def test_one_row_more_than_the_ring_holds_is_an_answer_like_any(method):
    """A million clients, unit example: it was a failed run, which tells a neighbour for sure."""
    public = Federation(clients=10**6, classes=10, epsilon=8.0, unit="example")
    asked = STRATEGIES[method](public).open_round(1)
    bound, ring = asked.request.bound, asked.request.ring
    most = ring.limit // math.ceil(max(bound.norms) / ring.grid)
    assert 4096 <= most <= 20_000

    def sent(rows: int) -> np.ndarray:
        logits = np.zeros((rows, 10))
        logits[:, 0] = 50.0  # as sure as can be, and wrong
        labels, offsets = np.ones(rows, np.int64), np.array([0, rows])
        return answer(Shards(logits, labels, offsets), asked.request).view(np.int64)

    many = 3 * most
    assert np.abs(sent(many)).max() <= ring.limit
    for rows in (most, many):
        step = (sent(rows + 1) - sent(rows)) * ring.grid
        assert (bound.norms_of(step) <= 1).all()
