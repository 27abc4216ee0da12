"""What is counted is what is sent, to the byte, each time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedcal.experiments import simulate
from fedcal.experiments.studies import bytes_sent, client_seconds
from fedcal.experiments.studies.expected import shipped
from fedcal.strategies import STRATEGIES


def test_a_method_registered_later_changes_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_sizes_are_the_same_each_time_and_are_what_a_result_reports() -> None:
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


def test_claims_are_held_against_the_bytes() -> None:
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
def test_each_size_holds_the_one_within_and_the_numbers_are_those_of_the_papers_table() -> None:
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
