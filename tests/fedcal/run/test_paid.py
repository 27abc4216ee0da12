"""What is paid for is on disk before anything is made of it, whatever breaks then."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategy_checks import BUDGETED

from fedcal import datasets, simulate
from fedcal.cli.main import exit_code_of
from fedcal.core.checks import FedcalError, InputError, TooLittle
from fedcal.partition import deal
from fedcal.privacy.ledger import Ledger
from fedcal.results import page
from fedcal.run import simulation, training
from fedcal.run.config import merge
from fedcal.run.engines.inline import run_inline
from fedcal.run.estimator import FederatedCalibrator
from fedcal.run.jobs import job_of
from fedcal.strategies import STRATEGIES
from fedcal.strategies.settings import settings_of

pytestmark = pytest.mark.usefixtures("quick_figures")

ROWS, CLIENTS = 120, 6
QUICK = {"iterations": 2, "bins": 5, "bins_exponent": 3, "epochs": 1}
OF_FAMILIES = {STRATEGIES[name].family: name for name in reversed(BUDGETED)}
"""The first method of each family."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.npz"
    rng = np.random.default_rng(0)
    labels = np.arange(ROWS) % 3
    logits = rng.normal(size=(ROWS, 3)) + 2 * np.eye(3)[labels]
    np.savez(path, logits=logits, labels=labels, subject=np.arange(ROWS) // 2)
    return str(path)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "features.npz"
    rng = np.random.default_rng(0)
    y = np.arange(ROWS) % 3
    x = (rng.normal(size=(ROWS, 4)) / 9).astype(np.float32)
    names = np.array(["a", "b", "c"])
    np.savez(path, features=x, labels=y, client=np.arange(ROWS) % CLIENTS, class_names=names)
    return str(path)


def options(method: str, out: Path) -> dict[str, Any]:
    quick = {k: v for k, v in QUICK.items() if k in settings_of(method)}
    return {
        **{"method": method, "clients": CLIENTS, "partition": "iid", "epsilon": 1.0, "seed": 3},
        **{"ledger": str(out) + ".db", "cap": 1.0, "set": quick},
    }


def broken(*_: Any, **__: Any) -> Any:
    raise KeyError("broken")


def charged(ledger: Path | str) -> list[tuple[int, ...]]:
    with Ledger(ledger) as book:
        return [entry.charged for entry in book.entries()]


@pytest.mark.filterwarnings("ignore:too little")
@pytest.mark.filterwarnings("ignore:delta")
@pytest.mark.parametrize("method", OF_FAMILIES.values())
def test_what_a_method_releases_outlives_a_result_that_breaks(method, data, tmp_path, monkeypatch):
    out = tmp_path / "run"
    given = options(method, out)
    with monkeypatch.context() as patch:
        patch.setattr(simulation, "result_of", broken)
        with pytest.raises(FedcalError, match=rf"KeyError: 'broken'; .* fedcal report {out} makes"):
            simulate(data, out=out, **given)
    (releases,) = charged(given["ledger"])
    record = json.loads((out / "outcome.json").read_text("utf-8"))
    assert (record["job"]["epsilon"], record["job"]["ledger"]) == (1.0, given["ledger"])
    assert len(record["records"]) == len(releases) > 0
    assert (out / f"{record['form']}.npz").is_file()
    with pytest.raises(InputError, match="paid for and has no report yet"):
        simulate(data, out=out, **given)
    with pytest.raises(InputError, match=r"the seed of the run of .* must be 3, got 4"):
        simulate(data, out=out, resume=True, **given | {"seed": 4})
    assert exit_code_of(["report", str(out), "--quiet"]) == 0
    assert charged(given["ledger"]) == [releases]
    full = simulate(data, out=tmp_path / "whole", **given | {"ledger": str(tmp_path / "w.db")})
    record = json.loads((out / "result.json").read_text("utf-8"))
    once = json.loads(json.dumps(full.to_json()))
    for key in ("seconds", "config"):  # another ledger
        record.pop(key), once.pop(key)
    assert record == once
    assert {p.name for p in out.iterdir()} == {p.name for p in (tmp_path / "whole").iterdir()}


def test_a_warning_is_raised_before_the_first_charge(tmp_path):
    """Where warnings are errors, and nothing is written: the estimator had lost what it paid."""
    estimator = FederatedCalibrator(clients=4, epsilon=0.1, ledger=str(tmp_path / "l.db"), cap=1.0)
    labels = np.arange(40) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TooLittle):
            estimator.fit(3 * np.eye(2)[labels], labels)
    assert not (tmp_path / "l.db").exists()


@pytest.mark.parametrize(
    ("end", "again"),
    [
        ((training.Training, "to_json"), ("train", "--out", "{out}", "--resume")),
        ((page, "render"), ("report", "{out}")),
    ],
)
def test_a_trained_model_outlives_a_report_that_breaks(end, again, images, tmp_path, monkeypatch):
    out, ledger = tmp_path / "model", tmp_path / "l.db"
    given = {"data": images, "epsilon": 2.0, "rounds": 12, "ledger": str(ledger), "cap": 2.0}
    with monkeypatch.context() as patch:
        patch.setattr(*end, broken)
        with pytest.raises(FedcalError, match=f"the release is in {re.escape(str(out))}"):
            training.train(out=out, **given)
    once = charged(ledger)
    assert {"model.npz", "outcome.json", "config.toml"} <= {p.name for p in out.iterdir()}
    assert exit_code_of([*(word.format(out=out) for word in again), "--quiet"]) == 0
    assert charged(ledger) == once == [tuple(range(1, 13))]
    record = json.loads((out / "training.json").read_text("utf-8"))
    assert record["privacy"]["releases"] == 12
    assert not {"outcome.json", "checkpoint.json"} & {p.name for p in out.iterdir()}


def test_a_run_of_flwr_is_a_result(data, tmp_path):
    config = merge({"data": data, "method": "fednewton", "clients": 4, "partition": "iid"})
    shards = deal(datasets.load(data).split(0), "iid", 4, 0)
    job = job_of(config, shards)
    outcome = job.run(lambda strategy: run_inline(strategy, shards=shards))
    outcome.job.update(data=data, partition="iid")  # as the ServerApp does
    outcome.save(tmp_path)
    assert exit_code_of(["report", str(tmp_path), "--quiet"]) == 0
    record = json.loads((tmp_path / "result.json").read_text("utf-8"))
    expected = simulate(data, method="fednewton", clients=4, partition="iid").to_json()
    assert record["after"] == expected["after"]
    assert record["privacy"] == expected["privacy"]
