"""Studies of evaluation and of five hospitals: what is simulated is what is released and named."""

import math

import numpy as np
import pytest

from experiments.studies.evaluation import curves, errors
from experiments.studies.evaluation.intervals import Cell, populations, shards_of
from experiments.studies.evaluation.worlds import released, rows_of_rounds, world
from experiments.studies.rows import rng_of
from fedcal.evaluation import Histogram
from fedcal.evaluation.score_release import ScoreRelease
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.evaluate import FedEvaluate


def strategy(trust: str, unit: str = "example", clients: int = 20, seed: int = 3) -> FedEvaluate:
    epsilon = math.inf if trust == "secagg" else 1.0
    facts = Federation(clients, 2, epsilon=epsilon, unit=unit, trust=trust, seed=seed)
    return FedEvaluate(facts, bins=12, edges="equal-width", secure_aggregation="none")


def test_exact_releases_are_the_engine_s():
    rng = rng_of("test", 0)
    drawn = world("beta").draw(500, rng)
    exact = run_inline(strategy("secagg"), shards_of(drawn, 20, "iid", rng))
    assert isinstance(exact, ScoreRelease)
    assert np.array_equal(exact.counts, released(strategy("secagg"), [drawn], rng).counts)
    skewed = [shards_of(drawn, 20, how, rng) for how in ("iid", "dirichlet:0.05")]
    iid, other = (run_inline(strategy("distributed"), clients).counts for clients in skewed)
    assert np.array_equal(iid, other)  # how clients differ changes no bit, noise included


def test_curves_by_quantiles_of_exact_counts():
    shares, near = np.array([1.0, 0.7, 0.3, 0.0]), np.array([0.0, 0.4999, 0.5, 1.0])
    above = curves.share_above(np.array([0.0, 0.5, 0.5, 1.0]), shares, near)
    assert above == pytest.approx([1.0, 0.7, 0.3, 0.0], abs=1e-3)  # it jumps at 0.5
    counts = np.array([[1.0], [3.0]]) * np.ones(128)
    found = curves.by_quantiles(Histogram.exact(np.linspace(0, 1, 129), counts), 32)
    x = np.array([0.0, 1.0])
    assert curves.area_error(found["ROC"], (x, x)) < 0.01
    assert curves.area_error(found["PR"], (x, 0 * x)) == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize(("trust", "unit"), [("distributed", "example"), ("local", "user")])
def test_noise_of_all_clients_has_the_std_that_is_stated(trust, unit):
    rng = rng_of("test", 1, trust, unit)
    asked = strategy(trust, unit, clients=1000)
    off, stated = [], 0.0
    for _ in range(200):
        drawn = [world("calibrated").draw(size, rng) for size in rows_of_rounds(asked)]
        seen = released(asked, drawn, rng).histograms["model", "", ""]
        rows = np.sum(drawn, axis=0)
        above = rows[:, rows.shape[1] // 2 :].sum()
        off.append(seen.counts[:, 6:].sum() - above)
        weights = np.zeros((2, 12))
        weights[:, 6:] = 1.0
        stated = float(seen.noise_std(weights))
    # Unary encoding states the noise of an empty cell; a full one has up to a quarter more.
    assert 0.85 < np.std(off) / stated < (1.3 if unit == "user" else 1.15)
    assert abs(np.mean(off)) < 4 * stated / math.sqrt(200)


def test_a_few_federations():
    cells = [
        Cell("beta", "central", ("accuracy", "roc_auc")),
        Cell("calibrated", "central", ("classwise_ece",)),
        Cell("imdb-binary", "central", ("accuracy",), unit="user", dealt="dirichlet:1"),
    ]
    found = populations.rows(federations=25, cells=cells)
    assert [r["metric"] for r in found] == ["accuracy", "roc_auc", "classwise_ece", "accuracy"]
    assert all(row["coverage"] >= 0.5 and 0 < row["width"] < 0.5 for row in found)
    assert [r["group"] for r in found] == ["smooth", "smooth", "error", "user"]
    assert len(list(populations.claims(found))) == 6


def test_a_few_errors():
    found = errors.rows(trials=2, most_clients=1000)
    for row in (r for r in found if r["what"] == "error"):
        exact = (row["trust"], row["quantity"]) == ("secagg", "P/R/A given")
        assert (row["error"] == 0) == exact
    assert next(iter(errors.claims(found)))[1]


def test_a_slope_holds_by_its_limit_and_not_by_its_noise():
    exact = {"what": "error", "trust": "secagg", "quantity": "P/R/A given", "error": 0.0}
    one = {"what": "slope", "trust": "local", "label": "l", "quantity": "q", "axis": "clients"}
    for slope_, error, holds in (
        (-0.95, 0.02, True),
        (-0.85, 0.14, None),
        (-0.92, 0.08, None),
        (-0.5, 0.1, False),
    ):
        rows = [exact, one | {"slope": slope_, "slope_std": error, "theory": -1}]
        assert list(errors.claims(rows))[1][1] is holds
