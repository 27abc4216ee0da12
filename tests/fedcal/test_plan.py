from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from fedcal.errors import InputError, NotBuiltYet
from fedcal.privacy import Bound, Federation, Plan, accounting, make_plan
from fedcal.privacy.mechanisms import TAIL

PAIR = Bound((1, 1), (10.0, 30.0))


def federation(**change: Any) -> Federation:
    fields: dict[str, Any] = {"clients": 100, "classes": 10, "epsilon": 1.0}
    return Federation(**fields | change)


def plan_of(rounds: int = 4, bound: Bound = PAIR, **change: Any) -> Plan:
    return make_plan(federation(**change), rounds=rounds, bound=bound)


# --- noise ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 4, 12])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_multiplier_is_the_smallest_that_meets_the_target(rounds: int, epsilon: float) -> None:
    plan = plan_of(rounds, epsilon=epsilon)
    assert accounting.gaussian_delta(epsilon, plan.multiplier, rounds) <= 1e-5
    assert accounting.gaussian_delta(epsilon, plan.multiplier * (1 - 1e-9), rounds) > 1e-5


def test_sampling_needs_less_noise() -> None:
    plan = plan_of(1, sampling_rate=0.1)
    assert plan.multiplier == accounting.gaussian_multiplier(1.0, 1e-5, 1, 0.1)
    assert 0.1 < plan.multiplier / plan_of(1).multiplier < 0.5


def test_noise_of_the_papers_histograms() -> None:
    """Lemma B.7: std of P is C+ sqrt(2 c) sigma, of N it is C- sqrt(2 c) sigma."""
    c, bins = 10, 128
    norms = (2.0,) * c + (10.0,) * c
    per_class = plan_of(1, Bound((bins,) * (2 * c), norms, "per_block"))
    sigma = accounting.gaussian_multiplier(1.0, 1e-5)
    std = per_class.noise_std
    assert std is not None
    np.testing.assert_allclose(std[:c], 2 * math.sqrt(2 * c) * sigma, rtol=1e-14)
    np.testing.assert_allclose(std[c:], 10 * math.sqrt(2 * c) * sigma, rtol=1e-14)
    joint = plan_of(1, Bound((bins,) * (2 * c), norms)).noise_std
    np.testing.assert_allclose(std, np.array(joint) * math.sqrt(2 * c), rtol=1e-14)


def test_one_std_per_block_also_for_unequal_blocks() -> None:
    plan = plan_of(2, Bound((3, 1, 5), (2.0, 0.5, 7.0), "per_block"))
    want = np.array([2.0, 0.5, 7.0]) * math.sqrt(3) * plan.multiplier
    assert plan.noise_std is not None
    np.testing.assert_allclose(plan.noise_std, want, rtol=1e-14)


def test_the_papers_figure_is_looser() -> None:
    for rounds in (1, 4, 12):
        plan = plan_of(rounds)
        assert plan.zcdp_multiplier is not None
        assert 1 < plan.zcdp_multiplier / plan.multiplier < 1.3
        one = plan_of(1).zcdp_multiplier
        assert plan.zcdp_multiplier == pytest.approx(one * math.sqrt(rounds))  # type: ignore[operator]
    assert plan_of(epsilon=math.inf).zcdp_multiplier is None


def test_without_privacy_nothing_is_added() -> None:
    plan = make_plan(federation(epsilon=math.inf), rounds=4, bound=PAIR, counting_rounds=1)
    assert not plan.private
    assert (plan.mechanism, plan.epsilon, plan.delta) == ("none", math.inf, 0.0)
    assert (plan.multiplier, plan.noise_std, plan.bound) == (0.0, (0.0,), None)
    assert (plan.rounds, plan.counting_rounds, plan.trust) == (5, 1, "secagg")
    assert plan.event == "5 x Poisson(1.0) of exact sum"
    assert plan.grid == 2.0**-24


def test_a_private_run_makes_no_exact_count() -> None:
    plan = make_plan(federation(), rounds=4, bound=PAIR, counting_rounds=1)
    assert (plan.rounds, plan.counting_rounds, plan.trust) == (4, 0, "central")


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_an_exponential_plan_is_pure(rate: float) -> None:
    plan = make_plan(
        federation(sampling_rate=rate),
        rounds=1,
        bound=Bound((9,), (3.0,), "per_value"),
        mechanism="exponential",
    )
    assert (plan.epsilon, plan.delta, plan.multiplier, plan.noise_std) == (1.0, 0.0, 0.0, None)
    assert plan.zcdp_multiplier is None
    # amplification: the sampled draw's epsilon is log(1 + q (e^eps' - 1))
    assert math.log1p(rate * math.expm1(plan.epsilon_per_release)) == pytest.approx(1.0, rel=1e-12)
    assert plan.event == f"1 x Poisson({rate}) of exponential(epsilon={plan.epsilon_per_release!r})"


def test_the_event_says_what_is_added() -> None:
    plan = plan_of(4, sampling_rate=1.0)
    assert plan.event == f"4 x Poisson(1.0) of Gaussian(multiplier={plan.multiplier!r})"
    assert (plan.adjacency, plan.unit, plan.noise_source) == ("zero-out", "user", "seeded")


# --- grid and ring ----------------------------------------------------------------------------

BOUNDS = {
    "pair": PAIR,
    "one": Bound((1,), (0.5,)),
    "histograms": Bound((128,) * 20, (2.0,) * 10 + (10.0,) * 10, "per_block"),
    "far apart": Bound((1, 1), (0.1, 100.0), "per_block"),
}


