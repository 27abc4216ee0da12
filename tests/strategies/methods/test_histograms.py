"""FedBin, FedBBQ and DP-Histogram on histograms small enough to weigh by hand."""

import math
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from strategy_checks import some_shards

from fedcal.calibrators import TopLabelBinning
from fedcal.core.numerics import Floats
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import FederatedStrategy
from fedcal.strategies.methods.histograms import DPHistogram, FedBBQ, FedBin

CLASSES, BINS = 3, 4
POSITIVE = np.array([[1.0, 2, 0, 5], [0, 0, 3, 1], [2, 2, 2, 2]])
NEGATIVE = np.array([[9.0, 1, 1, 0], [4, 4, 0, 0], [1, 1, 1, 1]])
federation = partial(Federation, clients=20, classes=CLASSES)


def histograms(positive: Floats, negative: Floats, std: float = 0.0) -> Release:
    values = np.concatenate([positive.ravel(), negative.ravel()])
    stds = np.repeat([std, 5 * std], positive.size)
    return Release(1, "class_histograms", values, stds)


def weights(strategy: FederatedStrategy) -> Floats:
    found: Any = strategy.result()
    return np.asarray(found.weights)


def rows_of_two_classes(clients: int = 20, rows: int = 300) -> Shards:
    """Rows of all classes but the last."""
    rng = np.random.default_rng(2)
    labels, owner = rng.integers(0, CLASSES - 1, rows), rng.integers(0, clients, rows)
    return rows_by_owner(rng.normal(0, 3, (rows, CLASSES)), labels, owner, clients)


@pytest.mark.parametrize("weighting", ["all", "changed"])
def test_without_privacy_a_weight_is_the_share_of_the_class_that_was_counted(weighting):
    method = FedBBQ(federation(sampling_rate=0.5), bins_exponent=2, weighting=weighting)
    first, second = method.query(1), method.query(2)
    assert (first.kind, first.lengths(), first.everyone) == ("class_counts", (CLASSES,), True)
    assert (second.kind, second.everyone) == ("class_histograms", False)
    method.update(Release(1, "class_counts", np.array([16.0, 4.0, 80.0]), np.zeros(3)))
    method.update(histograms(POSITIVE, NEGATIVE))
    assert weights(method).tolist() == [8 / 16, 4 / 4, 8 / 80]


def test_the_share_counts_the_rows_of_clients_that_answered_the_histogram_round():
    shards, gone = rows_of_two_classes(), np.array([0, 7, 8, 19])
    method = FedBBQ(federation(), bins_exponent=2)
    run_inline(method, shards, unavailable=lambda r: gone if r == 2 else np.zeros(0, np.int64))
    there = np.bincount(shards.labels, minlength=CLASSES)
    counted = np.bincount(shards.labels[~np.isin(shards.owner, gone)], minlength=CLASSES)
    assert (counted < there)[:2].all()
    assert weights(method) == pytest.approx([*(counted[:2] / there[:2]), 1.0], rel=1e-15)


def test_with_privacy_the_signal_is_the_uncut_sum():
    """Noise of both signs adds up to little; cut at 0 first it would look like rows."""
    paper: Any = {"tables": "per_class", "estimate": "share", "clip_positive": 10.0}
    method = FedBBQ(federation(epsilon=1.0), bins_exponent=2, **paper)
    std = 6.0
    noisy = np.array([[6.0, -5, 7, -6], [-6, -6, -6, 6], [5, 5, -9, 3]])
    method.update(histograms(noisy, NEGATIVE, std))
    expected = math.sqrt(2 / math.pi) * std * BINS
    assert weights(method) == pytest.approx([2 / expected, 0.0, 4 / expected], rel=1e-13)


def test_rounds_of_exact_histograms_count_again_but_weigh_at_most_one():
    method = FedBBQ(federation(rounds=2), bins_exponent=2)
    assert (method.plan.rounds, method.plan.counting_rounds) == (3, 1)
    run_inline(method, rows_of_two_classes())
    assert [r.kind for r in method.releases] == ["class_counts"] + ["class_histograms"] * 2
    assert np.array_equal(method.releases[1].values, method.releases[2].values)
    assert weights(method).tolist() == [1.0, 1.0, 1.0]


def test_pooled_tables_are_the_sum_over_classes_used_by_each():
    shards = rows_of_two_classes()
    options: Any = {"bins_exponent": 4, "weighting": "none"}
    each, pooled = FedBBQ(federation(), **options), FedBBQ(federation(), tables="pooled", **options)
    for method in (each, pooled):
        run_inline(method, shards)
    summed = each.releases[0].values.reshape(2, CLASSES, 16).sum(axis=1)
    assert np.array_equal(pooled.releases[0].values.reshape(2, 16), summed)
    table = pooled.result().arrays()["table"]
    assert (table == table[:1]).all()
    assert (each.bytes_up, pooled.bytes_up) == (8 * 2 * CLASSES * 16, 8 * 2 * 16)


@pytest.mark.parametrize(("c", "rounds"), [(2, 5), (10, 5)])
def test_noise_is_that_of_lemma_b7(c, rounds):
    """P: C+ sqrt(2 c) sigma, N: C- the same; with one clip for all blocks it is C sigma."""
    own = federation(classes=c, rounds=rounds, epsilon=0.7)
    options: Any = {"clip_positive": 3.0, "clip_negative": 7.0}
    plan, joint = (FedBin(own, clipping=k, **options).plan for k in ("per_class", "joint"))
    assert plan.multiplier == joint.multiplier > 0
    m = 1 if c == 2 else c  # of two classes one is sent
    tight = math.sqrt(2 * m) * plan.multiplier
    for one, std in ((plan, tight), (joint, plan.multiplier)):
        assert one.noise_std == pytest.approx((3 * std,) * m + (7 * std,) * m, rel=1e-12)


@pytest.mark.parametrize("c", [2, 10])
@pytest.mark.parametrize("tables", ["pooled", "per_class"])
def test_a_larger_budget_clips_less_and_still_has_less_noise(c, tables):
    epsilons: Any = (0.1, 1.0, 10.0, 1000.0)
    own = [federation(classes=c, epsilon=e) for e in epsilons]
    plans: Any = [FedBBQ(f, tables=tables, rows_per_client=40.0).plan for f in own]
    for less, more in pairwise(plans):
        assert (np.array(more.bound.norms) > less.bound.norms).all()
        assert (np.array(more.noise_std) < less.noise_std).all()


# --- DP-Histogram -------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", ["correct_wrong", "correct_total"])
def test_without_privacy_it_is_the_calibrator_of_the_pooled_rows(counts):
    for c in (2, 20):
        shards = some_shards(c)
        own: Any = Federation(12, c)
        found: Any = run_inline(DPHistogram(own, counts=counts, bins=15), shards)
        pooled = TopLabelBinning().fit(shards.logits, shards.labels)
        np.testing.assert_array_equal(found.values, pooled.values)
