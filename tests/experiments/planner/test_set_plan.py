"""`fedcal plan --method conformal`: what it says, against runs and against what is known."""

import json
import math

import numpy as np
import pytest

from fedcal import datasets, simulate
from fedcal.conformal import Conformity
from fedcal.core.errors import InputError
from fedcal.experiments.cli.main import _run
from fedcal.experiments.planner.plan import plan_sets
from fedcal.experiments.planner.score_law import OfRows
from fedcal.experiments.runs.config import load_config

FACTS = {"clients": 100, "rows_per_client": 50, "epsilon": 1.0}
WORDS = ["--method", "conformal", "--clients", "100", "--rows-per-client", "50", "--epsilon", "1"]


def test_without_privacy_it_is_split_conformal_prediction():
    advice = plan_sets(clients=10, rows_per_client=30, classes=4)
    (one,) = advice.estimates
    n, alpha = 300, 0.1
    expected = math.ceil((n + 1) * (1 - alpha)) / (n + 1)
    assert one.coverage == pytest.approx(expected, abs=4 * 0.018 / math.sqrt(2000))
    assert one.fewest_clients == 1  # 9 rows are enough for 0.9, and 30 are one client's
    assert plan_sets(clients=1, rows_per_client=8, classes=4).estimates[0].all_labels == 1
    assert "on average" in advice.explanation()[1]


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["crossing", "gaps"])
def test_it_says_what_runs_give(rule):
    """Mean coverage and size of real runs on dealt rows of the data that the plan knows."""
    data = datasets.load("imdb-binary")
    facts = {**FACTS, "rows_per_client": 125}
    (told,) = plan_sets(data="imdb-binary", settings={"quantile": rule}, **facts).estimates
    runs = [
        simulate(
            data,
            method="conformal",
            clients=100,
            epsilon=1.0,
            partition="iid",
            seed=seed,
            set={"quantile": rule, "rows_per_client": 125.0},
        )
        for seed in range(20)
    ]
    covered = [run.after["coverage"] for run in runs]
    error = float(np.std(covered)) / math.sqrt(len(runs))
    assert told.coverage == pytest.approx(np.mean(covered), abs=4 * error + 0.001)
    sizes = [run.after["set_size"] for run in runs]
    assert told.set_size == pytest.approx(np.mean(sizes), rel=0.03)


def test_sizes_are_those_of_sets():
    data = datasets.load("resnet110-cifar10").split(0)
    conformity = Conformity()
    law = OfRows(data, conformity, "class", data.classes)
    thresholds = np.linspace(0.5, 0.95, data.classes)
    logits = np.concatenate([data.logits, np.asarray(data.test_logits)])
    labels = np.concatenate([data.labels, np.asarray(data.test_labels)])
    sets = conformity.of_all(logits) <= thresholds
    assert law.size(thresholds) == pytest.approx(sets.sum(axis=1).mean())
    assert law.covered(thresholds) == pytest.approx(sets[np.arange(len(sets)), labels].mean())


def test_where_nothing_is_of_use_it_says_what_would_be_enough():
    facts = {**FACTS, "clients": 20, "epsilon": 0.1, "classes": 10}
    advice = plan_sets(**facts, settings={"quantile": "crossing"})
    assert advice.chosen is None
    clients, epsilon = advice.enough.clients, advice.enough.epsilon
    again = {"settings": {"quantile": "crossing"}}
    assert plan_sets(**{**facts, "clients": clients[0]}, **again).chosen is not None
    assert plan_sets(**{**facts, "epsilon": epsilon[0]}, **again).chosen is not None
    (one,) = advice.estimates
    assert one.fewest_clients < clients[0]


def test_files_hold_it_and_the_recommended_run_runs(tmp_path, capsys):
    out = tmp_path / "plan"
    words = ["plan", *WORDS, "--classes", "2", "--set", "alpha=.2", "--json", "--out", str(out)]
    assert _run(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((out / "plan.json").read_text("utf-8"))
    assert {rule["quantile"] for rule in told["rules"]} >= {"crossing", "gaps"}
    assert told["recommendation"]["expected"]["coverage"] > 0.8
    config = load_config(out / "config.toml", {"data": "imdb-binary"})
    assert config.set == {"alpha": 0.2, "quantile": "crossing", "rows_per_client": 50.0}
    assert simulate(config=config).sets.alpha == 0.2
    assert _run([*told["command"].split()[1:], "--data", "imdb-binary", "--quiet"]) == 0


def test_what_is_refused(capsys):
    for words, why in (
        ([*WORDS, "--set", "rows_per_client=3"], "--rows-per-client"),
        ([*WORDS, "--set", "target=x"], "not take --set target"),
        ([*WORDS, "--set", "speed=3"], "unknown --set key"),
        ([*WORDS, "--set", "alpha=2"], "alpha"),
        ([*WORDS, "--partition", "iid"], "does not depend on it"),
        ([*WORDS, "--data", "imdb-binary"], "must fit together"),
        (["--clients", "9", "--set", "alpha=0.1"], "--set is for --method conformal"),
    ):
        assert _run(["plan", *words, "--classes", "3"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert why in line
    with pytest.raises(InputError, match="a plan needs clients"):
        plan_sets(classes=3, rows_per_client=4)
