"""The study of harm at sites: its truths are true, its releases unbiased, its targets sharp."""

import numpy as np
import pytest

from fedcal.core.numerics import softmax
from fedcal.experiments.research.studies.expected import shipped
from fedcal.experiments.research.studies.own import no_site_harmed as study
from fedcal.experiments.research.studies.rows import one


@pytest.mark.parametrize("name", ["heart-disease", "mmlu-llama"])
def test_a_sites_own_effect_undone_is_the_model_as_it_was(name):
    made = study.world(name, "strong")
    kind = np.arange(0, 400, 37)
    plain = study.world(name, "none").log_loss(kind, 0 * made.effects[kind])
    assert made.log_loss(kind, made.effects[kind]) == pytest.approx(plain, abs=1e-4)
    shards = made.draw(kind[:1], 4000, 1, np.random.default_rng(0))
    rows = softmax(shards.logits)[np.arange(4000), shards.labels]
    other = made.log_loss(kind[:1], np.zeros((1, made.effects.shape[1])))
    assert -np.log(rows).mean() == pytest.approx(other[0], abs=4 * np.log(rows).std() / 63)


def test_counts_have_their_mean_and_a_subject_counts_once():
    made, kind = study.world("heart-disease", "natural"), np.tile(np.arange(4), (20_000, 1))
    for of_one, subjects in ((1, 16), (2, 8)):
        found = made.counts(kind, 16, of_one, np.random.default_rng(1))
        shares = found.mean(axis=0) / found.sum(axis=(-2, -1)).mean(axis=0)[:, None, None]
        assert shares == pytest.approx(made.shares, abs=0.004)
        assert np.median(found.sum(axis=(-2, -1))) == subjects
    own = made.draw(kind[0], 6, 2, np.random.default_rng(2))
    pairs = own.labels.reshape(4, 3, 2)
    assert (pairs[..., 0] == pairs[..., 1]).all()
    assert (own.weights(1) == 0.5).all()


def test_noise_is_that_of_the_plan():
    assert study.noise_std("none", 30, 2) == 0.0
    for unit in ("example", "subject"):
        # discrete Laplace noise of scale 1; rows of subjects have weights: on the fine grid
        exact = 1 / (np.sqrt(2) * np.sinh(0.5)) if unit == "example" else np.sqrt(2)
        assert study.noise_std(unit, 30, 2) == pytest.approx(exact, rel=1e-4)


def test_true_values_are_those_of_many_rows():
    at = np.array([[0.4, -0.3]])
    p = 1 / (1 + np.exp(-(0.4 + np.exp(-0.3) * study._X)))
    rng = np.random.default_rng(3)
    y = rng.random((5000, 400)) < p
    above = np.cumsum(~y, axis=1) - 0.5 * ~y
    auc = (y * above).sum(1) / (y.sum(1) * (~y).sum(1))
    assert np.log(auc / (1 - auc)).mean() == pytest.approx(
        study.true_values(at, "logit_auc")[0], abs=0.01
    )
    right = np.zeros((1, 2))
    for metric in ("calibration_in_the_large", "log_observed_expected", "log_slope"):
        assert study.true_values(right, metric) == pytest.approx(0, abs=1e-12)
    only = study.true_values(np.array([[0.4, 0.0]]), "calibration_in_the_large")
    assert only == pytest.approx(0.4, abs=1e-9)
    assert study.logistic_shares(at)[0, 1].sum() == pytest.approx(p.mean())


def test_targets_are_missed_where_a_cell_misses_them():
    plain = {"what": "harm", "data": "d", "differences": "mild", "sites": 4, "own": 5}
    good = plain | {"budget": "none", "harmed_federation": 0.05, "limit_federation": 0.06}
    good |= {"over_identity": -0.001, "low": -0.002, "high": 0.001}
    assert [holds for _, holds, _ in study.claims([good, good])] == [True] * 4
    for key, value, claim in (
        *(("harmed_federation", 0.0501, 0), ("limit_federation", 0.0601, 1)),
        *(("over_identity", 0.0051, 2), ("over_identity", 0.001, 3)),
    ):
        assert not [*study.claims([good, good | {key: value}])][claim][1]


def test_a_setting_again():
    row = one(
        shipped("no-site-harmed").rows,
        **{"what": "next site", "metric": "log_slope", "sites": 8, "epsilon": "none"},
        i_squared=0.5,
    )
    again = study.next_site_row("log_slope", 8, "none", 0.5, row["federations"])
    assert again["coverage"] == pytest.approx(row["coverage"], abs=0.01)
