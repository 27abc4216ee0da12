"""FedNewtonClass keeps class effects where there are some, and refuses them elsewhere."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedcal.calibrators import TemperatureScaling, VectorScaling
from fedcal.core.numerics import softmax
from fedcal.core.shards import Shards
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.privacy.noise_plan import Federation
from fedcal.strategies import FedNewton, FedNewtonClass
from fedcal.strategies.methods.temperature import gradient_clip
from fedcal.units import UNITS

CLIENTS, CLASSES, ROWS = 12, 4, 3000
EFFECTS = np.array([1.0, -0.5, -0.5, 0.0])
federation = partial(Federation, CLIENTS, CLASSES)


def rows(effects: np.ndarray, scale: float = 1.0, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are `scale` / 0.6 times too sharp, and labels drawn with class effects."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (ROWS, CLASSES))
    p = softmax(0.6 * logits + effects)
    return scale * logits, (p.cumsum(axis=1) < rng.random((ROWS, 1))).sum(axis=1)


def ran(owner: Any = None, effects: Any = EFFECTS, scale: float = 1.0, seed: int = 1, **facts: Any):
    """The method after a run, and the loss of what it made on the rows."""
    logits, labels = rows(effects, scale, seed)
    owner = np.arange(ROWS) % CLIENTS if owner is None else owner
    given = federation(**facts)
    whole = given.private and UNITS[given.unit].whole_client
    method = FedNewtonClass(given, rows_per_client=ROWS / CLIENTS if whole else None)
    run_inline(method, Shards.from_owner(logits, labels, owner, CLIENTS))
    probs = method.result().predict_proba(logits)
    return method, float(-np.log(probs[np.arange(ROWS), labels]).mean())


def test_without_privacy_every_partition_reaches_the_pooled_rows_optimum():
    logits, labels = rows(EFFECTS)
    pooled = VectorScaling().fit(logits, labels).predict_proba(logits)
    best = float(-np.log(pooled[np.arange(ROWS), labels]).mean())
    for owner in (np.arange(ROWS) % CLIENTS, labels, 0 * labels):
        method, loss = ran(owner)
        assert isinstance(method.result(), VectorScaling)
        assert loss < best + 5e-4  # which has slopes of classes, too
        offsets = method.result().w[CLASSES:]
        assert offsets - offsets.mean() == pytest.approx(EFFECTS, abs=0.2)


def test_without_effects_it_is_the_pooled_temperature():
    logits, labels = rows(0 * EFFECTS)
    newton = FedNewton(federation())
    run_inline(newton, Shards.from_owner(logits, labels, np.arange(ROWS) % CLIENTS, CLIENTS))
    method, _ = ran(effects=0 * EFFECTS)
    assert isinstance(method.result(), TemperatureScaling)
    assert method.log_a == pytest.approx(newton.log_a, abs=1e-6)
    assert method.verdict.startswith("not seen")


@pytest.mark.parametrize("trust", ["central", "distributed"])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_with_a_budget_effects_are_kept_where_they_pay_and_only_there(epsilon, trust):
    for seed in range(3):
        kept, loss = ran(epsilon=epsilon, unit="example", trust=trust, seed=seed)
        none, _ = ran(effects=0 * EFFECTS, epsilon=epsilon, unit="example", trust=trust, seed=seed)
        assert kept.verdict.startswith("kept (p = ")
        assert isinstance(kept.result(), VectorScaling)
        assert loss < ran(seed=seed)[1] + 0.004
        assert not none.verdict.startswith("kept")
        assert isinstance(none.result(), TemperatureScaling)


def test_nothing_is_spent_on_offsets_where_public_numbers_say_that_noise_hides_them():
    """Then four rounds are about the temperature, as FedNewton's are, with the same noise."""
    method = FedNewtonClass(federation(epsilon=0.1), rows_per_client=50.0)
    alone = FedNewton(federation(epsilon=0.1), rows_per_client=50.0)
    assert method.plan.rounds == alone.plan.rounds == 4
    assert method.plan.noise_std is not None
    assert alone.plan.noise_std is not None
    assert method.plan.noise_std[:2] == pytest.approx(alone.plan.noise_std)
    assert [method.query(r).asks for r in range(1, 5)] == ["temperature"] * 4
    assert len(method.questions()) == 1
    assert method.verdict.startswith("not looked for")


