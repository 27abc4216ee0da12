"""`fedcal plan` as a command."""

import json

import pytest
from refusals import refused

from fedcal.experiments.cli.main import _run
from fedcal.experiments.planner import advise_methods
from fedcal.experiments.planner.plan import plan
from fedcal.experiments.runs.config import load_config
from fedcal.strategies import STRATEGIES

FACTS = ["--clients", "60", "--rows-per-client", "20", "--classes", "2", "--epsilon", "1"]


@pytest.fixture(autouse=True)
def few_methods(monkeypatch):
    """Two methods and few runs: the command, not the advice, is what is tested here."""
    from fedcal.experiments.planner import candidates

    few = {name: STRATEGIES[name] for name in ("fednewton", "acct")}
    monkeypatch.setattr(candidates, "STRATEGIES", few)
    monkeypatch.setattr(advise_methods, "STAGES", ((1, None), (2, 1)))
    monkeypatch.setattr(advise_methods, "_SEARCHED", (1,))


def test_json_is_the_result_files_hold_it_and_the_recommended_command_runs(tmp_path, capsys):
    assert _run(["plan", *FACTS, "--json", "--out", str(tmp_path / "plan")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "plan" / "plan.json").read_text("utf-8"))
    assert told["schema"] == 1
    assert {m["method"] for m in told["methods"]} == {"fednewton", "acct"}
    config = load_config(tmp_path / "plan" / "config.toml", {})
    assert config.method == told["recommendation"]["method"]
    assert (config.clients, config.epsilon, config.trust) == (60, 1.0, "central")
    program, *words = told["command"].split()
    assert program == "fedcal"
    assert _run([*words, "--data", "imdb-binary", "--quiet"]) == 0


def test_people_see_a_table_and_a_recommendation(capsys):
    def shown(*more: str) -> str:
        assert _run(["plan", *FACTS, *more]) == 0
        return capsys.readouterr().out

    assert shown("--quiet") == ""
    ray = shown("--engine", "ray")
    for words in ("plan for 60 clients", "recommended:", "no row of anybody was looked at"):
        assert words in ray
    assert "--engine ray" in ray
    assert "wall time" not in ray
    grpc = shown("--engine", "grpc")
    assert "s over gRPC" in grpc
    assert "--engine grpc" in grpc


def test_bad_input_is_one_line_and_exit_code_2(capsys):
    for arguments, words in (
        (["plan"], ("needs clients",)),
        (
            ["plan", "--clients", "100", "--epsilon", "1"],  # all that is missing, at once
            (
                "rows_per_client (labelled rows of one client, a public nominal number",
                "classes (the number of the model's classes",
                ": for example --rows-per-client 50 --classes 10\n",
            ),
        ),
        (["plan", *FACTS, "--method", "fedtmp"], ("fedtmp",)),
    ):
        assert _run(arguments) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith("fedcal: error: ")
        assert told.err.count("\n") == 1
        assert all(word in told.err for word in words), told.err
    refused(r"needs rows_per_client .*, and classes ", plan, clients=5, epsilon=1.0)
    refused("needs clients ", plan, rows_per_client=5, data="imdb-binary")
