"""Plans: how much noise, for whom, on which grid; and what cannot be planned."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from laws import ADDITIVE, prefer
from refusals import each_is_refused

from fedcal import accounting
from fedcal.mechanisms.samplers import TOTAL_VARIATION
from fedcal.privacy import Federation, Plan, make_plan
from fedcal.trust import NOISY
from fedcal.units import UNITS, Bound

PAIR = Bound((1, 1), (10.0, 30.0))
SCORES = Bound((9,), (3.0,), "per_value")
ONES = Bound((8,), (2.0,))
SITES = {"clients": 20, "committee": 5, "threshold": 4, "colluding": 2, "quorum": 0.6}
"""m = 12 answers at least, of which 10 may be honest."""


def federation(**change: Any) -> Federation:
    fields: dict[str, Any] = {"clients": 100, "classes": 10, "epsilon": 1.0}
    return Federation(**fields | change)


def plan_of(rounds: int = 4, bound: Bound = PAIR, prefers: str = "gaussian", **change: Any) -> Plan:
    return make_plan(federation(**change), rounds=rounds, bound=bound, prefers=prefer(prefers))


@pytest.mark.parametrize(("rounds", "epsilon"), [(1, 1.0), (4, 0.1), (12, 8.0)])
def test_the_multiplier_is_the_smallest_that_meets_the_target(rounds, epsilon):
    plan = plan_of(rounds, epsilon=epsilon)
    assert accounting.gaussian_delta(epsilon, plan.multiplier, rounds) <= 1e-5
    assert accounting.gaussian_delta(epsilon, plan.multiplier * (1 - 1e-9), rounds) > 1e-5
    assert plan.event == f"{rounds} x Poisson(1.0) of Gaussian(multiplier={plan.multiplier!r})"
    one = plan_of(1, sampling_rate=0.1)
    assert one.multiplier == accounting.gaussian_multiplier(1.0, 1e-5, 1, 0.1)
    assert 0.1 < one.multiplier / plan_of(1).multiplier < 0.5


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_an_exponential_plan_is_pure(rate):
    plan = plan_of(1, SCORES, "exponential", sampling_rate=rate)
    assert (plan.epsilon, plan.delta, plan.multiplier, plan.noise_std) == (1.0, 0.0, 0.0, None)
    # amplification: the sampled draw's epsilon is log(1 + q (e^eps' - 1))
    assert math.log1p(rate * math.expm1(plan.mechanism.epsilon)) == pytest.approx(1.0, rel=1e-12)
    assert plan.event == f"1 x Poisson({rate}) of exponential(epsilon={plan.mechanism.epsilon!r})"
    assert plan_of(1, SCORES, "exponential", sampling_rate=rate, delta=0.0).private


def test_clients_are_sampled_independently_and_afresh():
    assert plan_of().sample(3).tolist() == list(range(100))
    clients, rate = 20_000, 0.1
    plan = plan_of(1, clients=clients, sampling_rate=rate, delta=1e-6)
    rounds = [np.isin(np.arange(clients), plan.sample(r)) for r in (1, 2)]
    deviation = math.sqrt(clients * rate * (1 - rate))
    for sampled in rounds:
        assert 0 < abs(sampled.sum() - clients * rate) < 5 * deviation  # no fixed-size sample
    both = clients * rate**2
    assert abs((rounds[0] & rounds[1]).sum() - both) < 5 * math.sqrt(both)
    np.testing.assert_array_equal(plan.sample(1), np.flatnonzero(rounds[0]))
    other = plan_of(1, clients=clients, sampling_rate=rate, delta=1e-6, seed=1)
    assert len(other.sample(1)) != len(plan.sample(1))
    system = replace(plan, federation=replace(plan.federation, noise_source="system"))
    assert system.sample(1).tolist() != (drawn := system.sample(1)).tolist()
    assert abs(len(drawn) - clients * rate) < 6 * deviation


def test_what_is_not_allowed_or_does_not_go_together_is_refused():
    table: list[tuple[dict[str, Any], str]] = [
        *(({"epsilon": e}, "epsilon must be a number > 0") for e in (0.0, math.nan)),
        *(({"delta": delta}, r"delta must be in \[0, 1\)") for delta in (1.0, math.nan)),
        *(({"sampling_rate": rate}, "sampling rate") for rate in (0.0, 1.5)),
        ({"trust": "secagg"}, "adds no noise, so epsilon cannot be finite"),
        ({"epsilon": math.inf, "trust": "central"}, "give a finite epsilon or use secagg"),
        ({**SITES, "colluding": 3}, "colluding must be a whole number"),
        ({**SITES, "committee": 21}, "committee must be a whole number"),
        ({**SITES, "threshold": 2}, r"threshold of a committee of 5 must be .* in \[3, 5\]"),
        ({**SITES, "committee": 0, "threshold": 0}, "there is no committee"),
    ]
    each_is_refused(table, lambda change: federation(**change))
    local, system = {"trust": "local"}, {"noise_source": "system"}
    many: dict[str, Any] = {"clients": 10**6, "trust": "distributed", "delta": 1e-9}
    big, far = Bound((10_000,), (1.0,)), Bound((1, 1), (1e-3, 1e6), "per_block")
    plans: list[tuple[tuple[Any, ...], str]] = [
        ((0, PAIR, "gaussian", {}), "rounds must be a whole number"),
        ((1, ONES, "unary", {}), "needs trust 'local', got 'central'"),
        ((1, ONES, "unary", {**local, "unit": "example"}), "unit 'user'"),
        ((1, Bound((8,), (1.0,)), "unary", local), "needs clip norms above 1"),
        ((1, SCORES, "exponential", local), "trust 'central'"),
        ((2, SCORES, "exponential", {}), "number of rounds of .* must be 1, got 2"),
        ((1, ONES, "exponential", {}), "a bound for each candidate"),
        ((1, PAIR, "gaussian", {"mechanism": "unary"}), "does not fit this"),
        ((4, PAIR, "gaussian", {"delta": 0.0}), "delta = 0 is not possible with Gaussian noise"),
        ((1, Bound((1, 1), (1e-6, 10.0)), "gaussian", {"clients": 10**6}), "not fit the ring"),
        ((1, PAIR, "laplace", {"epsilon": 1e-310}), "epsilon"),
        ((1, big, "gaussian", {**many, **system}), "do not go with 10000000000 draws"),
        ((1, big, "gaussian", {"epsilon": 200.0, **system}), "draws from the operating system"),
        ((1, far, "gaussian", system), "too far apart"),
        ((1, PAIR, "gaussian", {**SITES, "quorum": 0.15}), "of 3 .*, 2 of .* leaves 1 honest"),
    ]
    each_is_refused(plans, lambda row: plan_of(*row[:3], **row[3]))
    assert plan_of(1, big, **many).delta == 1e-9
    assert plan_of(1, far).private  # seeded doubles reach further


TRUSTED = [
    (mechanism, trust) for mechanism in ADDITIVE for trust in ("central", "distributed", "local")
]
trusted = pytest.mark.parametrize(("mechanism", "trust"), TRUSTED)


@pytest.mark.parametrize(
    ("quorum", "clients", "want"), [(0.9, 10, 9), (0.9, 11, 10), (1.0, 7, 7), (1e-3, 7, 1)]
)
def test_the_quorum_is_rounded_to_more_clients(quorum, clients, want):
    assert plan_of(clients=clients, trust="distributed", quorum=quorum).quorum == want
    assert plan_of(clients=clients, trust="central", quorum=quorum).quorum == 1


@pytest.mark.parametrize(
    ("change", "row_sums", "adjacency", "per", "diameter"),
    [
        ({}, False, "zero-out", "client", 1),
        ({}, True, "zero-out", "client", 1),
        ({"trust": "local"}, True, "replace", "client", 2),
        ({"unit": "example"}, True, "add-remove", "row", 1),
        ({"unit": "example"}, False, "add-remove", "client", 2),
        ({"unit": "example", "trust": "local"}, False, "add-remove", "client", 2),
        ({"unit": "example", "trust": "distributed"}, False, "add-remove", "client", 2),
    ],
)
@pytest.mark.parametrize("preferred", ["gaussian", "laplace"])
def test_neighbours_and_what_they_cost(change, row_sums, adjacency, per, diameter, preferred):
    public = federation(**change)
    plan = make_plan(public, rounds=1, bound=PAIR, prefers=prefer(preferred), row_sums=row_sums)
    assert (plan.adjacency, plan.bound.per, plan.diameter) == (adjacency, per, diameter)
    one = make_plan(federation(), rounds=1, bound=PAIR, prefers=prefer(preferred))
    assert plan.noise is not None
    assert one.noise is not None
    got, want = (np.array(p.noise.scales) * p.grid for p in (plan, one))
    np.testing.assert_allclose(got, diameter * want, rtol=1e-4)  # discrete: smoothing, of 3 steps


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("trust", NOISY)
def test_amplification_is_claimed_where_it_holds(trust, unit, mechanism):
    plans = [
        plan_of(1, prefers=mechanism, trust=trust, unit=unit, sampling_rate=rate)
        for rate in (0.2, 1.0)
    ]
    spent = [(p.multiplier, p.mechanism.epsilon) for p in plans]
    assert (spent[0] != spent[1]) == (trust != "local" and unit == "user")


@trusted
@pytest.mark.parametrize(("clients", "quorum"), [(1, 1.0), (10, 0.05), (3000, 1.0), (10**6, 0.05)])
def test_the_ring_has_room_for_the_noise_of_all_clients(mechanism, trust, clients, quorum):
    """P(sum > t) < 2**-60, by what is known of sums of Gaussian and of Laplace variates."""
    plan = plan_of(1, mechanism=mechanism, trust=trust, clients=clients, quorum=quorum)
    room = plan.ring.headroom
    widest = max(plan.noise.scales)
    copies = plan.noise_copies(clients)
    if mechanism == "gaussian":
        chance = math.erfc(room / widest / math.sqrt(2 * copies))
    elif copies == 1:
        chance = math.exp(-room / widest)
    else:  # Chernoff, at the best of some exponents
        theta = np.linspace(0.01, 0.99, 99)
        logs = -theta * room / widest - copies * np.log1p(-(theta**2))
        chance = 2 * math.exp(logs.min())
    assert chance < 2.0**-60
    assert plan.ring.limit * clients + room < 2**63
    assert plan.ring.limit * plan.grid > max(PAIR.norms)


@trusted
@pytest.mark.parametrize("clients", [10, 10**6])
def test_truncation_is_far_below_the_noise_under_every_trust(mechanism, trust, clients):
    plan = plan_of(1, mechanism=mechanism, trust=trust, clients=clients)
    assert plan.grid * clients <= min(plan.std_of_sum(clients)) / 1024 * 1.0001
    assert math.frexp(plan.grid)[0] == 0.5
    if trust == "central":  # and no finer than that
        assert plan.grid * clients > min(plan.noise_std) / 2048


@trusted
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_delta_includes_the_samplers_total_variation(mechanism, trust, rate):
    bound = Bound((50, 50), (1.0, 1.0), "per_block")
    change: dict[str, Any] = {"trust": trust, "mechanism": mechanism, "sampling_rate": rate}
    plan = plan_of(1, bound, noise_source="system", **change)
    draws = 100 * (100 if trust == "distributed" else 1)
    coins = 100 if rate < 1 else 0
    slack = (draws + coins) * TOTAL_VARIATION * (1 + math.e)
    if mechanism == "laplace":
        assert plan.delta == pytest.approx(slack, rel=1e-12)
        assert plan_of(1, bound, **change).delta == 0.0
        return
    assert plan.delta == 1e-5
    amplified = 1.0 if trust == "local" else rate
    least = accounting.gaussian_multiplier(1.0, 1e-5 - slack, 1, amplified)
    assert plan.multiplier == least


@pytest.mark.parametrize("trust", NOISY)
@pytest.mark.parametrize(("length", "delta"), [(1, 1e-5), (4, 1e-2), (30, 1e-5), (300, 1e-2)])
def test_least_is_whichever_has_less_noise(trust, delta, length):
    """A Laplace release limits the L1 norm, a Gaussian one the L2 norm, to the same number."""
    bound = Bound((length,), (2.0,), "per_value")
    plans = {m: plan_of(3, bound, m, trust=trust, delta=delta) for m in ("laplace", "gaussian")}
    least = min(plans.values(), key=lambda plan: plan.std_of_sum(100)[0])
    assert plan_of(3, bound, "least", trust=trust, delta=delta) == least


@trusted
def test_the_noise_of_the_honest_alone_is_as_much_as_one_server_would_add(mechanism, trust):
    plan = plan_of(mechanism=mechanism, trust=trust, **SITES)
    calibrated = plan_of(clients=20, mechanism=mechanism).std_of_sum(20)
    assert (plan.quorum, plan.federation.colluding) == (12, 2)
    for answers in range(plan.quorum, 21):  # of which two tell the server their noise
        assert (plan.std_of_sum(answers - 2) >= calibrated * (1 - 1e-12)).all()
    if trust == "distributed":
        assert plan.shares == 10
        np.testing.assert_allclose(plan.std_of_sum(10), calibrated)
        assert (plan.std_of_sum(9) < calibrated * 0.96).all()  # so all ten are needed
    if trust == "local":  # each answer alone hides any other one
        np.testing.assert_allclose(plan.std_of_sum(1), 2 * calibrated)
    # and everybody answers: the server sees who does, so the coin is each site's own
    sampled = plan_of(2, mechanism=mechanism, trust=trust, sampling_rate=0.25, **SITES)
    assert sampled.sample(1).tolist() == sampled.sample(2).tolist() == list(range(20))
    assert (sampled.own_rate, sampled.secret_sample) == (0.25, False)


@pytest.mark.parametrize(("clients", "parts", "least"), [(10, 4, 2), (11, 3, 3), (30, 3, 9)])
def test_the_smallest_part_of_the_clients_can_make_a_quorum(clients, parts, least):
    public = federation(clients=clients, committee=3, threshold=2, trust="local")
    plan = make_plan(public, rounds=parts, bound=PAIR, asked_once=True)
    assert (plan.quorum, plan.parts) == (least, parts)
    assert min(len(plan.sample(k + 1)) for k in range(parts)) >= least