def test_an_answer_is_about_one_thing_so_that_each_has_the_whole_bound():
    """Zeros take nothing of a norm: the noise of each part is that of a question of its own."""
    facts = Federation(1000, CLASSES, epsilon=8.0, rounds=5)
    method = FedNewtonClass(facts, rows_per_client=50.0)
    alone = FedNewton(facts, rows_per_client=50.0)
    assert method.plan.bound is not None
    assert method.plan.noise_std is not None
    assert method.plan.bound.rule == "joint"
    assert method.plan.bound.per == "client"
    clip = gradient_clip("fednewton", facts, 50.0)
    assert method.plan.bound.norms == (clip, 3 * clip, 25.0, 25.0, 25.0)
    assert method.plan.noise_std[:2] == pytest.approx(alone.plan.noise_std)


def test_a_model_far_too_sharp_has_its_temperature_first():
    """At a wrong temperature classes seem to have effects."""
    method, _ = ran(scale=8.0, effects=0 * EFFECTS, epsilon=8.0, unit="example")
    again = FedNewtonClass(federation(epsilon=8.0, unit="example"))
    asked = []
    for release in method.releases:
        asked.append(again.query(release.round).asks)
        again.update(release)
    assert asked[:3] == ["temperature"] * 3  # each step halves the temperature's factor
    assert isinstance(method.result(), TemperatureScaling)
    assert math.exp(method.log_a) == pytest.approx(0.6 / 8, rel=0.15)


def test_offsets_that_pay_less_than_noise_and_fitting_explain_are_refused():
    method, _ = ran(epsilon=8.0, unit="example")
    assert method.result().kind == "vector"
    method._gains = [(1.0, 5.0), (-1.0, 5.0)]
    method._end()
    assert method.verdict.startswith("seen and not kept")
    assert method.result().kind == "temperature"


@pytest.mark.parametrize("facts", [{}, {"epsilon": 8.0, "unit": "example"}], ids=["exact", "noise"])
def test_refused_offsets_leave_the_temperature_that_was_found_without_them(facts):
    """Classes of very different sizes: steps of the offsets go too far, and are refused."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 101) / (1 / np.arange(1, 101)).sum()
    logits = rng.normal(0, 1, (6000, 100)) + np.log(share)
    logits[np.arange(6000), rng.choice(100, 6000, p=share)] += 2.5
    p = softmax(logits + rng.normal(0, 0.4, 100))
    labels = np.minimum((p.cumsum(axis=1) < rng.random((6000, 1))).sum(axis=1), 99)
    shards = Shards.from_owner(logits, labels, np.arange(6000) % CLIENTS, CLIENTS)
    losses = []
    for method in (FedNewton, FedNewtonClass):
        run = method(Federation(CLIENTS, 100, **facts))
        run_inline(run, shards)
        probs = run.result().predict_proba(logits)
        losses.append(-np.log(probs[np.arange(6000), labels]).mean())
    assert run.verdict.startswith("seen and not kept")
    assert losses[1] < losses[0] + 1e-3


def test_offsets_are_not_in_a_result_before_they_are_judged():
    method, _ = ran(epsilon=8.0, unit="example")
    again = FedNewtonClass(federation(epsilon=8.0, unit="example"))
    for release in method.releases[:-1]:
        again.update(release)
        assert again.result().kind == "temperature"
    assert again.verdict.startswith("seen (p = ")
    again._gains = []  # as where nobody answered since
    again._end()
    assert again.verdict.startswith("seen and not kept")
    assert again.result().kind == "temperature"


def test_nothing_is_looked_for_in_samples_of_clients_that_nothing_bounds():
    for facts in ({}, {"epsilon": 8.0, "unit": "example"}):
        method = FedNewtonClass(federation(sampling_rate=0.5, **facts))
        assert method.verdict.startswith("not looked for")
        assert len(method.questions()) == 1
    for rounds in (1, 2):
        assert FedNewtonClass(federation(rounds=rounds)).verdict.startswith("not looked for: they")


def test_what_is_known_of_class_effects_is_told_in_each_round():
    method, _ = ran(epsilon=8.0, unit="example")
    assert method.round_record(5) == {"class_effects": f"Class effects were {method.verdict}."}
