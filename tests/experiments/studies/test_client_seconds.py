"""All methods are timed, and what is timed computes the same. How long it takes is not tested."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcal.clients.answers import answer
from fedcal.clients.scalers import local_log_a
from fedcal.errors import FedcalError
from fedcal.experiments.studies import client_seconds
from fedcal.experiments.studies.bytes_sent import METHODS, job_for
from fedcal.experiments.studies.check import deviations
from fedcal.experiments.studies.expected import shipped
from fedcal.shards import Shards
from fedcal.strategies.settings import exact_only

PRIVATE = [name for name in METHODS if name not in exact_only()]


def test_every_method_with_a_private_form_is_timed() -> None:
    table = client_seconds.rows(quick=True)
    assert [r["method"] for r in table] == PRIVATE
    assert len({frozenset(r) for r in table}) == 1
    json.dumps(table, allow_nan=False)
    for r in table:
        assert r["loop_min"] <= r["loop"] <= r["loop_max"]
        assert r["ratio"] == r["loop"] / r["vectorised"]
        assert r["ratio_cold"] == r["loop_cold"] / r["vectorised_cold"]
        assert (r["scipy"] is None) == (r["method"] != "fedtemp") == (r["ratio_scipy"] is None)
    said = client_seconds.claims(table)[2:]
    assert [("Flower" in what) for what, _, _ in said] == [True, False]
    for (_, holds, names), key in zip(said, ("ratio_flower", "ratio"), strict=True):
        slow = [r["method"] for r in table if r[key] < 50]
        assert holds == (not slow)
        assert all(method in names for method in slow)


def test_what_the_paper_says_of_seconds() -> None:
    loop = {"fedcal": 0.008, "fedtemp": 0.111, "fedopvector": 0.017}
    ratios = {"ratio": 60.0, "ratio_flower": 60.0}
    paper = [
        {"method": m, "clients": 100, "rows": 50, "loop": s, **ratios} for m, s in loop.items()
    ]
    assert [holds for _, holds, _ in client_seconds.claims(paper)[:2]] == [False, True]
    slower = [{**r, "loop": 0.05 if r["method"] == "fedcal" else 0.02} for r in paper]
    told = client_seconds.claims(slower)[:2]
    assert [holds for _, holds, _ in told] == [True, False]
    assert told[0][2] == "the slowest, fedcal, needs 0.05"


def test_what_is_expected_has_no_clock() -> None:
    """The same methods on every population, and numbers that no machine changes."""
    kept = shipped("maddock-table7")
    sizes = list(dict.fromkeys((r["clients"], r["rows"]) for r in kept.rows))
    assert sizes == list(client_seconds.POPULATIONS)
    for clients, _ in sizes:
        there = [r["method"] for r in kept.rows if r["clients"] == clients]
        assert there == [name for name in PRIVATE if name in there]
        assert len(there) == len(kept.rows) / len(sizes)
    slower = [r | {k: 9 * v for k, v in r.items() if k in ("loop", "ratio")} for r in kept.rows]
    assert deviations(replace(kept, rows=slower), kept) == []
    other = [{**kept.rows[0], "numbers": 3}, *kept.rows[1:]]
    assert len(deviations(replace(kept, rows=other), kept)) == 1


def test_scipy_finds_the_optima_that_the_client_finds() -> None:
    shards = client_seconds.population(20, 50)
    ours = local_log_a(shards, 0.0)
    inside = (np.abs(ours) < 2.9) & (shards.rows > 0)
    assert inside.sum() >= 5
    theirs = [client_seconds.scipy_log_a(shards.block(k, k + 1)) for k in np.flatnonzero(inside)]
    np.testing.assert_allclose(theirs, ours[inside], atol=1e-3)


def test_what_is_timed_is_the_same_statistic(monkeypatch: pytest.MonkeyPatch) -> None:
    shards = client_seconds.population(30, 5)
    query = job_for("fednewton", {}, shards, epsilon=1.0).strategy().open_round(1)
    assert query is not None
    parts = list(client_seconds._blocks(shards, 7))
    assert [p.clients for p in parts] == [7, 7, 7, 7, 2]
    whole = np.concatenate([answer(p, query.request) for p in parts])
    np.testing.assert_array_equal(whole, answer(shards, query.request))

    def leaky(part: Shards, query: Any) -> Any:
        return answer(part, query) + np.uint64(part.clients)

    monkeypatch.setattr(client_seconds, "answer", leaky)
    with pytest.raises(FedcalError, match="other bits"):
        client_seconds.row("fednewton", shards, 1)
