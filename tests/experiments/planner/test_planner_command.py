"""`fedcal plan` as a command, and `--method auto` in its places."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcal import datasets
from fedcal.errors import InputError
from fedcal.experiments.cli import _run
from fedcal.experiments.config import ENGINES, Config, load_config
from fedcal.experiments.planner import advice, auto
from fedcal.experiments.planner.plan import plan
from fedcal.experiments.simulation import simulate
from fedcal.partition import deal
from fedcal.shards import Shards
from fedcal.strategies import STRATEGIES

FACTS = ["--clients", "60", "--rows-per-client", "20", "--classes", "2", "--epsilon", "1"]


@pytest.fixture(autouse=True)
def few_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two methods and few runs: the command, not the advice, is what is tested here."""
    from fedcal.experiments.planner import candidates

    few = {name: STRATEGIES[name] for name in ("fednewton", "acct")}
    monkeypatch.setattr(candidates, "STRATEGIES", few)
    monkeypatch.setattr(advice, "STAGES", ((1, None), (2, 1)))
    monkeypatch.setattr(advice, "_SEARCHED", (1,))
    auto.advice_on.cache_clear()


def test_json_is_the_result_and_files_hold_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["plan", *FACTS, "--json", "--out", str(tmp_path / "plan")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "plan" / "plan.json").read_text("utf-8"))
    assert told["schema"] == 1
    assert {m["method"] for m in told["methods"]} == {"fednewton", "acct"}
    config = load_config(tmp_path / "plan" / "config.toml", {})
    assert config.method == told["recommendation"]["method"]
    assert (config.clients, config.epsilon, config.trust) == (60, 1.0, "central")


def test_people_see_a_table_and_a_recommendation(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["plan", *FACTS]) == 0
    shown = capsys.readouterr().out
    assert "plan for 60 clients" in shown
    assert "recommended:" in shown
    assert "no row of anybody was looked at" in shown
    assert _run(["plan", *FACTS, "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_auto_over_grpc_takes_few_rounds() -> None:
    shards = deal(datasets.load("imdb-binary").split(0), "iid", 20, 0)
    config = Config(method="auto", engine="grpc", set={"rows_per_client": 20.0})
    rounds = {e: auto.resolved(replace(config, engine=e), shards)[0].rounds for e in ENGINES}
    assert rounds["grpc"] is not None
    assert rounds["inline"] == rounds["ray"]
    assert rounds["grpc"] <= (rounds["inline"] or 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan"],
        ["plan", "--clients", "100", "--epsilon", "1"],
        ["plan", "--clients", "5", "--rows-per-client", "5"],
        ["plan", *FACTS, "--trust", "secagg"],
        ["plan", *FACTS, "--data", "rows.npz"],
        ["plan", *FACTS, "--method", "fedtmp"],
        ["compare", "--method", "auto", "--epsilon", "1"],
        ["simulate", "--method", "auto", "--set", "clip=1"],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("fedcal: error: ")
    assert told.err.count("\n") == 1


def test_what_is_missing_is_said_at_once_with_what_it_means(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _run(["plan", "--clients", "100", "--epsilon", "1"]) == 2
    told = capsys.readouterr().err
    assert "rows_per_client (labelled rows of one client, a public nominal number" in told
    assert "classes (how many the model tells apart" in told
    assert told.endswith(": for example --rows-per-client 50 --classes 10\n")
    with pytest.raises(InputError, match=r"needs rows_per_client .*, and classes "):
        plan(clients=5, epsilon=1.0)
    with pytest.raises(InputError, match="needs clients "):
        plan(rows_per_client=5, data="imdb-binary")


def test_auto_resolves_to_a_method_and_says_so() -> None:
    found = simulate("imdb-binary", method="auto", epsilon=1.0)
    assert found.config.method in ("fednewton", "acct")
    assert found.to_json()["method"] == found.config.method
    said = " ".join(found.privacy["statement"])
    assert "chosen by the planner from public facts only" in said
    assert "planner's rows_per_client was rows / clients of the simulated data" in said
    options = tomllib.loads(found.config.to_toml())
    again = simulate("imdb-binary", **{k: v for k, v in options.items() if k != "data"})
    assert (again.test_probs == found.test_probs).all()


def test_auto_reads_no_row() -> None:
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
def test_where_nothing_helps_auto_leaves_the_model_alone(tmp_path: Path) -> None:
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
def test_the_estimator_takes_auto_too() -> None:
    pytest.importorskip("sklearn")
    from fedcal.experiments.estimator import FederatedCalibrator

    data = datasets.load("imdb-binary").split(0)
    fitted = FederatedCalibrator("auto", epsilon=1.0).fit(data.logits, data.labels)
    assert fitted.calibrator_.kind == "temperature"
    assert any("chosen by the planner" in line for line in fitted.privacy_["statement"])
    with pytest.warns(UserWarning, match="not enough"):
        alone = FederatedCalibrator("auto", epsilon=0.002, clients=5).fit(data.logits, data.labels)
    assert alone.calibrator_.kind == "identity"
    assert alone.result_.records == []
