"""Studies of prediction sets: splits, laws of scores, and the rules that others have."""

import numpy as np
import pytest
from refusals import refused

from fedcal import datasets
from fedcal.conformal import Conformity, PredictionSets
from fedcal.experiments.research.studies.angelopoulos import fedcp_qq, figures, pcoqs, peers
from fedcal.experiments.research.studies.angelopoulos.splits import (
    MEDICAL,
    exact_thresholds,
    scored,
    split,
)
from fedcal.experiments.research.studies.prediction_sets import coverage, laws, users
from fedcal.experiments.research.studies.rows import rng_of

FIGURES = (figures.figure3, figures.figure4, figures.figure5, figures.figure6)


def test_judged_as_the_sets_themselves():
    kept = {"resnet110-cifar10": 10_000, "heart-disease": 769, MEDICAL: 1_254}
    assert {name: len(scored(name).own) for name in kept} == kept
    splits = split(scored("resnet110-cifar10"), 100, 300, 2, rng_of("test", 0))
    found = splits.judged(np.array([0.3, 1.0]))
    shipped = datasets.load("resnet110-cifar10")
    sets = PredictionSets(Conformity("lac"), np.array([0.3]), 10, 0.1)
    chosen = sets.of_logits(shipped.test_logits[splits.tests[0]])
    labels = shipped.test_labels[splits.tests[0]]
    assert found.coverage[0] == chosen[np.arange(300), labels].mean()
    assert found.mean_sizes == pytest.approx([chosen.sum(axis=1).mean(), 10.0])
    assert (found.sizes.sum(), found.all_labels) == (600, 0.5)
    assert [len(set(rows)) for rows in splits.tests] == [300, 300]
    scores = np.linspace(0.01, 0.99, 99)[None]
    assert exact_thresholds(scores, 0.1) == [scores[0, 89]]  # the 90th of 99, exactly
    assert exact_thresholds(scores[:, :8], 0.1) == [1.0]


def test_a_quantile_of_quantiles_covers_as_computed(monkeypatch):
    monkeypatch.setattr(fedcp_qq, "_NODES", 64)  # exact for so few rows
    found = fedcp_qq.mean_coverage(3, 5)
    scores = np.random.default_rng(0).random((40_000, 3, 5))
    scores.sort(axis=2)
    drawn = np.sort(scores, axis=1).mean(axis=0).T  # of uniform scores
    assert found == pytest.approx(drawn, abs=0.006)
    rank, of_clients, mean = fedcp_qq.best_ranks(3, 5, 0.2)
    assert mean == pytest.approx(found[found >= 0.8].min())
    assert mean == found[rank - 1, of_clients - 1]
    refused("too few", fedcp_qq.best_ranks, 2, 3, 0.1)
    refused("evenly", fedcp_qq.thresholds, scores[:, 0], 4, 0.1)


def test_pcoqs_ends_at_the_rank_without_noise_and_covers_too_little_of_few_rows():
    rng = np.random.default_rng(0)
    scores = rng.random((50, 99))
    found = pcoqs.thresholds(scores, 0.1, 1e12, rng, digits=12)
    low, high = np.sort(scores)[:, [89, 90]].T  # noise just below 0, rounded down, is a row less
    assert ((low - 1e-9 <= found) & (found <= high + 1e-9)).all()
    found = pcoqs.thresholds(rng.random((2000, 50)), 0.1, 1 / 8, rng)
    assert found.mean() == pytest.approx(0.83, abs=0.015)


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_from_few_splits(figure, monkeypatch):
    monkeypatch.setattr(figures, "tasks", lambda data: [])  # heads: test_zhang.py
    monkeypatch.setattr(figures, "SEEDS", 2)
    rows = figure.rows(splits=2)
    assert figure.sheet(rows) is not None
    assert all(said for _, _, said, *_ in figure.claims(rows))
    settings = [r for r in rows if r["what"] == "setting"]
    assert all(0.8 < r["coverage"] <= 1.0 for r in settings)


def test_levels_and_what_is_lost_at_one():
    rows = figures.figure2.rows(trials=50)
    assert figures.figure2.sheet(rows) is not None
    verdicts = [holds for _, holds, *_ in figures.figure2.claims(rows)]
    assert verdicts == [True, True, False, False]


def test_peers_on_few_splits(monkeypatch):
    # what the best ranks are is tested above, and takes its time with many rows
    monkeypatch.setattr(fedcp_qq, "best_ranks", lambda m, n, alpha: (n - n // 10, m, 1 - alpha))
    rows = peers.rows(splits=2, made=20)
    assert {r["rule"] for r in rows} == {
        *("non-private", "non-private, our grid", "FedCP-QQ", "Angelopoulos et al."),
        *("Angelopoulos et al., m = 10,000", "ours, a draw", "ours, a release"),
        *("P-COQS", "P-COQS, not rounded"),
    }
    assert len(list(peers.claims(rows))) == 10
    assert peers.sheet(rows) is not None
    sized = [r for r in rows if r["data"] in peers.DATA]
    assert all(r["set_size"] > 0 for r in sized)


def test_engine_and_laws_find_the_same_thresholds():
    setup = laws.Setup("prefix", bins=16, epsilon=8.0, clients=20, mechanism="laplace")
    both = [
        found(setup, "smooth", 60, np.random.default_rng(2))
        for found in (laws.thresholds_of, laws.engine_thresholds)
    ]
    assert set(np.unique(both[1])) <= set(np.unique(both[0])) | set(law_grid(setup))
    assert both[0].mean() == pytest.approx(both[1].mean(), abs=0.04)


def law_grid(setup: laws.Setup) -> list[float]:
    query = setup.strategy().query(1)
    return [float(t) for t in query.thresholds]


def test_small_runs_give_rows_and_claims():
    cells = coverage.CELLS_RUN[::25]
    found = coverage.promises.rows(runs=3, engine_runs=2, cells=cells)
    assert len(found) == len(cells)
    assert list(coverage.promises.claims(found))
    few = [c for c in coverage.PROTECTED if c.n == 1000][:2]
    found = coverage.excess.rows(runs=3, cells=few)
    assert [r["n"] for r in found] == [1000, 1000]
    assert len(list(coverage.excess.claims(found))) == 2
    of = [c for c in users.CELLS_RUN if c.network == "resnet110-cifar10"]
    found = users.rows(runs=2, cells=of[:1])
    (mine,) = (r for r in found if r["rule"] == users.CROSSING)
    assert 0 <= mine["cut"] < 0.01
    assert mine["ratio"] < 1.2
    assert list(users.claims(found))
