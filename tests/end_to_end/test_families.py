"""A method that evaluates, with an artifact of its own, goes the whole way without being named."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fedcal import datasets
from fedcal.artifact import ARTIFACTS
from fedcal.errors import FedcalError, InputError
from fedcal.experiments import compare, plan, simulate
from fedcal.experiments.cli import _run
from fedcal.experiments.comparison.grid import read_grid
from fedcal.experiments.engines.flower import run_in_process
from fedcal.experiments.engines.inline import run_inline
from fedcal.experiments.estimator import FederatedCalibrator
from fedcal.experiments.planner.candidates import candidates
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.report import write_report
from fedcal.partition import deal
from fedcal.privacy.federation import Federation
from fedcal.strategies import STRATEGIES
from fedcal.strategies.job import Job
from fedcal.strategies.outcome import Outcome
from fedcal.strategies.settings import calibrating

MADE_UP = Path(__file__).resolve().parents[1] / "made_up"
COMMON = ["schema", "method", "config", "class_names", "privacy", "communication"]
COMMON += ["seconds", "versions"]
FILES = {
    *("result.json", "config.toml", "rounds.jsonl", "auc.npz", "page.json", "report.html"),
    *("curve-1.png", "curve-1.svg"),
}


@pytest.fixture(autouse=True)
def fedauc(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The method is there, as a row in the registry."""
    monkeypatch.syspath_prepend(MADE_UP)
    monkeypatch.setitem(ARTIFACTS, "auc", None)  # so that it is gone afterwards
    import fedauc  # type: ignore[import-not-found]

    monkeypatch.setitem(ARTIFACTS, "auc", fedauc.AUC)
    monkeypatch.setitem(STRATEGIES, "fedauc", fedauc.FedAUC)
    return fedauc


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 400)
    logits = rng.normal(size=(400, 3))
    logits[np.arange(400), labels] += 1.5
    path = tmp_path_factory.mktemp("data") / "rows.npz"
    np.savez(path, logits=2 * logits, labels=labels)
    return path


def options(**more: Any) -> dict[str, Any]:
    return {"method": "fedauc", "clients": 8, "set": {"bins": 5}, **more}


PROMISES = [{}, {"epsilon": 5.0, "unit": "example"}, {"epsilon": 5.0, "trust": "distributed"}]


@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_simulate_leaves_its_files(data: Path, tmp_path: Path, promise: dict[str, Any]) -> None:
    result = simulate(data, out=tmp_path, **options(**promise))
    assert {p.name for p in tmp_path.iterdir()} == FILES
    told = json.loads((tmp_path / "result.json").read_text("utf-8"))
    assert told == json.loads(json.dumps(result.to_json()))
    assert list(told) == [*COMMON[:4], "auc", "test_auc", *COMMON[4:]]
    assert told["auc"] == result.artifact.value
    assert told["privacy"]["epsilon"] == promise.get("epsilon")
    if not promise:
        assert told["test_auc"] > 0.6
        assert told["auc"] == pytest.approx(told["test_auc"], abs=0.1)
    lines = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert [sorted(line) for line in lines] == [
        ["auc", "noise_std", "query", "round", "values"]
    ] * 2
    assert lines[-1]["auc"] == told["auc"]
    back = ARTIFACTS["auc"].read(tmp_path, "auc")
    assert back.arrays().keys() == result.artifact.arrays().keys()
    assert all((a == back.arrays()[k]).all() for k, a in result.artifact.arrays().items())


def test_the_report_shows_its_table_and_its_curve(data: Path, tmp_path: Path) -> None:
    result = simulate(data, out=tmp_path, **options(epsilon=5.0))
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<h2>Rows by &lt;confidence&gt;</h2>" in page
    assert "<confidence>" not in page
    assert "0.80 to 1.00" in page
    assert f"{result.artifact.correct[-1]:.6g}" in page
    assert "Counts carry the noise of the release." in page
    curve = page.index("<h2>Right against wrong</h2>")
    assert "<svg" in page[curve:]
    assert "wrong predictions above a confidence, share" in page[curve:]
    assert f"{result.artifact.value:.6g}" in page
    for said in (*result.privacy["statement"], "fedcal simulate", "curve-1.svg"):
        assert said.partition("'")[0] in page
    assert "Reliability" not in page
    assert _run(["report", str(tmp_path), "--quiet"]) == 0
    assert (tmp_path / "report.html").read_text("utf-8") == page
    card = result._repr_html_()
    assert "Right against wrong" in card
    assert "<svg" in card


