"""Studies of Maddock, Angelopoulos and Zhang et al.: payloads, sets, and models of DP-SGD."""

import math
from dataclasses import replace

import numpy as np
import pytest

from experiments.studies.angelopoulos import figures
from experiments.studies.angelopoulos.splits import exact_thresholds, scored, split
from experiments.studies.expected import shipped
from experiments.studies.maddock import costs
from experiments.studies.rows import rng_of
from experiments.studies.run import reproduce
from experiments.studies.zhang import models, tables
from experiments.studies.zhang.models import Training
from experiments.studies.zhang.tables import METHODS, made, table1
from fedcal import datasets, simulate
from fedcal.conformal import Conformity, PredictionSets
from fedcal.core.checks import InputError
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


def test_evaluated_as_the_sets_themselves():
    splits = split(scored("resnet110-cifar10"), 100, 300, 2, rng_of("test", 0))
    found = splits.evaluate(np.array([0.3, 1.0]))
    shipped = datasets.load("resnet110-cifar10")
    sets = PredictionSets(Conformity("lac"), np.array([0.3]), 10, 0.1)
    chosen = sets.of_logits(shipped.test_logits[splits.tests[0]])
    labels = shipped.test_labels[splits.tests[0]]
    assert found.coverage[0] == chosen[np.arange(300), labels].mean()
    assert found.mean_sizes == pytest.approx([chosen.sum(axis=1).mean(), 10.0])
    assert (found.empty[1], *found.all_labels) == (0.0, False, True)
    assert [len(set(rows)) for rows in splits.tests] == [300, 300]
    scores = np.linspace(0.01, 0.99, 99)[None]
    assert exact_thresholds(scores, 0.1) == [scores[0, 89]]  # the 90th of 99, exactly
    assert exact_thresholds(scores[:, :8], 0.1) == [1.0]


@pytest.mark.parametrize("figure", [figures.figure4, figures.figure5, figures.figure6])
def test_a_figure_from_few_splits(figure, monkeypatch):
    monkeypatch.setattr(figures, "SEEDS", 2)
    rows = figure.rows(splits=2)
    assert all(output for _, _, output, *_ in figure.claims(rows))
    assert all(0.8 < r["coverage"] <= 1.0 for r in rows if r["what"] == "setting")
    rule = {"bins": 100, "gamma": 0.01, "level": 0.95, "epsilon": 1_000.0, "n": 100}
    found = figures.bounded(rule | {"coverage": 0.9}, 0.01)
    assert found["room"] == pytest.approx(0.025535, rel=1e-4)  # Theorem 3, by hand


def test_levels_and_what_is_lost_at_one():
    rows = figures.figure2.rows(trials=50)
    verdicts = [holds for _, holds, *_ in figures.figure2.claims(rows)]
    assert verdicts == [True, True, False, False]


@pytest.fixture(scope="module")
def of():
    """600 rows of three classes, and as many to test on."""
    rng, parts = np.random.default_rng(0), []
    for _ in range(2):
        y = rng.integers(0, 3, 600)
        parts += [(rng.standard_normal((600, 4)) * 0.3 + np.eye(4)[y]).astype(np.float32) / 3, y]
    return models.Task("made", *parts, 3)


def test_a_table_of_a_task(of, monkeypatch):
    monkeypatch.setattr(tables, "task", lambda name: of)
    found = table1.rows(seeds=1)
    assert [r["method"] for r in found if r["what"] == "method"] == list(METHODS)
    output = list(table1.claims(found))
    assert all(text and words for text, _, words, *_ in output)
    assert any("in the paper's order" in text for text, *_ in output)


def test_features_from_a_file(of, tmp_path):
    path = tmp_path / "mine.npz"
    test = {"test_features": of.test_x, "test_labels": of.test_y, "test_fog_3": of.test_x[:50] / 2}
    np.savez(path, features=of.x, labels=of.y, **test)
    found = models.task(str(path))
    assert (found.name, [*found.shifted], found.rows) == ("mine", [("fog", 3)], 600)
    assert np.array_equal(found.shifted["fog", 3], found.test_x[:50] / 2)
    with pytest.raises(InputError, match="needs --features FILE"):
        reproduce("zhang-table1-cifar10")


def test_split_and_recalibration_share_the_model_and_no_row(of):
    held = models.kept_from(of, 0)
    assert 0 < held.sum() < of.rows / 5
    z, y = models.held_logits(of, Training(8.0, share=models.HELD), 0)
    assert (y == of.y[held]).all()
    assert len(z) == held.sum()
    split, exact = (made(of, title, 8.0, 0)[0] for title in (tables.SPLIT, tables.EXACT_TS))
    assert (split.w == exact.w).all()


def test_added_noise_has_the_std_that_it_is_reported_to_have(of):
    one = replace(models.PLAIN, epochs=1e-9, lr=1.0)  # one step
    noisy = [models.trained(of, replace(one, added=400.0), seed).w for seed in range(40)]
    plain = [models.trained(of, one, seed).w for seed in range(40)]
    steps = np.subtract(noisy, plain) * one.batch
    assert steps.std() == pytest.approx(400.0, rel=0.15)
    assert abs(steps.mean()) < 4 * 400 / math.sqrt(steps.size)
    dropped = [models.trained(of, replace(one, dropout=0.5), seed).w for seed in range(40)]
    error = np.std(dropped, axis=0) / math.sqrt(40)
    assert error.mean() > 1.4 * np.std(plain, axis=0).mean() / math.sqrt(40)
    assert (abs(np.mean(dropped, axis=0) - np.mean(plain, axis=0)) < 6 * error).all()


def test_privately_trained_heads_stand_beside_others_in_figure_3(of, monkeypatch):
    monkeypatch.setattr(figures, "task", lambda name: of)
    monkeypatch.setattr(figures, "SHIPPED", ("made",))
    rows = [r for r in figures.figure3.rows(splits=50) if r["data"] == "made"]
    found = {(r["model"], r["sets"]): r for r in rows if r["what"] == "setting"}
    assert {model for model, _ in found} == {"non-private", "DP-SGD"}
    for line in found.values():
        assert (line["splits"], line["n"], line["tests"]) == (50, 300, 300)
        assert line["between"] > 0  # over five trainings
