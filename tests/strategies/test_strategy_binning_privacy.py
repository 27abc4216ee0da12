"""FedBin and FedBBQ under user-level privacy: bounds, noise, weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from strategy_checks import assert_std_is_one, nobody

from fedcal.accounting.zcdp import zcdp_rho
from fedcal.bounding import bounded
from fedcal.calibrators import WeightedBinning
from fedcal.clients.answers import STATISTICS, answer
from fedcal.experiments.engines.inline import run_inline
from fedcal.numerics import softmax
from fedcal.privacy.plan import Federation
from fedcal.queries.request import Request
from fedcal.shards import Shards
from fedcal.strategies import FedBBQ, FedBin
from fedcal.types import Floats

CLIENTS, CLASSES, BINS = 30, 3, 16
SHAPES: dict[str, dict[str, Any]] = {
    "per class": {"tables": "per_class", "clipping": "per_class"},
    "per class, jointly": {"tables": "per_class", "clipping": "joint"},
    "pooled": {"tables": "pooled", "clipping": "per_class"},
    "pooled, jointly": {"tables": "pooled", "clipping": "joint"},
}
every_shape = pytest.mark.parametrize("shape", SHAPES)


def federation(**fields: Any) -> Federation:
    return Federation(**{"clients": CLIENTS, "classes": CLASSES, "epsilon": 1.0, **fields})


def method(shape: str, own: Federation | None = None, **options: Any) -> FedBBQ:
    own = own or federation()
    settings = {"bins_exponent": 4, "clip_positive": 3.0, "clip_negative": 7.0, **SHAPES[shape]}
    if own.classes == 2 and settings["tables"] == "pooled":
        del settings["clip_negative"]  # only P is sent
    return FedBBQ(own, secure_aggregation="none", **{**settings, **options})


def shards(classes: int = CLASSES, rows: int = 900, seed: int = 1) -> Shards:
    rng = np.random.default_rng(seed)
    labels, owner = rng.integers(0, classes, rows), rng.integers(0, CLIENTS, rows)
    logits = rng.normal(0, 2, (rows, classes))
    logits[np.arange(rows), labels] += 2
    return Shards.from_owner(logits, labels, owner, CLIENTS)


def query(strategy: FedBBQ) -> Request:
    asked = strategy.open_round(1)
    assert asked is not None
    return asked.request


@pytest.mark.parametrize(("c", "rounds"), [(2, 5), (3, 1), (10, 5)])
def test_noise_is_that_of_lemma_b7(c: int, rounds: int) -> None:
    """P: C+ sqrt(2 c R / (2 rho)), N: C- the same, at the paper's rho; less at the tight one.

    With one clip for all blocks it is C sigma.
    """
    own = federation(classes=c, rounds=rounds, epsilon=0.7)
    options: Any = {"clip_positive": 3.0, "clip_negative": 7.0}
    plan, joint = (FedBin(own, clipping=k, **options).plan for k in ("per_class", "joint"))
    assert plan.bound is not None
    assert plan.zcdp_multiplier is not None
    assert plan.multiplier == joint.multiplier > 0
    m = 1 if c == 2 else c  # of two classes one is sent
    lemma = math.sqrt(2 * m * rounds / (2 * zcdp_rho(0.7, 1e-5)))
    loose = plan.zcdp_multiplier * plan.bound.sensitivity
    assert loose == pytest.approx(lemma, rel=1e-12)
    tight = math.sqrt(2 * m) * plan.multiplier
    for one, std in ((plan, tight), (joint, plan.multiplier)):
        assert one.noise_std == pytest.approx((3 * std,) * m + (7 * std,) * m, rel=1e-12)
    assert 0.8 * lemma < tight < lemma


def test_noise_of_pooled_tables() -> None:
    """Three blocks for any number of classes; jointly, one sensitivity for all of them."""
    own = federation(classes=10)
    joint, each = (method(shape, own).plan for shape in ("pooled, jointly", "pooled"))
    assert joint.multiplier == each.multiplier > 0
    norms = np.array([3.0, 2 * 9 * 3.0, 7.0])
    assert joint.noise_std == pytest.approx(joint.multiplier * norms, rel=1e-12)
    assert each.noise_std == pytest.approx(math.sqrt(3) * joint.multiplier * norms, rel=1e-12)
    two = method("pooled", federation(classes=2)).plan
    assert two.noise_std == pytest.approx([3 * two.multiplier], rel=1e-12)


@every_shape
def test_released_noise_has_the_std_of_the_plan_and_no_other(shape: str) -> None:
    """Nobody has rows: what is released is noise."""
    for c, seeds in ((2, 12), (3, 8)):
        draws: list[Floats] = []
        for seed in range(seeds):
            strategy = method(shape, federation(classes=c, seed=seed))
            run_inline(strategy, nobody(CLIENTS, c))
            release, plan = strategy.releases[0], strategy.plan
            assert plan.bound is not None
            std = plan.bound.scale * plan.bound.sensitivity * plan.multiplier
            assert release.std == pytest.approx(std, rel=1e-12)
            draws.append(release.values / std)
        assert_std_is_one(draws)


@every_shape
@pytest.mark.parametrize("c", [2, 10])
def test_the_worst_client_changes_the_sum_by_the_sensitivity(shape: str, c: int) -> None:
    """One with many rows of every class and score fills every block."""
    strategy = method(shape, federation(classes=c))
    rng = np.random.default_rng(4)
    logits, labels = rng.normal(0, 3, (4000, c)), rng.integers(0, c, 4000)
    heavy = Shards.from_owner(logits, labels, np.full(4000, 7), CLIENTS)
    asked = query(strategy)
    words = answer(heavy, asked).sum(axis=0, dtype=np.uint64)
    assert strategy.plan.bound is not None
    change = strategy.plan.ring.decode(words) / strategy.plan.bound.scale
    norm = float(np.sqrt((change**2).sum()))
    assert norm == pytest.approx(strategy.plan.bound.sensitivity, rel=0.01)  # the grid
    assert norm <= strategy.plan.bound.sensitivity


def test_one_joint_clip_keeps_each_clients_shares_and_separate_ones_do_not() -> None:
    rows = shards()
    for shape in SHAPES:
        strategy = method(shape, clip_positive=1.0, clip_negative=1.5)
        asked = query(strategy)
        exact = STATISTICS[asked.query.kind](rows, asked.query)
        clipped = bounded(exact, asked.bound)
        there = exact > 0
        factors = [clipped[k, there[k]] / exact[k, there[k]] for k in range(CLIENTS)]
        spread = max(float(np.ptp(f)) for f in factors)
        assert all(f.max() < 1 for f in factors)
        assert (spread < 1e-12) == shape.endswith("jointly")


@every_shape
def test_weights_know_the_noise_accumulated_over_sampled_rounds(shape: str) -> None:
    rounds, rate = 4, 0.5  # with this seed all weights lie inside (0, 1)
    own = federation(rounds=rounds, sampling_rate=rate, epsilon=0.3, seed=3)
    strategy = method(shape, own)
    run_inline(strategy, shards())
    assert [r.kind for r in strategy.releases].count("class_counts") == 0
    assert len(strategy.releases) == rounds
    total = np.sum([r.values for r in strategy.releases], axis=0)
    m = 1 if SHAPES[shape]["tables"] == "pooled" else CLASSES
    seen = total[: m * BINS].reshape(m, BINS).sum(axis=1)
    assert strategy.plan.noise_std is not None
    std = math.sqrt(rounds) * strategy.plan.noise_std[0]
    want = np.clip(seen / (math.sqrt(2 / math.pi) * std * BINS), 0, 1)
    result = strategy.result()
    assert isinstance(result, WeightedBinning)
    assert result.weights == pytest.approx(np.repeat(want, CLASSES // m), rel=1e-12)
    assert 0 < want.max() < 1
    everybody = method(shape, federation(rounds=rounds, epsilon=0.3))
    assert strategy.plan.multiplier < 0.8 * everybody.plan.multiplier


@every_shape
def test_weights_of_pure_noise_are_small_and_of_nothing_none(shape: str) -> None:
    """The uncut sum of noise is of order sqrt(bins) stds, not bins."""
    found = []
    for seed in range(8):
        strategy = method(shape, federation(seed=seed), bins_exponent=7)
        run_inline(strategy, nobody(CLIENTS))
        result = strategy.result()
        assert isinstance(result, WeightedBinning)
        found += result.weights.tolist()
    assert np.mean(found) < 0.1
    assert np.max(found) < 4.5 / (math.sqrt(2 / math.pi) * math.sqrt(128))
    before = method(shape).result()  # before anything is released: the model itself
    assert isinstance(before, WeightedBinning)
    assert not before.weights.any()
    logits = shards().logits
    np.testing.assert_allclose(before.predict_proba(logits), softmax(logits), rtol=1e-12)


@every_shape
def test_weighting_all_changed_or_none_of_the_same_noisy_sums(shape: str) -> None:
    rows = shards()
    own = federation(rounds=3, epsilon=0.3)
    asked = {w: method(shape, own, weighting=w) for w in ("none", "all", "changed")}
    run_inline(asked["none"], rows)
    for name in ("all", "changed"):
        for release in asked["none"].releases:
            asked[name].update(release)
    probs = {name: s.result().predict_proba(rows.logits) for name, s in asked.items()}
    changed = probs["none"].argmax(axis=1) != rows.logits.argmax(axis=1)
    assert changed.any()
    assert not changed.all()
    assert np.array_equal(probs["changed"][~changed], probs["none"][~changed])
    assert np.array_equal(probs["changed"][changed], probs["all"][changed])
    assert not np.allclose(probs["all"], probs["none"])


@pytest.mark.parametrize("c", [2, 3])
def test_pooled_tables_do_not_move_a_prediction_where_the_table_rises(c: int) -> None:
    """One table for all classes cannot prefer a class: many rows, little noise, same ranking."""
    strategy = method("pooled, jointly", federation(classes=c, epsilon=500.0), bins_exponent=2)
    rows = shards(c, 3000)
    run_inline(strategy, rows)
    table = strategy.result().arrays()["table"]
    assert (np.diff(table[0]) > 0).all()
    assert (table == table[0]).all()
    found = strategy.result().predict_proba(rows.logits)
    top = np.take_along_axis(found, rows.logits.argmax(axis=1)[:, None], axis=1)[:, 0]
    assert top == pytest.approx(found.max(axis=1), rel=1e-12)
