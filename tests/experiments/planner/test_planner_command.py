"""`fedcal plan` as a command, and `--method auto` in its places."""

import json
import math
import tomllib
from typing import Any

import numpy as np
import pytest
from refusals import refused

from fedcal import datasets
from fedcal.core.shards import Shards
from fedcal.experiments.cli.main import _run
from fedcal.experiments.planner import advise_methods, auto
from fedcal.experiments.planner.plan import plan
from fedcal.experiments.runs.config import Config, load_config
from fedcal.experiments.runs.simulation import simulate
from fedcal.partition import deal
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
    auto.advice_on.cache_clear()


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
        (["compare", "--method", "auto", "--epsilon", "1"], ("auto",)),
        (["simulate", "--method", "auto", "--set", "clip=1"], ("auto",)),
    ):
        assert _run(arguments) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith("fedcal: error: ")
        assert told.err.count("\n") == 1
        assert all(word in told.err for word in words), told.err
    refused(r"needs rows_per_client .*, and classes ", plan, clients=5, epsilon=1.0)
    refused("needs clients ", plan, rows_per_client=5, data="imdb-binary")


def test_auto_resolves_to_a_method_and_says_so():
    found = simulate("imdb-binary", method="auto", epsilon=1.0)
    assert found.config.method in ("fednewton", "acct")
    assert found.to_json()["method"] == found.config.method
    said = " ".join(found.privacy["statement"])
    assert "chosen by the planner from public facts only" in said
    assert "planner's rows_per_client was rows / clients of the simulated data" in said
    options = tomllib.loads(found.config.to_toml())
    again = simulate("imdb-binary", **{k: v for k, v in options.items() if k != "data"})
    assert (again.test_probs == found.test_probs).all()


def test_auto_reads_no_row():
    """Other rows, the same public facts: the same choice."""
    data = datasets.load("imdb-binary").split(0)
    shards = deal(data, "iid", 60, 0)
    nonsense = Shards(
        np.random.default_rng(0).standard_normal(shards.logits.shape),
        1 - shards.labels,
        shards.offsets,
    )
    config = Config(method="auto", epsilon=1.0, set={"rows_per_client": 20.0})
    first, said = auto.resolved(config, shards)
    auto.advice_on.cache_clear()
    second, _ = auto.resolved(config, nonsense)
    assert first == second
    assert first.set["rows_per_client"] == 20.0
    assert not any("was not given" in line for line in said)


@pytest.mark.slow
def test_where_nothing_helps_auto_leaves_the_model_alone(tmp_path):
    arguments: dict[str, Any] = {"method": "auto", "epsilon": 0.02, "clients": 5}
    arguments |= {"trust": "distributed", "quorum": 0.8}
    arguments |= {"ledger": str(tmp_path / "l.db"), "cap": 1.0, "cap_delta": 1e-4}
    with pytest.warns(UserWarning, match="not enough clients for this epsilon"):
        found = simulate("imdb-binary", **arguments)
    assert found.config.method == "none"
    assert math.isinf(found.config.epsilon)
    assert found.after == found.before
    assert found.privacy["releases"] == 0
    assert not list(tmp_path.iterdir())
    assert any("no budget was spent" in line for line in found.privacy["statement"])


@pytest.mark.slow
def test_the_estimator_takes_auto_too():
    pytest.importorskip("sklearn")
    from fedcal.experiments.runs.estimator import FederatedCalibrator

    data = datasets.load("imdb-binary").split(0)
    fitted = FederatedCalibrator("auto", epsilon=1.0).fit(data.logits, data.labels)
    assert fitted.calibrator_.kind == "temperature"
    assert any("chosen by the planner" in line for line in fitted.privacy_["statement"])
