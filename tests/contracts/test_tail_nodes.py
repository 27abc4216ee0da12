"""Rows in a tail of the score: drawn or shared, they add at most what any other row may.

Neighbouring data lie in any order, and many rows count alike: a draw must not depend on the place
of a row, and one row more must change one row's part.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcal.clients.answers import answer
from fedcal.clients.questions.scores import ScoreCounts
from fedcal.core.numerics import Floats
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy import Federation
from fedcal.privacy.query import Request
from fedcal.strategies.methods.evaluate import FedEvaluate

CLIENTS, ROWS = 5, 600
SETTINGS: list[dict[str, Any]] = [{}, {"other": True}, {"groups": '["a", "b"]', "bins": 30}]
UNITS = {"example": {}, "subject": {"rows_per_subject": 2}, "user": {"rows_per_client": 120.0}}


def table() -> dict[str, Any]:
    """Half of the rows have one of four scores in a tail, 0 and -0 among their logits."""
    rng = np.random.default_rng(1)
    z = rng.normal(0, 12, ROWS)
    z[::2] = rng.choice([-24.0, -14.0, 13.0, 40.0], ROWS // 2)
    zero = np.where(rng.random(ROWS) < 0.5, 0.0, -0.0)
    return {
        "logits": np.stack([zero, z], axis=1),
        "labels": rng.integers(0, 2, ROWS),
        "owner": rng.integers(0, CLIENTS, ROWS),
        "subjects": rng.integers(0, 40, ROWS),
        "groups": rng.integers(0, 2, ROWS),
        "other": np.stack([zero, np.where(rng.random(ROWS) < 0.5, -z, 20.0)], axis=1),
    }


def shards(rows: dict[str, Any], seed: int | None = None) -> Shards:
    n = len(rows["labels"])
    order = np.arange(n) if seed is None else np.random.default_rng(seed).permutation(n)
    kept = {name: column[order] for name, column in rows.items()}
    return rows_by_owner(clients=CLIENTS, group_names=("a", "b"), **kept)


def request(unit: str, settings: dict[str, Any]) -> Request:
    own = Federation(CLIENTS, 2, epsilon=1.0, unit=unit)
    method = FedEvaluate(own, **UNITS[unit], **(settings if unit != "user" else {}))
    query, bound = method.query(1), method.plan.bound
    if unit == "user":  # the first look has no nodes
        query = replace(method.query(2), pad=0)
    assert isinstance(query, ScoreCounts)
    assert query.tail_nodes
    assert bound is not None
    assert bool(query.seed) == (unit == "example")
    return Request(query, bound, method.plan.ring, 1)


def summed(asked: Request, rows: dict[str, Any], seed: int | None = None) -> Floats:
    words = answer(shards(rows, seed), asked, np.arange(7, 7 + CLIENTS))
    return words.sum(axis=0, dtype=np.uint64).view(np.int64) * asked.ring.grid


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("unit", UNITS)
def test_neighbours_in_any_order_differ_by_at_most_the_bound(unit, settings):
    asked, rows = request(unit, settings), table()
    full = summed(asked, rows)
    for seed in range(6):
        assert (summed(asked, rows, seed) == full).all()
        gone = {
            "example": np.arange(ROWS) == 2 * seed,
            "subject": (rows["owner"] == 2) & (rows["subjects"] == seed),
            "user": rows["owner"] == seed % CLIENTS,
        }[unit]
        assert gone.any()
        fewer = summed(asked, {name: column[~gone] for name, column in rows.items()}, seed)
        change = np.linalg.norm(full - fewer, asked.bound.order)
        assert 0 < change <= asked.bound.norms[0] * (1 + 1e-12)


def equal(rows: int, z: float, clients: int = 1) -> Shards:
    """Wrong rows with one and the same score."""
    logits = np.tile([0.0, z], (rows * clients, 1))
    owner = np.repeat(np.arange(clients), rows)
    return rows_by_owner(logits, np.ones(len(owner), np.int64), owner, clients)


def test_equal_rows_of_a_client_and_of_clients_are_drawn_apart():
    """Their number in the outer node is binomial, over rows, clients and seeds."""
    query = request("example", {}).query
    assert isinstance(query, ScoreCounts)
    sites = np.arange(400)
    one, many = (replace(query, seed=seed) for seed in (5, 6))
    share = replace(query, seed=0).counts_of(equal(1, -19.0))[0, query.buckets]
    assert 0.3 < share < 0.7
    for data in (equal(400, -19.0), equal(1, -19.0, 400)):
        outer = [
            (q.cells_of(data.keep(np.arange(400)), sites)[:, 0] % query.buckets == 0)
            for q in (one, many)
        ]
        for drawn in outer:
            assert abs(drawn.sum() - 400 * share) < 4 * np.sqrt(400 * share * (1 - share))
        assert 0.3 < (outer[0] != outer[1]).mean() < 0.7


@pytest.mark.parametrize("z", [-40.0, -27.7, -27.0, -19.0, -11.0, -10.0, -1.0, 3.0, 12.0, 30.0])
def test_both_nodes_have_the_mean_logarithm(z):
    """Exactly by shares, and as a mean over draws; without a tail in one bucket as ever."""
    query = replace(request("example", {}).query, seed=0)
    assert isinstance(query, ScoreCounts)
    edges, at = query.bucket_edges, query.buckets
    shared = query.counts_of(equal(1, z))[0].reshape(2, at)[1]
    assert shared.sum() == 1
    tail = min(1 / (1 + np.exp(-z)), 1 / (1 + np.exp(z)))
    if tail > edges[2]:
        assert shared.max() == 1
        return
    inner, outer = shared[[1, 0]] if z < 0 else shared[[-2, -1]]
    assert inner + outer == 1
    logarithm = inner * np.log(edges[2]) + outer * np.log(1e-12)
    assert logarithm == pytest.approx(np.log(max(tail, 1e-12)), abs=1e-5)
    drawn = replace(query, seed=3).counts_of(equal(4000, z))[0].reshape(2, at)[1]
    assert drawn.sum() == 4000
    assert abs(drawn / 4000 - shared).max() < 4 * np.sqrt(inner * outer / 4000) + 1e-9
