"""What every client statistic must satisfy, whatever it computes.

A new statistic needs a row in `PARAMS`; the first test fails without one.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fedcal.bounding import Bound, Rule
from fedcal.calibrators import (
    EntropyTemperature,
    MatrixScaling,
    OrderPreservingMLP,
    OrderPreservingVector,
    VectorScaling,
)
from fedcal.calibrators.parametric import ParametricScaling
from fedcal.clients.answers import STATISTICS, answer
from fedcal.errors import InputError
from fedcal.query import Query
from fedcal.secure_aggregation import Ring
from fedcal.shards import Shards
from fedcal.types import Floats, Integers, Words


def near(form: type[ParametricScaling], scale: float) -> Callable[[int], Floats]:
    """Parameters for c classes, near the identity."""

    def parameters(c: int) -> Floats:
        w = form.identity(c)
        return np.asarray(w + np.random.default_rng(c).normal(0, scale, w.shape))

    return parameters


def for_classes(params: dict[str, Any], c: int) -> dict[str, Any]:
    """With vectors of the size that c classes need."""
    return {key: value(c) if callable(value) else value for key, value in params.items()}


# A function of the number of classes stands for a vector of parameters.
PARAMS: dict[str, list[dict[str, Any]]] = {
    "accuracy_gap": [{"temperatures": 1.7}, {"temperatures": np.array([0.5, 1.0, 3.0])}],
    "bin_outcomes": [
        {"bins": 15, "counts": "correct_wrong"},
        {"bins": 4, "counts": "correct_total"},
    ],
    "calibration_gaps": [
        {"temperatures": 1.7, "bins": 15},
        {"temperatures": np.array([0.5, 1.0, 3.0]), "bins": 4},
    ],
    "class_histograms": [{"bins": 16}, {"bins": 128}],
    "class_counts": [{}],
    "clipped_nll": [
        {"temperatures": 1.7, "nll_clip": 10.0},
        {"temperatures": np.array([0.5, 1.0, 3.0]), "nll_clip": 2.5},
    ],
    "mlp_update": [
        {
            "w": near(OrderPreservingMLP, 0.0),
            "epochs": 2,
            "batch": 64,
            "lr": 0.05,
            "seed": 7,
            "count": True,
        },
        {
            "w": near(OrderPreservingMLP, 0.3),
            "epochs": 1,
            "batch": 8,
            "lr": 0.05,
            "seed": 7,
            "count": False,
        },
    ],
    "outcome_cell": [{"bins": 15, "seed": 0}, {"bins": 4, "seed": 7}],
    "pooled_histograms": [{"bins": 16}, {"bins": 128}],
    "scaling_newton": [
        {"form": "entropy-temperature", "w": near(EntropyTemperature, 0.5), "curvature": "full"},
        {"form": "entropy-temperature", "w": lambda c: np.array([2.0, -9.0]), "curvature": "full"},
        {"form": "vector", "w": near(VectorScaling, 0.3), "curvature": "full"},
        {"form": "vector", "w": near(VectorScaling, 0.3), "curvature": "diagonal"},
        {"form": "matrix", "w": near(MatrixScaling, 0.1), "curvature": "diagonal"},
        {"form": "matrix", "w": near(MatrixScaling, 0.1), "curvature": "none"},
        {
            "form": "order-preserving-vector",
            "w": near(OrderPreservingVector, 0.3),
            "curvature": "full",
        },
        {
            "form": "order-preserving-vector",
            "w": near(OrderPreservingVector, 0.0),
            "curvature": "none",
        },
    ],
    "scaling_update": [
        {
            "form": "vector",
            "w": near(VectorScaling, 0.0),
            "proximal": 0.0,
            "steps": 50,
            "count": True,
        },
        {
            "form": "vector",
            "w": near(VectorScaling, 0.3),
            "proximal": 1.0,
            "steps": 20,
            "count": False,
        },
        {
            "form": "matrix",
            "w": near(MatrixScaling, 0.1),
            "proximal": 0.5,
            "steps": 8,
            "count": False,
        },
        {
            "form": "order-preserving-vector",
            "w": near(OrderPreservingVector, 0.3),
            "proximal": 0.0,
            "steps": 8,
            "count": False,
        },
    ],
    "temperature_newton": [{"log_a": 0.0}, {"log_a": -0.875}, {"log_a": 2.5}],
    "temperature_scores": [{"low": 0.25, "high": 8.0, "points": 7}],
    "temperature_update": [
        {"w": 1.0, "average": "inverse", "count": True},
        {"w": 2.375, "average": "temperature", "count": False},
        {"w": 20.0, "average": "inverse", "count": False},
    ],
}

CASES = [(kind, params) for kind in STATISTICS for params in PARAMS.get(kind, [])]
cases = pytest.mark.parametrize(
    ("kind", "params"), CASES, ids=[f"{k}-{i}" for i, (k, _) in enumerate(CASES)]
)
classes = pytest.mark.parametrize("c", [2, 10, 100])

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


def query(kind: str, params: dict[str, Any], bound: Bound, clients: int = CLIENTS) -> Query:
    return Query(kind, params, bound, Ring(clients, 2.0**-24), round=1)


def test_every_statistic_is_in_the_table() -> None:
    assert set(PARAMS) == set(STATISTICS)
    assert all(PARAMS.values())


@cases
@classes
def test_single_calls_stacked_are_one_batched_call(
    kind: str, params: dict[str, Any], c: int
) -> None:
    shards, params = some_shards(c), for_classes(params, c)
    batched = STATISTICS[kind](shards, params)
    assert batched.dtype == np.float64
    assert batched.shape[0] == CLIENTS
    assert batched.any()
    fresh = [STATISTICS[kind](alone(shards, k), params) for k in range(CLIENTS)]
    assert same_bits(np.concatenate(fresh), batched)
    carried = [STATISTICS[kind](shards.block(k, k + 1), params) for k in range(CLIENTS)]
    assert same_bits(np.concatenate(carried), batched)


@cases
@classes
def test_block_size_and_client_order_change_no_bit(
    kind: str, params: dict[str, Any], c: int
) -> None:
    shards, params = some_shards(c), for_classes(params, c)
    whole = STATISTICS[kind](shards, params)
    everybody = np.arange(CLIENTS)
    order = np.random.default_rng(5).permutation(CLIENTS)
    for size in (1, 2, 7, 64):
        ids_of: list[tuple[Integers, Integers]] = [(everybody, everybody), (order, order)]
        for ids, rows in ids_of:
            pieces = [STATISTICS[kind](part, params) for _, part in shards.blocks(ids, size)]
            assert same_bits(np.concatenate(pieces), whole[rows])


@cases
@classes
def test_an_empty_shard_is_zero(kind: str, params: dict[str, Any], c: int) -> None:
    params = for_classes(params, c)
    inside = STATISTICS[kind](some_shards(c), params)
    assert not inside[list(EMPTY)].any()
    nobody = Shards.from_owner(np.zeros((0, c)), np.zeros(0, np.int64), np.zeros(0, np.int64), 3)
    empty = STATISTICS[kind](nobody, params)
    assert empty.shape == (3, inside.shape[1])
    assert not empty.any()


@cases
@classes
@pytest.mark.filterwarnings("error")
def test_extreme_logits_stay_finite_and_bounded(kind: str, params: dict[str, Any], c: int) -> None:
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
    n, params = len(logits), for_classes(params, c)
    shards = Shards.from_owner(logits, labels, np.arange(n), n)
    x = STATISTICS[kind](shards, params)
    assert np.isfinite(x).all()
    assert x.any()
    pooled = Shards.from_owner(logits, labels, np.zeros(n, np.int64), 1)
    assert np.isfinite(STATISTICS[kind](pooled, params)).all()
    bound = Bound((x.shape[1],), (2.0,))
    words = answer(shards, query(kind, params, bound, clients=n))
    assert_within(words, bound, 2.0**-24)


@cases
@pytest.mark.parametrize("rule", ["joint", "per_block", "per_value"])
@pytest.mark.parametrize(("norm", "order"), [(0.25, 2), (3.0, 2), (1e4, 2), (0.25, 1), (3.0, 1)])
def test_neighbours_differ_by_at_most_the_declared_bound(
    kind: str, params: dict[str, Any], rule: Rule, norm: float, order: Any
) -> None:
    shards, params = some_shards(10), for_classes(params, 10)
    length = STATISTICS[kind](shards, params).shape[1]
    cut = max(1, length // 2)
    lengths = (cut, length - cut) if length > 1 else (1,)
    bound = Bound(lengths, (norm, 3 * norm)[: len(lengths)], rule, order)
    asked = query(kind, params, bound)
    words = answer(shards, asked)
    total = words.sum(axis=0, dtype=np.uint64)
    for k in (0, 3, 5):
        neighbour = answer(without(shards, k), asked)
        others = np.delete(np.arange(CLIENTS), k)
        assert same_bits(neighbour[others], words[others])
        change = total - neighbour.sum(axis=0, dtype=np.uint64)
        assert change.any() == (k != 0)
        assert_within(change[None], bound, asked.ring.grid)


@cases
@pytest.mark.parametrize("rule", ["joint", "per_block", "per_value"])
@pytest.mark.parametrize("order", [1, 2])
def test_with_a_bound_per_row_one_row_changes_no_more_than_it(
    kind: str, params: dict[str, Any], rule: Rule, order: Any
) -> None:
    """Whatever the statistic, also where the sum of its rows' parts means nothing."""
    shards, params = some_shards(3, rows=40), for_classes(params, 3)
    length = STATISTICS[kind](shards, params).shape[1]
    cut = max(1, length // 2)
    lengths = (cut, length - cut) if length > 1 else (1,)
    bound = Bound(lengths, (0.5, 1.5)[: len(lengths)], rule, order, "row")
    asked = query(kind, params, bound)
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


def test_an_unknown_query_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="row_dump") as caught:
        answer(some_shards(2), query("row_dump", {}, Bound((1,))))
    assert "\n" not in str(caught.value)