@pytest.mark.parametrize("clients", [1, 137, 10_000, 1_000_000])
@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS.keys())
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
def test_grid_and_ring_fit_the_noise_and_the_bound(
    bound: Bound, clients: int, epsilon: float
) -> None:
    plan = plan_of(1, bound, clients=clients, epsilon=epsilon)
    std = plan.noise_std
    assert std is not None
    assert math.frexp(plan.grid)[0] == 0.5
    # what all clients together lose by truncation is far below the noise, and no finer than that
    assert min(std) / 2048 < plan.grid * clients <= min(std) / 1024
    ring = plan.ring
    assert (ring.grid, ring.clients) == (plan.grid, clients)
    assert ring.headroom * ring.grid >= TAIL * max(std)
    assert ring.limit * clients + ring.headroom < 2**63
    assert ring.limit * ring.grid > max(bound.norms)  # so a bounded vector always fits


# --- sampling ---------------------------------------------------------------------------------


def test_everybody_takes_part_at_rate_one() -> None:
    assert plan_of().sample(3).tolist() == list(range(100))


def test_clients_are_sampled_independently_and_afresh() -> None:
    clients, rate = 20_000, 0.1
    plan = plan_of(1, clients=clients, sampling_rate=rate, delta=1e-6)
    rounds = [np.isin(np.arange(clients), plan.sample(r)) for r in (1, 2)]
    deviation = math.sqrt(clients * rate * (1 - rate))
    for sampled in rounds:
        assert 0 < abs(sampled.sum() - clients * rate) < 5 * deviation  # no fixed-size sample
    both = clients * rate**2
    assert abs((rounds[0] & rounds[1]).sum() - both) < 5 * math.sqrt(both)
    np.testing.assert_array_equal(plan.sample(1), np.flatnonzero(rounds[0]))
    assert len(replace(plan, seed=1).sample(1)) != len(plan.sample(1))


# --- refusals ---------------------------------------------------------------------------------


def test_plans_and_federations_are_frozen() -> None:
    plan: Any = plan_of()
    who: Any = federation()
    with pytest.raises(FrozenInstanceError):
        plan.multiplier = 0.0
    with pytest.raises(FrozenInstanceError):
        who.epsilon = 100.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": 0}, "clients must be a whole number >= 1"),
        ({"clients": 2.0}, "clients must be a whole number >= 1"),
        ({"classes": 1}, "classes must be a whole number >= 2"),
        ({"rounds": 0}, "rounds must be a whole number >= 1"),
        ({"epsilon": 0.0}, "epsilon must be a finite number > 0"),
        ({"epsilon": -1.0}, "epsilon must be a finite number > 0"),
        ({"epsilon": math.nan}, "epsilon must be a finite number > 0"),
        ({"epsilon": -math.inf}, "epsilon must be a finite number > 0"),
        ({"delta": -1e-9}, r"delta must be in \[0, 1\)"),
        ({"delta": 1.0}, r"delta must be in \[0, 1\)"),
        ({"delta": math.nan}, r"delta must be in \[0, 1\)"),
        ({"sampling_rate": 0.0}, "sampling rate"),
        ({"sampling_rate": 1.5}, "sampling rate must be at most 1"),
        ({"sampling_rate": math.nan}, "sampling rate"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"seed": 2**63}, "seed must be a whole number"),
        ({"unit": "row"}, "unknown unit 'row'; allowed: user, example"),
        ({"trust": "nobody"}, "unknown trust 'nobody'"),
        ({"trust": "secagg"}, "adds no noise, so epsilon cannot be finite"),
        ({"epsilon": math.inf, "trust": "central"}, "give a finite epsilon or use secagg"),
    ],
)
def test_what_is_not_allowed_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        federation(**change)
    assert "\n" not in str(error.value)
    assert not isinstance(error.value, NotBuiltYet)


@pytest.mark.parametrize("change", [{"unit": "example"}, {"trust": "distributed"}])
@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_what_belongs_to_later_versions_says_so(change: dict[str, Any], epsilon: float) -> None:
    with pytest.raises(NotBuiltYet, match="is not built yet in this version of fedcal"):
        federation(epsilon=epsilon, **change)
    with pytest.raises(NotBuiltYet, match="trust model 'local'"):
        federation(epsilon=epsilon, trust="local")


def test_gaussian_noise_needs_a_delta() -> None:
    with pytest.raises(InputError, match="delta = 0 is not possible with Gaussian noise"):
        plan_of(delta=0.0)
    pure = make_plan(
        federation(delta=0.0),
        rounds=1,
        bound=Bound((9,), (3.0,), "per_value"),
        mechanism="exponential",
    )
    assert pure.private
    assert not plan_of(delta=0.0, epsilon=math.inf).private


def test_the_exponential_mechanism_is_asked_once() -> None:
    with pytest.raises(InputError, match="asked once, got rounds = 2"):
        make_plan(
            federation(),
            rounds=2,
            bound=Bound((9,), (3.0,), "per_value"),
            mechanism="exponential",
        )


def test_a_norm_that_the_ring_has_no_room_for_is_refused_when_planning() -> None:
    federation = Federation(clients=10**6, classes=10, epsilon=1.0)
    with pytest.raises(InputError, match="does not fit the ring"):
        make_plan(federation, rounds=1, bound=Bound((1, 1), (1e-6, 10.0)))
