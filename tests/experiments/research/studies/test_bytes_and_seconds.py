"""What is counted is what is sent, to the byte; what is timed computes the same."""

from fedcal.experiments import simulate
from fedcal.experiments.research.studies.expected import shipped
from fedcal.experiments.research.studies.maddock import bytes_sent, client_seconds
from fedcal.strategies import STRATEGIES


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
