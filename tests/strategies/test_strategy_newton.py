"""Newton with several parameters: the pooled optimum, the filter, the bound, both paths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedcal.bounding import encode_bounded
from fedcal.calibrators import EntropyTemperature, TemperatureScaling
from fedcal.clients.answers import STATISTICS
from fedcal.clients.client_app import client_app, site_of
from fedcal.errors import InputError
from fedcal.experiments.engines.flower import InProcessGrid
from fedcal.experiments.engines.inline import run_inline
from fedcal.numerics import softmax
from fedcal.privacy.plan import Federation
from fedcal.release import Release
from fedcal.shards import Shards
from fedcal.strategies import FedNewtonEntropy, FedNewtonOPVector, FedNewtonVector
from fedcal.strategies.newton_steps import symmetric

CLIENTS, CLASSES = 12, 3
METHODS = (FedNewtonEntropy, FedNewtonVector, FedNewtonOPVector)
TAKE_A_BUDGET = [method for method in METHODS if not method.exact_only]
every_private_method = pytest.mark.parametrize("method", TAKE_A_BUDGET, ids=lambda m: m.name)
every_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)


def federation(*, epsilon: float = math.inf, **fields: Any) -> Federation:
    return Federation(**{"clients": CLIENTS, "classes": CLASSES, "epsilon": epsilon, **fields})


def rows(n: int = 600, classes: int = CLASSES, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Overconfident where they are uncertain, more than where they are sure."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, classes))
    p = softmax(logits * np.where(np.abs(logits).max(axis=1) > 3, 0.8, 0.5)[:, None])
    labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return logits, np.minimum(labels, classes - 1)


def dealt(owner: np.ndarray | None = None) -> Shards:
    logits, labels = rows()
    if owner is None:
        owner = np.random.default_rng(0).integers(1, CLIENTS, len(labels))
    return Shards.from_owner(logits, labels, owner, CLIENTS)


def loss(probs: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(probs[np.arange(len(labels)), labels]).mean())


# -- without privacy --------------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("deal", ["even", "by label", "one client"])
def test_any_partition_reaches_the_pooled_optimum(method: Any, deal: str) -> None:
    logits, labels = rows()
    owner = {"even": np.arange(len(labels)) % CLIENTS, "by label": labels, "one client": 0 * labels}
    strategy = method(federation())
    run_inline(strategy, dealt(owner[deal]))
    found = loss(strategy.result().predict_proba(logits), labels)
    pooled = loss(method.form().fit(logits, labels).predict_proba(logits), labels)
    assert found <= pooled + 1e-6
    assert found < loss(softmax(logits), labels) - 0.01


def test_entropy_finds_what_one_temperature_cannot() -> None:
    logits, labels = rows(4000)
    one = TemperatureScaling().fit(logits, labels).predict_proba(logits)
    strategy = FedNewtonEntropy(federation())
    run_inline(strategy, Shards.from_owner(logits, labels, labels, CLIENTS))
    calibrator = strategy.result()
    assert isinstance(calibrator, EntropyTemperature)
    assert calibrator.w[1] < -0.2  # the surer, the less it is cooled
    proba = calibrator.predict_proba(logits)
    assert loss(proba, labels) < loss(one, labels) - 1e-3
    np.testing.assert_array_equal(proba.argmax(axis=1), logits.argmax(axis=1))


def updated(strategy: Any, g: list[float], h: list[float]) -> Any:
    """The step that a release without noise makes it take."""
    before = strategy.w.copy()
    strategy.update(Release(1, "any", np.array([*g, *h]), np.zeros(5)))
    return strategy.w - before


def test_a_first_step_is_newtons_where_that_is_short() -> None:
    h = np.array([2.0, 0.5, 1.0])
    step = updated(FedNewtonEntropy(federation()), [0.2, 0.1], h.tolist())
    np.testing.assert_allclose(step, -np.linalg.solve(symmetric(h, 2), [0.2, 0.1]), rtol=1e-6)


def test_a_long_step_is_cut_to_the_radius_but_not_where_much_is_known() -> None:
    step = updated(FedNewtonEntropy(federation()), [40.0, 1e-3], [1e4, 0.0, 1e-5])
    assert step[0] == pytest.approx(-4e-3, rel=1e-2)  # Newton's own, though the other one is cut
    assert step[1] == pytest.approx(-0.7, rel=1e-6)


def test_steps_grow_where_the_curvature_foretold_the_gradient() -> None:
    strategy = FedNewtonEntropy(federation())
    steps = [updated(strategy, [g, 0.0], [1.0, 0.0, 1.0])[0] for g in (9.0, 8.3, 6.9)]
    assert steps == pytest.approx([-0.7, -1.4, -2.8])  # 9 - 0.7, and 8.3 - 1.4


def test_steps_do_not_grow_where_the_gradient_is_not_what_was_foretold() -> None:
    strategy = FedNewtonEntropy(federation())
    steps = [updated(strategy, [g, 0.0], [1.0, 0.0, 1.0])[0] for g in (9.0, 5.0)]
    assert steps == pytest.approx([-0.7, -0.7])


def test_a_step_that_went_too_far_is_halved_or_taken_back() -> None:
    far = FedNewtonEntropy(federation())
    assert [updated(far, [g, 0.0], [1e-3, 0.0, 1e-3])[0] for g in (9.0, -6.0)] == pytest.approx(
        [-0.7, 0.35]
    )
    too_far = FedNewtonEntropy(federation())
    updated(too_far, [9.0, 0.0], [1.0, 0.0, 1.0])
    updated(too_far, [-9.0, 0.0], [1.0, 0.0, 1.0])  # as steep up as down: no lower than before
    assert too_far.w[0] == pytest.approx(-0.7 / 4)


def test_a_round_in_which_nobody_was_asked_does_not_stop_the_way() -> None:
    strategy = FedNewtonEntropy(federation(sampling_rate=0.1))
    assert not updated(strategy, [0.0, 0.0], [0.0, 0.0, 0.0]).any()
    step = updated(strategy, [0.2, 0.0], [2.0, 0.0, 1.0])
    assert step == pytest.approx([-0.1, 0.0], rel=1e-6)
    assert not updated(strategy, [0.0, 0.0], [0.0, 0.0, 0.0]).any()
    assert updated(strategy, [0.2, 0.0], [2.0, 0.0, 1.0]) == pytest.approx(step, rel=1e-6)


@every_method
def test_nobody_with_rows_leaves_the_identity(method: Any) -> None:
    nobody = Shards.from_owner(np.zeros((0, 3)), np.zeros(0, int), np.zeros(0, int), CLIENTS)
    strategy = method(federation())
    run_inline(strategy, nobody)
    np.testing.assert_array_equal(strategy.w, method.form.identity(CLASSES))
    logits = rows()[0]
    np.testing.assert_allclose(strategy.result().predict_proba(logits), softmax(logits), rtol=1e-12)


# -- with privacy -------------------------------------------------------------------------------


@every_private_method
def test_neighbours_differ_by_no_more_than_the_bound(method: Any) -> None:
    shards = dealt()
    strategy = method(federation(epsilon=1.0), rows_per_client=5)
    ask, plan = strategy.query(1), strategy.plan
    bound = plan.bound
    assert bound is not None
    assert (ask.lengths(), bound.rule) == (bound.lengths, "joint")
    answers = STATISTICS[ask.kind](shards, ask)
    assert not answers[0].any()  # the client without rows
    assert bound.norms_of(answers).max() > 1  # some client must be clipped
    sent = plan.ring.decode(encode_bounded(answers, bound, plan.ring))
    assert bound.norms_of(sent).max() <= 1
    assert bound.norms_of(sent).max() > 0.99


@every_private_method
def test_the_released_noise_has_the_plans_std(method: Any) -> None:
    """Clients without rows add nothing: what is released is noise alone."""
    nobody = Shards.from_owner(np.zeros((0, 3)), np.zeros(0, int), np.zeros(0, int), CLIENTS)
    noise = []
    for seed in range(4):
        strategy = method(federation(epsilon=1.0, rounds=25, seed=seed), rows_per_client=5)
        run_inline(strategy, nobody)
        std = np.repeat(strategy.plan.noise_std, strategy.plan.bound.lengths)
        np.testing.assert_allclose(strategy.releases[0].std, std, rtol=1e-14)
        noise += [r.values / std for r in strategy.releases]
    sample = np.concatenate(noise)
    spread = 5 / math.sqrt(2 * len(sample))
    assert abs(sample.std() - 1) < spread < 0.2
    for wrong in (2 / 3, 3 / 2):
        assert abs(wrong * sample.std() - 1) > spread


@pytest.mark.parametrize(
    ("clients", "m", "epsilon", "norm"),
    [
        (100, 50.0, 1.0, 10.0),  # a fifth of a nat per row
        (10, 5.0, 1.0, 3.0),  # at least 3
        (1000, 5.0, 8.0, 6.0),  # at least 6 where many clients drown the noise
    ],
)
def test_the_bound_comes_from_public_numbers(
    clients: int, m: float, epsilon: float, norm: float
) -> None:
    plan = FedNewtonEntropy(federation(clients=clients, epsilon=epsilon), rows_per_client=m).plan
    assert plan.bound is not None
    assert plan.bound.norms == pytest.approx((norm, 3 * norm))


@pytest.mark.parametrize(("trust", "norm"), [("distributed", 6.0), ("local", 3.0)])
def test_the_bound_grows_only_where_the_trust_models_own_noise_is_drowned(
    trust: str, norm: float
) -> None:
    own = federation(clients=1000, epsilon=8.0, trust=trust)
    plan = FedNewtonEntropy(own, rows_per_client=5.0).plan
    assert plan.bound is not None
    assert plan.bound.norms == pytest.approx((norm, 3 * norm))


@every_private_method
def test_one_rows_bound_is_a_public_constant(method: Any) -> None:
    norms = {
        method(federation(clients=k, epsilon=e, trust=t, unit="example")).plan.bound.norms
        for k, e, t in ((10, 1.0, "central"), (1000, 8.0, "local"), (50, 0.1, "distributed"))
    }
    assert len(norms) == 1


def private(std: float) -> FedNewtonEntropy:
    """After one release that says w = (-0.6, 0.3), with this noise in G; none in H."""
    strategy = FedNewtonEntropy(federation(epsilon=1.0), rows_per_client=50)
    g = symmetric(np.array([100.0, 10.0, 20.0]), 2) @ [0.6, -0.3]
    stds = np.array([std, std, 1e-9, 1e-9, 1e-9])
    strategy.update(Release(1, "any", np.concatenate([g, [100.0, 10.0, 20.0]]), stds))
    return strategy


def test_little_noise_is_newtons_step_and_much_noise_is_none() -> None:
    np.testing.assert_allclose(private(1e-6).w, [-0.6, 0.3], rtol=1e-6)
    assert np.abs(private(1e6).w).max() < 1e-6
    slopes = [float(private(std).w[1]) for std in (1.0, 10.0, 30.0, 100.0)]
    assert slopes == sorted(slopes, reverse=True)  # the less is known, the nearer to temperature
    assert abs(private(30.0).w[0]) > 10 * abs(private(30.0).w[1])


def test_later_rounds_average_what_was_measured() -> None:
    """With G known to std 30 and H = 100, four rounds must do better than the last one alone."""
    errors = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        strategy = FedNewtonEntropy(federation(epsilon=1.0), rows_per_client=50)
        for number in range(1, 5):
            h = np.array([100.0, 0.0, 100.0])
            g = 100.0 * (strategy.w - [-0.3, 0.1]) + rng.normal(0, 30, 2)
            stds = np.array([30.0, 30.0, 1e-9, 1e-9, 1e-9])
            strategy.update(Release(number, "any", np.concatenate([g, h]), stds))
        errors.append(strategy.w[0] + 0.3)
    assert np.std(errors) < 0.75 * 0.3
    assert abs(np.mean(errors)) < 0.06


@every_private_method
@pytest.mark.parametrize("epsilon", [1e-3, 1e3, 1e9])
def test_what_is_known_stays_a_covariance_whatever_clients_send(
    method: Any, epsilon: float
) -> None:
    """All of 20,000 clients at the bound: G all the way in one direction, H anything."""
    own = federation(clients=20_000, epsilon=epsilon, rounds=8)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        strategy = method(own, rows_per_client=5)
        plan, size = strategy.plan, len(strategy.w)
        std = plan.bound.scale * plan.multiplier
        for number in range(1, 9):
            sums = 20_000 * plan.bound.scale / math.sqrt(2 * size)
            sums[size:] *= rng.uniform(0, seed % 2, len(sums) - size)
            noisy = sums + rng.normal(0, std)
            strategy.update(Release(number, "any", noisy, std))
            known = np.linalg.eigvalsh(strategy._filter.covariance)
            assert known[0] > -1e-9 * known[-1]
            assert np.isfinite(strategy.w).all()


@every_private_method
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 100.0])
def test_any_budget_gives_a_calibrator(method: Any, epsilon: float) -> None:
    strategy = method(federation(epsilon=epsilon, seed=3), rows_per_client=50)
    run_inline(strategy, dealt())
    proba = strategy.result().predict_proba(rows()[0])
    assert np.isfinite(proba).all()
    np.testing.assert_array_equal(proba.argmax(axis=1), rows()[0].argmax(axis=1))


@pytest.mark.parametrize("unit", ["user", "example", "subject"])
@pytest.mark.parametrize("method", [FedNewtonVector, FedNewtonOPVector])
def test_forms_that_noise_makes_worse_refuse_a_budget(method: Any, unit: str) -> None:
    with pytest.raises(InputError, match=f"{method.name} cannot .* use fednewton, or") as caught:
        method(federation(epsilon=1.0, unit=unit), rows_per_client=50)
    assert "\n" not in str(caught.value)
    assert not method.needs_rows(federation(epsilon=1.0), {})  # that is what is said first


@pytest.mark.parametrize(
    ("method", "epsilon"),
    [*((m, math.inf) for m in METHODS), *((m, 1.0) for m in TAKE_A_BUDGET)],
)
@pytest.mark.parametrize("masks", ["none", "masks"])
def test_flower_and_inline_have_the_same_bits(method: Any, epsilon: float, masks: str) -> None:
    shards, public = dealt(), federation(epsilon=epsilon, rounds=2, sampling_rate=0.7, seed=5)
    inline = method(public, rows_per_client=50)
    flower = method(public, rows_per_client=50, secure_aggregation=masks)
    run_inline(inline, shards)
    single = [shards.block(k, k + 1) for k in range(CLIENTS)]
    app = client_app(lambda context: single[site_of(context)])
    flower.start(InProcessGrid(app, [100 + 3 * k for k in range(CLIENTS)]))
    assert inline.w.tobytes() == flower.w.tobytes()
    assert (inline.w != inline.form.identity(CLASSES)).any()


@pytest.mark.parametrize("rows_per_client", [None, 0.0, -1, math.inf])
@every_private_method
def test_privacy_needs_the_nominal_rows(method: Any, rows_per_client: Any) -> None:
    with pytest.raises(InputError, match="rows_per_client") as caught:
        method(federation(epsilon=1.0), rows_per_client=rows_per_client)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("rows_per_client", [0.0, -1, math.inf, "many"])
@every_method
def test_nominal_rows_are_checked_without_privacy_too(method: Any, rows_per_client: Any) -> None:
    with pytest.raises(InputError, match="rows_per_client"):
        method(federation(), rows_per_client=rows_per_client)
