"""A model trained over three real sites, from their commands to its files."""

import json
import re
from typing import Any

import numpy as np
import pytest
from deployment import SITES, Deployment
from machine import Machine
from numpy.typing import NDArray

from fedcal import datasets
from fedcal.training.networks import load_model

pytestmark = pytest.mark.slow

WIDTH, ROUNDS = 16, 4
TRAIN = ("--method", "fedsgd", "--set", "rows_per_client=300", "--set", "batch=150")
PRIVATE = ("--epsilon", "8", "--unit", "example")


def features(name: str) -> dict[str, NDArray[Any]]:
    rng = np.random.Generator(np.random.Philox(key=ord(name)))
    labels = rng.integers(0, 3, 400)
    x = rng.normal(size=(400, WIDTH)).astype(np.float32) / 4 + np.eye(3, WIDTH)[labels]
    of = {"features": x[:300].astype(np.float32), "labels": labels[:300]}
    test = {"test_features": x[300:].astype(np.float32), "test_labels": labels[300:]}
    return {**of, **test, "class_names": np.array(["cat", "dog", "owl"])}


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    with Machine(tmp_path_factory.mktemp("training")) as machine:
        there = Deployment(machine)
        there.up()
        for name in SITES:
            there.site(name, arrays=features(name))
        machine.until(lambda: machine.online(there.env) == len(SITES))
        yield there


def asked(there: Deployment, out: str, *more: str) -> tuple[int, str]:
    """Exit code, and the last line of what a run complained of."""
    run = there.fedcal(
        *("deploy", "run", *there.reach, "--clients", "3", *PRIVATE, *TRAIN, "--out", out, *more)
    )
    _, err = run.communicate(timeout=300)
    return run.returncode, (err.splitlines() or [""])[-1]


def test_a_model_comes_of_it_and_each_site_judges_it(there):
    shape = ("--set", f"shape={WIDTH}", "--rounds", str(ROUNDS), "--ledger", "l.db", "--cap", "8")
    assert asked(there, "trained", *shape)[0] == 0
    model = load_model(there.folder / "trained" / "model.npz")
    assert (model.shape, model.classes) == ((WIDTH,), 3)
    told = there.result("trained")
    assert told["privacy"]["epsilon"] == 8
    assert told["communication"]["rounds"] == ROUNDS
    with np.load(there.folder / "a.npz") as own:
        right = model.predict(own["test_features"]).argmax(axis=1) == own["test_labels"]
    assert right.mean() > 0.8
    for name in SITES:
        site = there.folder / f"site-{name}"
        (judged,) = (site / "results").glob("*/metrics.json")
        found = json.loads(judged.read_text())["after"]["accuracy"]
        assert found > 0.8
        log = (site / "site.log").read_text("utf-8")
        assert f"on own test rows: accuracy {found:.4f}, top-label ECE" in log
        assert not re.search(r"\b300\b", log)
    took = re.findall(
        r"a message took ([\d.]+) s", (there.folder / "site-a" / "flower.log").read_text("utf-8")
    )
    assert len(took) >= ROUNDS + 2
    words = ["--calibrator", "trained/model.npz", "--data", "a.npz", "--out", "logits.npz"]
    there.machine.call(["fedcal", "apply", *words], there.env)
    assert datasets.load(str(there.folder / "logits.npz")).test_logits.shape == (100, 3)
