"""Intervals for new clients: the round that asks how much metrics vary from client to client."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategy_checks import assert_refused

from fedcal.clients.answers import answer, contribute
from fedcal.core.shards import Shards
from fedcal.evaluation import evaluate
from fedcal.evaluation.intervals.clusters import MEASURED, variance_of_folds, variance_of_squares
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.mechanisms import NoiseLaw
from fedcal.privacy import Federation
from fedcal.queries import ScoreSpread, ScoreSquares
from fedcal.queries.request import Request
from fedcal.queries.spread import FOLDS
from fedcal.strategies import FedEvaluate

CLIENTS, ROWS = 100, 50


def federation(seed: int, clients: int = CLIENTS, rows: int = ROWS, effect: float = 1.0) -> Shards:
    """Clients with intercepts of their own, in what is true and in what the model says."""
    rng = np.random.default_rng([7, seed])
    owner = np.repeat(np.arange(clients), rows)
    true, said = effect * rng.normal(size=(2, clients))
    score = 1.5 * rng.normal(size=len(owner))
    labels = (rng.random(len(owner)) < 1 / (1 + np.exp(-score - true[owner]))).astype(np.int64)
    logits = np.stack([np.zeros(len(owner)), score + said[owner]], axis=1)
    return Shards.from_owner(logits, labels, owner, clients)


def run(data: Shards, settings: dict[str, Any] | None = None, **fields: Any) -> FedEvaluate:
    own = Federation(**{"clients": data.clients, "classes": 2, **fields})
    method = FedEvaluate(own, **{"bins": 60, "estimand": "clients", **(settings or {})})
    run_inline(method, data)
    return method


def test_without_noise_the_spread_is_the_clients_sum_of_squares():
    data = federation(0)
    release = run(data).result()
    right = (data.logits[:, 1] >= 0) == data.labels
    sums = data.sum_rows(right - right.mean())
    found = release.spread["accuracy"] * len(right) ** 2
    assert found / np.square(sums).sum() == pytest.approx(1.07, abs=0.03)  # K / (K - 1), Student
    shown = release.results()
    assert shown["estimand"] == "new clients like these"
    assert "tests" not in shown
    alone = evaluate(release.histograms["model", "", ""], "positive")["accuracy"].sampling
    assert shown["metrics"]["accuracy"]["sampling"] > 1.5 * alone
    back = ScoreRelease.from_arrays(release.arrays())
    assert back.results() == shown
    these = run(data, {"estimand": "these"}).result().results()  # have no sampling part
    assert these["estimand"] == "these rows"
    assert these["metrics"]["accuracy"]["low"] == these["metrics"]["accuracy"]["value"]


@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_noise_is_paid_for_in_width_and_a_row_is_within_its_bound(delta):
    data = federation(1)
    method = run(data, epsilon=0.5, delta=delta, unit="example")
    query, plan = method.query(2), method.plan
    assert isinstance(query, ScoreSpread)
    rows = query.bound("row", (), plan.bound.order)
    assert rows.norms[0] <= plan.bound.norms[0] * (1 + 1e-12)
    assert rows.norms[0] == pytest.approx(plan.bound.norms[0])
    exact, noisy = run(data).result().spread, method.result().spread
    ratios = [noisy[name] / exact[name] for name in MEASURED["positive"]]
    assert np.mean(ratios) > 1.1


def test_a_client_is_in_the_fold_of_its_number_whatever_its_rows():
    data = federation(2, clients=45)
    method = run(data, epsilon=5.0, unit="example")
    plan, query = method.plan, method.query(2)
    assert isinstance(query, ScoreSpread)
    assert plan.bound is not None
    asked = Request(query, plan.bound, plan.ring, 2)
    sites = np.arange(45) + 7
    words, alone = contribute(data, asked, sites), answer(data, asked)
    for k, site in enumerate(sites):
        folds = words[k, : FOLDS * 6].reshape(FOLDS, 6)
        assert folds.any(axis=1).nonzero()[0].tolist() == [site % FOLDS]
        np.testing.assert_array_equal(folds[site % FOLDS], alone[k, :6])
    real = contribute(data, replace(asked, noise=None), sites, simulated=False)  # has no number
    folds = real[:, : FOLDS * 6].reshape(45, FOLDS, 6)
    np.testing.assert_array_equal(folds.sum(axis=1, dtype=np.uint64), alone[:, :6])
    assert len(np.unique(folds.any(axis=2).argmax(axis=1))) > 5


def test_where_whole_clients_are_protected_squares_are_asked_for():
    method = run(federation(3), {"rows_per_client": 50.0}, epsilon=4.0)
    assert [r.kind for r in method.releases] == ["score_counts", "score_counts", "score_squares"]
    assert isinstance(method.query(3), ScoreSquares)
    shown = method.result().results()
    assert shown["intervals_exclude"] == ["the bias of clipping a client's answer"]
    assert any("bias of clipping" in getattr(part, "note", "") for part in method.result().page())


def test_what_has_no_clustered_interval_is_refused():
    table: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"estimand": "everybody"}, {}, "estimand"),
        ({"groups": '["a"]'}, {}, "estimand"),
        ({"other": True}, {}, "estimand"),
        ({"score": "classes"}, {}, "estimand"),
        ({}, {"clients": 1}, "estimand"),
        ({}, {"epsilon": 1.0, "trust": "local"}, "estimand"),
    ]

    def make(settings: dict[str, Any], fields: dict[str, Any]) -> None:
        own = Federation(**{"clients": 20, "classes": 2, **fields})
        FedEvaluate(own, **{"estimand": "clients", **settings})

    assert_refused(table, make)


@pytest.mark.parametrize("ratio", [0.0, 1.0, 20.0])
def test_upper_variances_keep_the_level_of_intervals(ratio):
    """Whatever the noise: a normal mean of variance 1 beside them."""
    rng, many = np.random.default_rng(5), 20_000
    parts = rng.normal(0, np.sqrt(1 / FOLDS), (FOLDS, many))
    parts = (parts - parts.mean(axis=0)) + rng.normal(0, np.sqrt(ratio / FOLDS), parts.shape)
    by_folds = variance_of_folds(parts, float(np.sqrt(ratio / FOLDS)), NoiseLaw(), 1e9)
    clients = rng.normal(0, 0.1, (100, many // 4))
    squares = np.square(clients - clients.mean(axis=0)).sum(axis=0)
    by_squares = variance_of_squares(squares + ratio * rng.normal(size=many // 4), ratio, 100.0)
    for found in (by_folds, by_squares):
        mean = rng.normal(size=found.shape)
        wide = np.sqrt(np.maximum(found, 0.2))  # independent rows' variance is the least there is
        assert (np.abs(mean) <= 1.96 * wide).mean() > 0.94
