"""What is counted is what is sent, to the byte; what is timed computes the same."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcal.clients.answers import answer
from fedcal.clients.scalers import local_log_a
from fedcal.errors import FedcalError
from fedcal.experiments import simulate
from fedcal.experiments.studies import bytes_sent, client_seconds
from fedcal.experiments.studies.bytes_sent import METHODS, job_for
from fedcal.experiments.studies.check import deviations
from fedcal.experiments.studies.expected import shipped
from fedcal.shards import Shards
from fedcal.strategies import STRATEGIES
from fedcal.strategies.settings import exact_only


def test_a_method_registered_later_changes_no_table(monkeypatch):
    """Tables 6 and 7 run the methods of their expected results, whatever is registered."""
    monkeypatch.setitem(STRATEGIES, "later", STRATEGIES["fedtemp"])
    timed: list[str] = []
    monkeypatch.setattr(client_seconds, "population", lambda *size: size)
    monkeypatch.setattr(client_seconds, "row", lambda method, *_: timed.append(method) or {})
    client_seconds.rows(quick=True)
    for found, name in (
        ([title for title, _, _ in bytes_sent.variants()], "maddock-table6"),
        (timed, "maddock-table7"),
    ):
        assert sorted(set(found)) == sorted({row["method"] for row in shipped(name).rows})


def test_sizes_are_the_same_each_time_and_are_what_a_result_reports():
    shards = bytes_sent._shards(10, 3)
    (row,) = bytes_sent.sizes_of(bytes_sent.job_for("acct", {}, shards, epsilon=1.0), shards)
    assert (row["query"], row["rounds"], row["numbers_up"]) == ("accuracy_gap", 6, 8)
    for method in ("fedtemp", "fedbin"):
        job = bytes_sent.job_for(method, {}, shards, epsilon=1.0)
        once, again = (bytes_sent.sizes_of(job, shards) for _ in range(2))
        assert once == again
        (row,) = once
        assert row["numbers_up"] < row["record_up"] < row["objects_up"]
        sent = simulate(method=method, epsilon=1.0, rounds=1, clients=3).communication
        assert sent["bytes_up_per_client"] == row["numbers_up"]
        assert sent["bytes_down_per_client"] == row["numbers_down"]
    jobs = [bytes_sent.job_for("fedtemp", {}, shards, masks=masks) for masks in (False, True)]
    for plain, masked in zip(*(bytes_sent.sizes_of(job, shards) for job in jobs), strict=True):
        for key in ("record_up", "objects_up"):
            assert plain[key] == masked[key]


def made_up(up: dict[str, int], epsilon: str, more: int = 0) -> list[dict[str, Any]]:
    return [
        {"method": m, "epsilon": epsilon, "numbers_up": n + more, "numbers_down": n}
        | {"paper_up": bytes_sent.PAPER_UP[m], "paper_down": bytes_sent.PAPER_DOWN[m]}
        for m, n in up.items()
    ]


def test_claims_are_held_against_the_bytes():
    exact = bytes_sent.PAPER_UP
    other = {"method": "acct", "epsilon": "1", "numbers_up": 8, "paper_up": None}
    told = bytes_sent.claims([*made_up(exact, "1"), *made_up(exact, "inf", 8), other])
    assert [holds for _, holds, _ in told] == [True, True, False, True]
    assert "fedcal 44,112 (paper: 44,112)" in told[0][2]
    told = bytes_sent.claims([*made_up(exact, "1", 1), *made_up(exact, "inf", 16)])
    assert [holds for _, holds, _ in told] == [False, False, False, True]
    larger = made_up({**exact, "fedbbq": 50_000}, "1")
    assert not bytes_sent.claims([*larger, *made_up(exact, "inf")])[3][1]


@pytest.mark.slow
def test_each_size_holds_the_one_within_and_the_numbers_are_those_of_the_papers_table():
    """Up, where the paper has the same calibrator and privacy asks for no count besides."""
    table = bytes_sent.rows(quick=True)
    assert len({frozenset(r) for r in table}) == 1
    json.dumps(table, allow_nan=False)
    for r in table:
        assert r["numbers_up"] < r["record_up"] < r["objects_up"]
        assert r["record_down"] < r["record_down_masks"]
        assert r["objects_down"] < r["objects_down_masks"]
        assert r["over"] == r["record_up"] / r["numbers_up"]
    compared = [r for r in table if r["paper_up"] is not None and r["epsilon"] == "1"]
    methods = {r["method"].partition("[")[0] for r in compared}
    assert methods == set(bytes_sent.PAPER_UP) & set(STRATEGIES)
    for row in compared:
        assert row["numbers_up"] == row["paper_up"]
    kept = {"fedtemp": 0.01, "fedopvector": 0.16, "fedcal": 43.08, "fedbbq": 20.0}
    assert {k: round(v / 1024, 2) for k, v in bytes_sent.PAPER_UP.items()} == kept
    # weights without privacy take a further question
    asked = ("fedbbq[tables=per_class,weighting=all]", "inf")
    counts, histograms = [r for r in table if (r["method"], r["epsilon"]) == asked]
    assert (counts["query"], counts["numbers_up"]) == ("class_counts", 8 * 10)
    assert counts["paper_up"] is None
    assert histograms["query"] == "class_histograms"


PRIVATE = [name for name in METHODS if name not in exact_only()]


def test_every_method_with_a_private_form_is_timed():
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


def test_what_the_paper_says_of_seconds():
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


def test_what_is_expected_has_no_clock():
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


def test_scipy_finds_the_optima_that_the_client_finds():
    shards = client_seconds.population(20, 50)
    ours = local_log_a(shards, 0.0)
    inside = (np.abs(ours) < 2.9) & (shards.rows > 0)
    assert inside.sum() >= 5
    theirs = [client_seconds.scipy_log_a(shards.block(k, k + 1)) for k in np.flatnonzero(inside)]
    np.testing.assert_allclose(theirs, ours[inside], atol=1e-3)


def test_what_is_timed_is_the_same_statistic(monkeypatch):
    shards = client_seconds.population(30, 5)
    query = job_for("fednewton", {}, shards, epsilon=1.0).strategy().open_round(1)
    parts = list(client_seconds._blocks(shards, 7))
    assert [p.clients for p in parts] == [7, 7, 7, 7, 2]
    whole = np.concatenate([answer(p, query.request) for p in parts])
    np.testing.assert_array_equal(whole, answer(shards, query.request))

    def leaky(part: Shards, query: Any) -> Any:
        return answer(part, query) + np.uint64(part.clients)

    monkeypatch.setattr(client_seconds, "answer", leaky)
    with pytest.raises(FedcalError, match="other bits"):
        client_seconds.row("fednewton", shards, 1)
