"""`fedcal pipeline`: one budget, one ledger, one report; what is finished is not run again."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import each_is_refused, refused

from fedcal.core.errors import FedcalError, InputError
from fedcal.experiments.cli.main import main
from fedcal.experiments.pipeline import run as running
from fedcal.experiments.pipeline.config import read_pipeline
from fedcal.experiments.pipeline.run import run
from fedcal.experiments.pipeline.settle import Pipeline, settle
from fedcal.experiments.runs import simulation
from fedcal.privacy.ledger import Ledger

pytestmark = pytest.mark.usefixtures("quick_figures")

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 900)
NEAR = np.eye(3)[LABELS]


@pytest.fixture(scope="module")
def logits(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "logits.npz"
    z = 4 * (RNG.normal(size=(900, 3)) + NEAR)
    rows = {"logits": z[:600], "labels": LABELS[:600]}
    np.savez(path, **rows, test_logits=z[600:], test_labels=LABELS[600:])
    return str(path)


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "features.npz"
    x = (RNG.normal(size=(900, 6)) / 4 + np.hstack([NEAR, NEAR])).astype(np.float32)
    group = np.arange(900) % 2
    np.savez(
        path,
        **{"features": x[:600], "labels": LABELS[:600], "group": group[:600]},
        **{"test_features": x[600:], "test_labels": LABELS[600:], "test_group": group[600:]},
        group_names=np.array(["even", "odd"]),
    )
    return str(path)


def of_logits(data: str, **more: Any) -> dict[str, Any]:
    sets = {"epsilon": 0.5}
    top = {"data": data, "clients": 3, "partition": "iid", "epsilon": 2.0}
    return {**top, "recalibrate": {}, "sets": sets, "evaluate": {}, **more}


def settled(tables: dict[str, Any]) -> Pipeline:
    return settle(read_pipeline(tables))


def numbers(record: dict[str, Any]) -> list[Any]:
    return [(one["name"], one["results"]) for one in record["stages"]]


def test_stages_share_a_budget_and_a_ledger(logits, tmp_path):
    out = tmp_path / "out"
    record = run(settled(of_logits(logits)), out)
    assert record == json.loads((out / "pipeline.json").read_text())
    assert [one["name"] for one in record["stages"]] == ["recalibrate", "sets", "evaluate"]
    assert record["stages"][1]["results"].keys() >= {"coverage_by", "coverage_warnings"}
    # calibration rows compose, test rows are others
    assert record["epsilon"] == max(record["by_part"].values()) <= 2.0
    assert record["by_part"].keys() == {"calibration", "test"}
    assert record["basic_epsilon"] > 3.5
    for one in record["stages"]:  # what ran is what was planned
        told = json.loads((out / one["name"] / "result.json").read_text())["privacy"]
        assert (told["epsilon"], told["delta"]) == (one["epsilon"], one["delta"])
    with Ledger(out / "ledger.sqlite") as ledger:
        (entry,) = ledger.entries()
        assert ledger.cap == 2.0
    assert (entry.epsilon, entry.charged) == (record["epsilon"], (1, 2, 3))
    page = (out / "report.html").read_text()
    assert "by basic composition" in page
    assert 'href="recalibrate/report.html"' in page


def test_finished_stages_are_not_run_again(logits, tmp_path, monkeypatch):
    whole = run(settled(of_logits(logits)), tmp_path / "whole")
    ran: list[str] = []
    simulate = running.simulate

    def counted(data: Any, **options: Any) -> Any:
        ran.append(options["config"].method)
        if len(ran) == 2:
            raise KeyboardInterrupt
        return simulate(data, **options)

    monkeypatch.setattr(running, "simulate", counted)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(settled(of_logits(logits)), out)
    record = run(settled(of_logits(logits)), out)
    assert ran == ["fednewton", "conformal", "conformal", "evaluate"]
    assert numbers(record) == numbers(whole)
    run(settled(of_logits(logits)), out)
    assert len(ran) == 4
    with Ledger(out / "ledger.sqlite") as ledger:
        assert len(ledger.entries()) == 1
    for other in ({"seed": 1}, {"sets": {"epsilon": 0.6}}):
        refused("holds another pipeline", run, settled(of_logits(logits, **other)), out)
    shutil.copy(out / "ledger.sqlite", tmp_path / "spent.sqlite")
    spent = {"ledger": str(tmp_path / "spent.sqlite"), "seed": 1}
    with pytest.raises(InputError, match=r"epsilon 2 of 2 is spent|is spent, run"):
        run(settled(of_logits(logits, **spent)), tmp_path / "more")
    assert not (tmp_path / "more" / "recalibrate").exists()


def test_units_in_all_parts_compose(logits):
    set_of_rows = {"rows_per_client": 200.0}
    told = of_logits(logits, unit="user", recalibrate={"epsilon": 0.5, "set": set_of_rows})
    told |= {"sets": {"epsilon": 0.5, "set": set_of_rows}, "evaluate": {"set": set_of_rows}}
    budget = settled(told).budget
    assert budget.by_part.keys() == {"all"}
    assert budget.epsilons["evaluate"] < 1.9


@pytest.mark.slow
def test_training_tuning_and_what_follows(features, tmp_path):
    tables = {
        "data": features,
        "epsilon": 10.0,
        "clients": 2,
        "partition": "iid",
        "train": {"rounds": 6, "lr": 0.01, "batch_size": 64, "held_out": 0.5},
        "tune": [{"lr": 4.0}],
        "choose": {"epsilon": 4.0, "metric": "ece"},
        "recalibrate": {"rows": "train", "epsilon": 0.5},
        "sets": {},
        "evaluate": {"by": "group"},
    }
    pipeline = settled(tables)
    seeds = {stage.name: stage.config.seed for stage in pipeline.stages}
    assert seeds["evaluate"] not in (seeds["choose-train"], seeds["choose-tune-1"])  # nor its noise
    out = tmp_path / "out"
    record = run(pipeline, out)
    assert record["by_part"].keys() == {"train", "calibration", "test"}
    assert max(record["by_part"].values()) <= 10.0
    names = [one["name"] for one in record["stages"]]
    assert names[:4] == ["train", "tune-1", "choose-train", "choose-tune-1"]
    assert record["chosen"] == "tune-1"  # the other one is sure of nothing
    told = {one["name"]: one for one in record["stages"]}
    assert told["train"]["epsilon"] == told["tune-1"]["epsilon"] < 9.0  # both are charged
    after = told["recalibrate"]["results"]["before"]["accuracy"]
    assert after == told["tune-1"]["results"]["test"]["accuracy"]
    said = " ".join(record["statement"])
    assert "2 trainings were run, and all are charged" in said
    assert "choose-train, choose-tune-1, sets read the same rows" in said
    card = (out / "tune-1" / "report.html").read_text()
    for title in ("Clipped gradients", "How confident the model is", "ECE by class", "By group"):
        assert title in card


def test_a_stage_whose_result_breaks_is_not_paid_again(logits, tmp_path, monkeypatch):
    def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("broken")

    def charged() -> list[tuple[int, ...]]:
        with Ledger(tmp_path / "out" / "ledger.sqlite") as ledger:
            return [entry.charged for entry in ledger.entries()]

    pipeline, out = settled(of_logits(logits)), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(simulation, "result_of", broken)
        with pytest.raises(FedcalError, match=f"the release is in {out / 'recalibrate'}"):
            run(pipeline, out)
    assert {"calibrator.npz", "outcome.json"} <= {p.name for p in (out / "recalibrate").iterdir()}
    assert charged() == [(1,)]
    kept = (out / "recalibrate" / "calibrator.npz").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(running, "write_pipeline_report", broken)
        with pytest.raises(KeyError):
            run(pipeline, out)
    assert charged() == [(1, 2, 3)]
    record = run(pipeline, out)
    assert all(one["done"] for one in record["stages"])
    assert (out / "recalibrate" / "calibrator.npz").read_bytes() == kept
    assert charged() == [(1, 2, 3)]
    # another pipeline takes the place of this one, but not of its ledger
    other = settled(of_logits(logits, sets={"epsilon": 0.4}, ledger=str(tmp_path / "l.db")))
    refused(r"holds another pipeline: .* --overwrite replaces it", run, other, out)
    with pytest.warns(UserWarning, match="which is replaced"):
        run(other, out, overwrite=True)
    assert charged() == [(1, 2, 3)]
    assert not (out / ".replaced").exists()


def test_what_is_not_allowed_is_one_line(logits):
    table: list[tuple[dict[str, Any], str]] = [
        ({}, r"no stage is requested; allowed: \[train\], \[recalibrate\], \[sets\]"),
        ({"train": 3}, r"train must be a table"),
        ({"trian": {}}, r"unknown option or table 'trian'; did you mean 'train'"),
        ({"data": None, "sets": {}}, r"say what the rows are"),
        ({"sets": {"alpha": 0.1}}, r"\[sets\]: unknown option 'alpha'"),
        ({"sets": {"rows": "test"}}, r"\[sets\]: unknown rows 'test'"),
        ({"sets": {"rows": "train"}}, r"rows = 'train' needs a table \[train\]"),
        ({"sets": {"method": "fedbbq"}}, r"\[sets\]: method 'fedbbq' is not for this stage"),
        ({"recalibrate": {"method": "auto"}}, r"\[recalibrate\]: method 'auto' is not for"),
        ({"sets": {"epsilon": 3.0}}, r"\[sets\]: epsilon = 3 is above the pipeline's, 2"),
        ({"recalibrate": {}, "sets": {}}, r"recalibrate and sets read the same rows"),
        (
            {"recalibrate": {"epsilon": 1.9}, "sets": {"epsilon": 1.9}},
            r"recalibrate and sets spend",
        ),
        ({"epsilon": None, "sets": {"epsilon": 1.0}}, r"give that one, too"),
        ({"epsilon": None, "ledger": "l", "sets": {}}, r"cannot be charged to a ledger"),
        ({"train": {}, "tune": [{}]}, r"\[\[tune\]\] and \[choose\] go together"),
        ({"tune": [{}], "choose": {}, "sets": {}}, r"\[\[tune\]\] needs a table \[train\]"),
        ({"train": {"method": "fedavg"}}, r"\[train\]: "),
    ]
    top = {"data": logits, "clients": 3, "partition": "iid", "epsilon": 2.0}
    each_is_refused(
        table, lambda tables: settled({k: v for k, v in {**top, **tables}.items() if v is not None})
    )


def test_the_command(logits, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(f'data = "{logits}"\nclients = 3\nepsilon = 1\n[sets]\n')
    Path("bad.toml").write_text("epsilon = 1\n")
    Path("report").mkdir()
    for command, code in (("pipeline mine.toml", 0), ("report mine", 0), ("pipeline bad.toml", 2)):
        with pytest.raises(SystemExit) as end:
            main(command.split())
        assert end.value.code == code
    told = capsys.readouterr().out
    assert re.search(r"\([\d.]+, 1e-05\)-differentially private for each example", told)
    assert Path("mine", "sets", "report.html").is_file()
    assert not Path("bad").exists()
