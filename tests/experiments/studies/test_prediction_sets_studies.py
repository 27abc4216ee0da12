"""Studies of prediction sets: laws of scores, the non-private rule's mean, and small runs."""

from __future__ import annotations

import numpy as np
import pytest

from fedcal.experiments.studies import (
    prediction_sets_coverage,
    prediction_sets_rows,
    prediction_sets_users,
)
from fedcal.experiments.studies.set_worlds import (
    Setup,
    engine_thresholds,
    exact_thresholds,
    law_of,
    thresholds_of,
)

GRID = (np.arange(16) + 1) / 16


def test_a_law_counts_every_score_once() -> None:
    for name in (*prediction_sets_coverage.LAWS, "imdb-binary margin"):
        law = law_of(name, GRID)
        shares = law.buckets(GRID)
        assert shares.shape == GRID.shape
        assert shares.sum() == pytest.approx(1.0)
        assert law.covered(GRID) == pytest.approx(np.cumsum(shares))
        assert law.covered(np.array([-1e-9])) == 0.0
        if name.endswith("edges"):  # masses at and just above thresholds
            assert shares[0] == pytest.approx(0.0 if name == "above edges" else 1 / 16)


def test_mean_of_the_non_private_rule_is_that_of_runs() -> None:
    rng = np.random.default_rng(0)
    law = law_of("ties", GRID)
    found = exact_thresholds(law, 50, 46, 4000, rng)
    mean = prediction_sets_rows.mean_coverage(law, 50, law.scores)
    assert law.covered(found).mean() == pytest.approx(mean, abs=0.004)


def test_engine_and_laws_find_the_same_thresholds() -> None:
    setup = Setup("prefix", bins=16, epsilon=8.0, clients=20, mechanism="laplace")
    both = [
        found(setup, "smooth", 60, np.random.default_rng(2))
        for found in (thresholds_of, engine_thresholds)
    ]
    assert set(np.unique(both[1])) <= set(np.unique(both[0])) | set(law_grid(setup))
    assert both[0].mean() == pytest.approx(both[1].mean(), abs=0.04)


def law_grid(setup: Setup) -> list[float]:
    query = setup.strategy().query(1)
    assert query is not None
    return [float(t) for t in query.thresholds]


def test_small_runs_give_rows_and_claims() -> None:
    cells = prediction_sets_coverage.CELLS_RUN[::25]
    found = prediction_sets_coverage.rows(runs=3, engine_runs=2, cells=cells)
    assert len(found) == len(cells)
    assert prediction_sets_coverage.claims(found)
    few = [c for c in prediction_sets_rows.CELLS_RUN if c.n == 1000][:2]
    found = prediction_sets_rows.rows(runs=3, cells=few)
    assert [r["n"] for r in found] == [1000, 1000]
    assert prediction_sets_rows.claims(found)
    of = [c for c in prediction_sets_users.CELLS_RUN if c.network == "resnet110-cifar10"]
    found = prediction_sets_users.rows(runs=2, cells=[of[0], of[-1]])
    (mine,) = (r for r in found if r["rule"] == prediction_sets_users.CROSSING)
    assert 0 <= mine["cut"] < 0.01
    assert mine["ratio"] < 1.2
    assert prediction_sets_users.claims(found)
