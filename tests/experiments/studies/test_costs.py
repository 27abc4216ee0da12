"""What is counted is what is sent, to the byte."""

from experiments.studies.expected import shipped
from experiments.studies.maddock import costs
from fedcal import simulate
from fedcal.strategies import STRATEGIES


def test_sizes_are_what_a_result_reports_and_what_ships(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "later", STRATEGIES["fedtemp"])  # changes no table
    shards = costs._shards(10, 3)
    (row,) = costs.sizes_of(costs.job_for("acct", {}, shards, 1.0), shards)
    assert (row["query"], row["rounds"], row["numbers_up"]) == ("accuracy_gap", 6, 8)
    for method in ("fedtemp", "fedbin"):
        (row,) = costs.sizes_of(costs.job_for(method, {}, shards, 1.0), shards)
        sent = simulate(method=method, epsilon=1.0, rounds=1, clients=3).communication
        assert sent["bytes_up_per_client"] == row["numbers_up"]
        assert sent["bytes_down_per_client"] == row["numbers_down"]
    known = {(r["method"], r["epsilon"], r["query"]): r for r in shipped("maddock-table6").rows}
    found = costs.table6.rows(quick=True)
    assert {r["method"] for r in found} == {method for method, _, _ in known}
    for r in found:
        kept = known[r["method"], r["epsilon"], r["query"]]
        assert kept["classes"] == 100 or r["numbers_up"] == kept["numbers_up"]
