"""FedBin and FedBBQ on histograms small enough to weigh by hand."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedcal.accounting import zcdp_multiplier, zcdp_rho
from fedcal.calibrators import BBQ, WeightedBinning
from fedcal.core.numerics import Floats
from fedcal.core.shards import Shards
from fedcal.privacy.curator import Release
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import FederatedStrategy
from fedcal.strategies.methods.histograms import FedBBQ, FedBin

CLASSES, BINS = 3, 4
POSITIVE = np.array([[1.0, 2, 0, 5], [0, 0, 3, 1], [2, 2, 2, 2]])
NEGATIVE = np.array([[9.0, 1, 1, 0], [4, 4, 0, 0], [1, 1, 1, 1]])
PRIVATE = {"epsilon": 1.0}
PER_CLASS: Any = {"tables": "per_class", "bins_exponent": 2}
federation = partial(Federation, clients=20, classes=CLASSES)


def histograms(positive: Floats, negative: Floats, std: float = 0.0, number: int = 1) -> Release:
    values = np.concatenate([positive.ravel(), negative.ravel()])
    stds = np.repeat([std, 5 * std], positive.size)
    return Release(number, "class_histograms", values, stds)


def counts(*rows: float) -> Release:
    return Release(1, "class_counts", np.array(rows), np.zeros(len(rows)))


def weights(strategy: FederatedStrategy) -> Floats:
    result = strategy.result()
    assert isinstance(result, WeightedBinning)
    return result.weights


def some_shards(clients: int = 20, rows: int = 300, classes: int = CLASSES) -> Shards:
    """Class `classes - 1` is nobody's."""
    rng = np.random.default_rng(2)
    labels, owner = rng.integers(0, classes - 1, rows), rng.integers(0, clients, rows)
    return Shards.from_owner(rng.normal(0, 3, (rows, classes)), labels, owner, clients)


@pytest.mark.parametrize("weighting", ["all", "changed"])
def test_without_privacy_a_weight_is_the_share_of_the_class_that_was_counted(weighting):
    method = FedBBQ(federation(sampling_rate=0.5), bins_exponent=2, weighting=weighting)
    assert (method.plan.rounds, method.plan.counting_rounds) == (2, 1)
    first, second = method.query(1), method.query(2)
    assert (first.kind, first.lengths(), first.everyone) == ("class_counts", (CLASSES,), True)
    assert (second.kind, second.everyone) == ("class_histograms", False)
    method.update(counts(16.0, 4.0, 80.0))
    method.update(histograms(POSITIVE, NEGATIVE, number=2))
    assert weights(method).tolist() == [8 / 16, 4 / 4, 8 / 80]
    result = method.result()
    assert isinstance(result, WeightedBinning)
    assert result.rows == weighting


def test_the_share_counts_the_rows_of_who_answered_the_histogram_round():
    shards, gone = some_shards(), np.array([0, 7, 8, 19])
    method = FedBBQ(federation(), bins_exponent=2)
    run_inline(method, shards, unavailable=lambda r: gone if r == 2 else np.zeros(0, np.int64))
    there = np.bincount(shards.labels, minlength=CLASSES)
    counted = np.bincount(shards.labels[~np.isin(shards.owner, gone)], minlength=CLASSES)
    assert (counted < there)[:2].all()
    assert there[2] == 0
    assert weights(method) == pytest.approx([*(counted[:2] / there[:2]), 1.0], rel=1e-15)


def test_with_privacy_the_signal_is_the_uncut_sum():
    """Noise of both signs adds up to little; cut at 0 first it would look like rows."""
    method = FedBBQ(federation(**PRIVATE), **PER_CLASS)
    std = 6.0
    noisy = np.array([[6.0, -5, 7, -6], [-6, -6, -6, 6], [5, 5, -9, 3]])
    method.update(histograms(noisy, NEGATIVE, std))
    expected = math.sqrt(2 / math.pi) * std * BINS
    assert weights(method) == pytest.approx([2 / expected, 0.0, 4 / expected], rel=1e-13)


def test_rounds_of_exact_histograms_count_again_but_weigh_at_most_one():
    shards = some_shards()
    method = FedBBQ(federation(rounds=2), bins_exponent=2)
    assert (method.plan.rounds, method.plan.counting_rounds) == (3, 1)
    run_inline(method, shards)
    assert [r.kind for r in method.releases] == ["class_counts"] + ["class_histograms"] * 2
    assert np.array_equal(method.releases[1].values, method.releases[2].values)
    assert weights(method).tolist() == [1.0, 1.0, 1.0]
    once = FedBBQ(federation(), bins_exponent=2, weighting="none")
    run_inline(once, shards)
    positive, negative = once.releases[0].values.reshape(2, CLASSES, BINS) * 2
    result = method.result()
    assert isinstance(result, WeightedBinning)
    assert np.array_equal(result.base.table, BBQ.from_histograms(positive, negative, CLASSES).table)


def test_pooled_tables_are_the_sum_over_classes_used_by_each():
    shards = some_shards()
    options: Any = {"bins_exponent": 4, "weighting": "none"}
    each, pooled = FedBBQ(federation(), **options), FedBBQ(federation(), tables="pooled", **options)
    for method in (each, pooled):
        run_inline(method, shards)
    summed = each.releases[0].values.reshape(2, CLASSES, 16).sum(axis=1)
    assert np.array_equal(pooled.releases[0].values.reshape(2, 16), summed)
    want = BBQ.from_histograms(summed[:1], summed[1:], 2).table
    assert np.array_equal(pooled.result().arrays()["table"], np.repeat(want, CLASSES, axis=0))
    assert (each.bytes_up, pooled.bytes_up) == (8 * 2 * CLASSES * 16, 8 * 2 * 16)


@pytest.mark.parametrize(("c", "rounds"), [(2, 5), (3, 1), (10, 5)])
def test_noise_is_that_of_lemma_b7(c, rounds):
    """P: C+ sqrt(2 c R / (2 rho)), N: C- the same, at the paper's rho; less at the tight one.

    With one clip for all blocks it is C sigma; pooled tables are three blocks of any classes.
    """
    own = federation(classes=c, rounds=rounds, epsilon=0.7)
    options: Any = {"clip_positive": 3.0, "clip_negative": 7.0}
    plan, joint = (FedBin(own, clipping=k, **options).plan for k in ("per_class", "joint"))
    assert plan.multiplier == joint.multiplier > 0
    m = 1 if c == 2 else c  # of two classes one is sent
    lemma = math.sqrt(2 * m * rounds / (2 * zcdp_rho(0.7, 1e-5)))
    loose = zcdp_multiplier(0.7, 1e-5, rounds) * plan.bound.sensitivity
    assert loose == pytest.approx(lemma, rel=1e-12)
    tight = math.sqrt(2 * m) * plan.multiplier
    for one, std in ((plan, tight), (joint, plan.multiplier)):
        assert one.noise_std == pytest.approx((3 * std,) * m + (7 * std,) * m, rel=1e-12)
    assert 0.8 * lemma < tight < lemma
    norms = np.array([3.0, 2 * (c - 1) * 3.0, 7.0])
    if c == 2:  # only P is sent
        norms = np.array([3.0])
        del options["clip_negative"]
    for clipping, times in (("joint", 1.0), ("per_class", math.sqrt(len(norms)))):
        pooled = FedBBQ(own, tables="pooled", clipping=clipping, **options).plan
        want = times * pooled.multiplier * norms
        assert pooled.noise_std == pytest.approx(want, rel=1e-12)