def test_a_page_of_something_else_is_refused(data: Path, tmp_path: Path) -> None:
    simulate(data, out=tmp_path, **options())
    table: dict[str, Any] = {"part": "table", "title": "", "columns": ["a"], "rows": [[]]}
    curve = {"part": "curve", "title": "", "x": "", "y": "", "note": "", "series": {}}
    parts = [{"schema": 1, "parts": [part]} for part in ({"part": "script"}, table, curve)]
    for page in ({}, [], {"schema": 2, "parts": []}, {"schema": 1}, *parts):
        (tmp_path / "page.json").write_text(json.dumps(page))
        with pytest.raises(InputError, match=r"page\.json") as caught:
            write_report(tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*which is replaced")
def test_one_folder_for_runs_of_two_families(data: Path, tmp_path: Path) -> None:
    """What an earlier run of another family left does not stay beside this one's files."""
    simulate(data, out=tmp_path, clients=8)
    (tmp_path / "mine.npz").write_bytes(b"")
    simulate(data, out=tmp_path, overwrite=True, **options())
    assert {p.name for p in tmp_path.iterdir()} == FILES | {"mine.npz"}
    simulate(data, out=tmp_path, clients=8, overwrite=True)
    there = {p.name for p in tmp_path.iterdir()}
    assert "calibrator.npz" in there
    assert not there & {"auc.npz", "page.json", "curve-1.svg"}


def test_the_command_shows_its_table(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["simulate", "--data", str(data), "--method", "fedauc", "--clients", "8"]
    assert _run(command) == 0
    shown = capsys.readouterr().out
    assert "fedauc on" in shown
    assert "wrong, rows" in shown
    assert _run([*command, "--json", "--set", "bins=5", "--out", str(tmp_path)]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["auc"] < 1


def test_what_is_no_calibrator_is_not_applied(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = simulate(data, out=tmp_path, **options())
    command = ["apply", "--calibrator", str(tmp_path / "auc.npz"), "--data", str(data)]
    assert _run([*command, "--out", str(tmp_path / "probs.npy")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "auc.npz" in line
    assert "is no fedcal calibrator" in line
    for name in ("calibrator", "before", "after", "intervals", "reliability", "test_probs"):
        with pytest.raises(FedcalError, match="yields no calibrator: its artifact is of form auc"):
            getattr(result, name)


# --- who ranks calibrators ----------------------------------------------------------------------


def test_comparisons_plans_and_estimators_are_of_methods_that_calibrate(data: Path) -> None:
    for method in ("fedauc", "none,fedauc[bins=5]"):
        why = "compare takes methods that calibrate, and fedauc is of the family 'evaluate'"
        with pytest.raises(InputError, match=why):
            compare(data, method=method, clients=8, seeds=1)
    for grid in (read_grid(), read_grid({"method": "all"})):
        assert "fedauc" not in {v.method for v in grid.method}
        assert {v.method for v in grid.method} >= set(calibrating())
    facts = PublicFacts(Federation(100, 10, epsilon=1.0), 50.0, "dirichlet:0.1")
    found, refused = candidates(facts)
    assert "fedauc" not in {c.method for c in found} | {name for name, _ in refused}
    with pytest.raises(InputError, match="the planner takes methods that calibrate"):
        plan(clients=100, rows_per_client=50, classes=10, methods=["fedauc"])
    with pytest.raises(InputError, match="FederatedCalibrator takes methods that calibrate"):
        FederatedCalibrator("fedauc", clients=2).fit(3 * np.eye(4), [0, 1, 2, 3])


# --- engines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
def test_a_job_s_history_and_an_outcome_through_a_folder(
    data: Path, tmp_path: Path, epsilon: float
) -> None:
    shards = deal(datasets.load(data).split(0), "iid", 8, 0)
    job = Job("fedauc", Federation(8, 3, 3, epsilon=epsilon), {"bins": 5})
    outcome = job.run(lambda s: run_inline(s, shards))
    assert [a.value for a in outcome.history] == [r["auc"] for r in outcome.records]
    outcome.save(tmp_path)
    back = Outcome.load(tmp_path)
    assert back.records == outcome.records
    for one, other in zip(
        (outcome.artifact, *outcome.history), (back.artifact, *back.history), strict=True
    ):
        assert type(one) is type(other)
        assert [a.tobytes() for a in one.arrays().values()] == [
            a.tobytes() for a in other.arrays().values()
        ]
    with pytest.raises(FedcalError, match="yields no calibrator"):
        _ = outcome.calibrator
    again = job.run(lambda s: run_in_process(s, shards))
    assert again.records == outcome.records
    (tmp_path / "auc.npz").write_bytes((tmp_path / "round-1.npz").read_bytes()[:40])
    with pytest.raises(InputError, match=r"auc .*auc\.npz"):
        Outcome.load(tmp_path)


def test_flower_s_records_hold_its_arrays(
    data: Path, fedauc: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = deal(datasets.load(data).split(0), "iid", 4, 0)
    strategy = fedauc.FedAUC(Federation(4, 3), bins=5)
    aggregate, records = strategy.aggregate_train, []

    def watched(*args: Any) -> Any:
        records.append(aggregate(*args))
        return records[-1]

    monkeypatch.setattr(strategy, "aggregate_train", watched)
    artifact = run_in_process(strategy, shards)
    held = {name: array.numpy() for name, array in records[-1][0].items()}
    assert held.keys() == artifact.arrays().keys()
    assert all((array == held[name]).all() for name, array in artifact.arrays().items())


@pytest.mark.slow
def test_the_same_bits_on_ray(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server runs in a process of its own, to which the method must be told."""
    start = "import os\nif 'FEDCAL_RUN' in os.environ:\n    import fedauc\n    fedauc.register()\n"
    (tmp_path / "sitecustomize.py").write_text(start)
    search = [str(tmp_path), str(MADE_UP), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, search)))
    inline = simulate(data, **options(epsilon=1.0))
    ray = simulate(data, engine="ray", out=tmp_path / "out", **options(epsilon=1.0))
    assert ray.rounds == inline.rounds
    assert ray.judged == inline.judged
    assert {p.name for p in (tmp_path / "out").iterdir()} == FILES
