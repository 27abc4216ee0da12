"""Trials of Luo et al.: tables, searches, noise, and the same rows however they are computed."""

from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from experiments.studies.luo import results
from experiments.studies.luo import trials as methods
from experiments.studies.luo.results import table1
from experiments.studies.luo.trials import SweepPoint, Tables, Trials, divisions
from fedcal import datasets, simulate
from fedcal.datasets import Dataset

POINT = SweepPoint("sources", 12, 10, 1.0)


def made(n: int = 600, classes: int = 4, seed: int = 0, name: str = "made") -> Dataset:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    logits = 3 * (rng.normal(size=(n, classes)) + 0.8 * np.eye(classes)[labels])
    return datasets.from_arrays(logits=logits, labels=labels, name=name)


@pytest.fixture(scope="module")
def tables():
    return Tables.of(made())


def draws_of(
    key: str, trials: int, point: SweepPoint = POINT, classes: int = 4, seed: int = 0
) -> methods.Draws:
    method, _, trust = key.partition("/")
    plan = methods.PRIVATE[method].plan(point, classes, trust)
    return methods.Draws.under(plan, trials, np.random.default_rng(seed))


def test_divisions_draw_each_row_once_and_all_alike(tables):
    drawn_rows = divisions(tables, POINT, 400, seed=1)
    assert all(len(set(rows)) == POINT.fit_rows for rows in drawn_rows.tolist())
    # the first source is a uniform draw too: one-source is fitted on it
    first = np.bincount(drawn_rows[:, : POINT.samples].ravel(), minlength=tables.rows)
    assert stats.chisquare(first).pvalue > 1e-3


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize("key", methods.PRIVATE)
def test_the_strategies_themselves_reach_the_same_ece(key, trust):
    """With next to no noise: the same rows and clients, the same ECE. And the same noise."""
    data = made(900, classes=2, seed=8)  # every bin from 1/2 on has rows of the sources
    tables = Tables.of(data)
    point = SweepPoint("sources", 40, 10, 1e8)
    trials = Trials(tables, point, divisions(tables, point, 2, seed=0))
    draws = draws_of(f"{key}/{trust}", 2, point, 2)
    got = methods.PRIVATE[key].run(trials, draws)
    for k, fit in enumerate(trials.fit):
        rest = np.setdiff1d(np.arange(tables.rows), fit)
        result = simulate(
            {
                "logits": data.logits[fit],
                "labels": data.labels[fit],
                "client": np.repeat(np.arange(point.sources), point.samples),
                "test_logits": data.logits[rest],
                "test_labels": data.labels[rest],
            },
            method=methods.PRIVATE[key].strategy,
            partition="natural",
            epsilon=point.epsilon,
            unit="example",
            trust=trust,
            set=dict(methods.PRIVATE[key].settings),
        )
        assert got[k] == pytest.approx(result.after["ece"], abs=1e-6)
        assert np.unique(result.privacy["noise_std"]) == pytest.approx([draws.of.std[0]])


def test_a_table_sums_up_its_cells(monkeypatch):
    monkeypatch.setattr(datasets, "shifted", lambda name: [("fog", 5), ("snow", 5), ("fog", 1)])
    monkeypatch.setattr(methods, "SETTINGS", methods.SETTINGS[4::5])
    rows = table1.rows(jobs=1, trials=2)
    cells = [r for r in rows if r["what"] == "cell"]
    assert {r["data"] for r in cells} == {"fog", "snow"}
    found = {(r["method"], r["noise"]): r for r in rows if r["what"] == "method"}
    assert found["acc-t", "local"]["median"] == median(r["acc-t/local"] for r in cells)
    assert len(list(table1.claims(rows))) == 6


def turns(values) -> np.ndarray:
    """Signs of the steps of a function of T between its plateaus, where they change."""
    signs = np.sign(np.diff(values))[np.abs(np.diff(values)) > 1e-8]
    return np.diff(signs)


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(1, 40))
def test_the_loss_and_the_gap_fall_and_then_rise(seed, classes, rows):
    """Propositions 1 and 2: golden section finds the minimum of NLL-T and of Acc-T."""
    data, temperatures = made(rows, classes, seed), np.geomspace(0.1, 30, 60)
    gaps, _, losses = methods.tabulate(data.logits, data.labels, temperatures)
    assert (turns(losses.mean(axis=1)) >= 0).all()
    assert (turns(np.abs(gaps.mean(axis=1))) >= 0).all()


def test_the_objective_of_ece_t_has_several_minima(tables):
    assert (turns(np.abs(tables.totals).sum(axis=1)) > 0).sum() > 1


def test_claims_at_one_point(monkeypatch):
    monkeypatch.setattr(results, "load", lambda source, name, severity: made(1600))
    rows = results.point.rows(trials=2)
    assert len(list(results.point.claims(rows))) == 7
    noiseless = [(r["acc-t/exact"], r["none"]) for r in rows if r["what"] == "perturbation"]
    assert len({*noiseless}) == 1
    assert noiseless[0][0] < noiseless[0][1]


def test_noise_follows_table_2():
    def std(strategy: str, epsilon: float = 1.0, **settings: float) -> float:
        point = SweepPoint("epsilon", 50, 30, epsilon)
        plan = methods.Private(methods.PRIVATE["acc-t"].run, strategy, settings).plan(
            point, 10, "local"
        )
        return methods.Draws.under(plan, 1, np.random.default_rng(0)).of.std[0]

    once = std("acct")
    assert std("acct", iterations=11) == pytest.approx(2 * once, rel=0.01)
    assert std("acct", epsilon=2.0) == pytest.approx(once / 2, rel=0.01)
    assert std("nllt", nll_clip=3.0) == pytest.approx(3 * once, rel=0.01)
    assert std("ecet", bins=30) == pytest.approx(std("ecet", bins=15))
