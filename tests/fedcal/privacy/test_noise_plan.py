"""Plans: how much noise, for whom, on which grid; and what cannot be planned."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from laws import ADDITIVE, prefer
from refusals import each_is_refused

from fedcal import accounting
from fedcal.core.checks import InputError
from fedcal.core.numerics import Purpose, stream
from fedcal.mechanisms.samplers import TOTAL_VARIATION
from fedcal.privacy import Federation, Plan, make_plan
from fedcal.trust import NOISY
from fedcal.units import UNITS, Bound

PAIR = Bound((1, 1), (10.0, 30.0))
SCORES = Bound((9,), (3.0,), "per_value")
ONES = Bound((8,), (2.0,))
BIG = Bound((10_000,), (1.0,))
FAR = Bound((1, 1), (1e-3, 1e6), "per_block")
MANY: dict[str, Any] = {"clients": 10**6, "trust": "distributed", "delta": 1e-9}
SITES = {"clients": 20, "committee": 5, "threshold": 4, "colluding": 2, "quorum": 0.6}
"""m = 12 answers at least, of which 10 may be honest."""


def federation(**change: Any) -> Federation:
    fields: dict[str, Any] = {"clients": 100, "classes": 10, "epsilon": 1.0}
    return Federation(**fields | change)


def plan_of(rounds: int = 4, bound: Bound = PAIR, prefers: str = "gaussian", **change: Any) -> Plan:
    return make_plan(federation(**change), rounds=rounds, bound=bound, prefers=prefer(prefers))


@pytest.mark.parametrize("rounds", [1, 4, 12])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_multiplier_is_the_smallest_that_meets_the_target(rounds, epsilon):
    plan = plan_of(rounds, epsilon=epsilon)
    assert accounting.gaussian_delta(epsilon, plan.multiplier, rounds) <= 1e-5
    assert accounting.gaussian_delta(epsilon, plan.multiplier * (1 - 1e-9), rounds) > 1e-5
    assert plan.event == f"{rounds} x Poisson(1.0) of Gaussian(multiplier={plan.multiplier!r})"
    assert (plan.adjacency, plan.unit, plan.federation.noise_source) == (
        "zero-out",
        "user",
        "seeded",
    )
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
    facts = replace(plan.federation, noise_source="system")
    system = replace(plan, federation=facts)  # at the rate, and never alike
    samples = [system.sample(1) for _ in range(2)]
    assert samples[0].tolist() != samples[1].tolist()
    assert all(abs(len(s) - clients * rate) < 6 * deviation for s in samples)


def test_what_is_not_allowed_is_refused():
    table: list[tuple[dict[str, Any], str]] = [
        ({"clients": 0}, r"clients must be a whole number in \[1, 10000000\]"),
        ({"classes": 1}, "classes must be a whole number >= 2"),
        ({"rounds": 0}, r"rounds must be a whole number in \[1, 100000\]"),
        *(
            ({"epsilon": e}, "epsilon must be a finite number > 0")
            for e in (0.0, -math.inf, math.nan)
        ),
        *(({"delta": delta}, r"delta must be in \[0, 1\)") for delta in (-1e-9, 1.0, math.nan)),
        *(({"sampling_rate": rate}, "sampling rate") for rate in (0.0, 1.5, math.nan)),
        *(({"seed": seed}, "seed must be a whole number") for seed in (-1, 2**63)),
        *(({"mechanism": name}, f"unknown mechanism '{name}'") for name in ("none", "skellam")),
        *(({"quorum": part}, r"quorum must be in \(0, 1\]") for part in (0.0, 1.1, math.nan)),
        ({"noise_source": "dice"}, "unknown noise source 'dice'"),
        ({"unit": "row"}, "unknown unit 'row'; allowed: user, subject, example"),
        ({"trust": "nobody"}, "unknown trust 'nobody'"),
        ({"trust": "secagg"}, "adds no noise, so epsilon cannot be finite"),
        ({"epsilon": math.inf, "trust": "central"}, "give a finite epsilon or use secagg"),
        ({**SITES, "colluding": 3}, "colluding must be a whole number"),
        ({**SITES, "committee": 21}, "committee must be a whole number"),
        (
            {**SITES, "threshold": 2},
            "threshold of a committee of 5 must be a whole number in \\[3, 5\\]",
        ),
        ({**SITES, "committee": 0, "threshold": 0}, "there is no committee"),
    ]
    each_is_refused(table, lambda change: federation(**change))


TRUSTED = [
    (mechanism, trust) for mechanism in ADDITIVE for trust in ("central", "distributed", "local")
]
trusted = pytest.mark.parametrize(("mechanism", "trust"), TRUSTED)


def noise_of_sum(plan: Plan, repliers: int, times: int) -> np.ndarray:
    """Noise of the sum of so many answers, in the statistic's units, (times, length)."""
    draws = repliers if plan.trust in ("distributed", "local") else 1
    wide = replace(plan.noise, lengths=tuple(n * times for n in plan.noise.lengths))
    source = stream(5, Purpose.NOISE, 1, plan.mechanism.name)
    total = np.sum([wide.draw(source) for _ in range(draws)], axis=0) * plan.grid
    blocks = np.split(total, np.cumsum(wide.lengths)[:-1])
    return np.concatenate([b.reshape(times, -1) for b in blocks], axis=1)


@trusted
def test_the_noise_of_a_sum_is_what_the_plan_says(mechanism, trust):
    bound = Bound((2, 1), (2.0, 0.5), "per_block")
    for change, repliers in (({"clients": 10}, 9), ({"clients": 10}, 10), (SITES, 10)):
        plan = plan_of(2, bound, mechanism=mechanism, trust=trust, **change)
        noise = noise_of_sum(plan, repliers, 8000)
        want = plan.std_of_sum(repliers)
        np.testing.assert_allclose(noise.std(axis=0), want, rtol=0.06)
        assert (np.abs(noise.mean(axis=0)) < 5 * want / math.sqrt(8000)).all()
        if repliers == plan.clients:
            np.testing.assert_allclose(want, np.repeat(plan.noise_std, bound.lengths))


@pytest.mark.parametrize(
    ("quorum", "clients", "want"), [(0.9, 10, 9), (0.9, 11, 10), (1.0, 7, 7), (1e-3, 7, 1)]
)
def test_the_quorum_is_rounded_to_more_clients(quorum, clients, want):
    assert plan_of(clients=clients, trust="distributed", quorum=quorum).quorum == want
    assert plan_of(clients=clients, trust="central", quorum=quorum).quorum == 1


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("rule", ["joint", "per_block", "per_value"])
@pytest.mark.parametrize("mechanism", ["laplace"])
def test_laplace_noise_is_for_the_l1_norm(mechanism, rule, rounds):
    bound = Bound((3, 1), (2.0, 0.5), rule)
    plan = plan_of(rounds, bound, mechanism=mechanism, delta=0.0)
    assert (plan.bound.order, plan.delta) == (1, 0.0)
    groups = {"joint": 1, "per_block": 2, "per_value": 4}[rule]
    want = np.array([2.0, 2.0, 2.0, 0.5]) * groups * rounds  # times 1 / epsilon = 1
    np.testing.assert_allclose(plan.std_of_sum(100), want * math.sqrt(2))
    np.testing.assert_allclose(np.array(plan.noise.scales) * plan.grid, want[[0, 3]])


@pytest.mark.parametrize(
    ("change", "row_sums", "adjacency", "per", "diameter"),
    [
        ({}, False, "zero-out", "client", 1),
        ({}, True, "zero-out", "client", 1),
        ({"trust": "distributed"}, True, "zero-out", "client", 1),
        ({"trust": "local"}, True, "replace", "client", 2),
        ({"unit": "example"}, True, "add-remove", "row", 1),
        ({"unit": "example"}, False, "add-remove", "client", 2),
        ({"unit": "example", "trust": "local"}, True, "add-remove", "row", 1),
        ({"unit": "example", "trust": "local"}, False, "add-remove", "client", 2),
        ({"unit": "example", "trust": "distributed"}, False, "add-remove", "client", 2),
    ],
)
@pytest.mark.parametrize("preferred", ["gaussian", "laplace"])
def test_who_the_neighbours_are_and_what_they_cost(
    change, row_sums, adjacency, per, diameter, preferred
):
    who = federation(**change)
    plan = make_plan(who, rounds=1, bound=PAIR, prefers=prefer(preferred), row_sums=row_sums)
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
@pytest.mark.parametrize("clients", [1, 10, 3000, 10**6])
@pytest.mark.parametrize("quorum", [0.05, 1.0])
def test_the_ring_has_room_for_the_noise_of_all_clients(mechanism, trust, clients, quorum):
    """P(sum > t) < 2**-60, by what is known of sums of Gaussian and of Laplace variates."""
    plan = plan_of(1, mechanism=mechanism, trust=trust, clients=clients, quorum=quorum)
    room = plan.ring.headroom
    widest = max(plan.noise.scales)
    whole = plan.noise_copies(clients)
    if mechanism == "gaussian":
        chance = math.erfc(room / widest / math.sqrt(2 * whole))
    elif whole == 1:
        chance = math.exp(-room / widest)
    else:  # Chernoff, at the best of some exponents
        theta = np.linspace(0.01, 0.99, 99)
        logs = -theta * room / widest - whole * np.log1p(-(theta**2))
        chance = 2 * math.exp(logs.min())
    assert chance < 2.0**-60
    assert plan.ring.limit * clients + room < 2**63
    assert plan.ring.limit * plan.grid > max(PAIR.norms)


@trusted
@pytest.mark.parametrize("clients", [10, 3000, 10**6])
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


def test_a_unary_plan():
    plan = plan_of(2, ONES, "unary", trust="local")
    assert (plan.adjacency, plan.diameter, plan.delta) == ("replace", 1, 0.0)
    assert plan.noise.scales[0] == pytest.approx(1 / (1 + math.exp(0.5)))  # at half of epsilon


def test_what_does_not_go_together_is_refused():
    local = {"trust": "local"}
    pairs = Bound((4, 4), (2.0, 2.0), "per_block")
    system = {"noise_source": "system"}
    table: list[tuple[tuple[Any, ...], str]] = [
        ((1, ONES, "unary", {}), "needs trust 'local', got 'central'"),
        ((1, ONES, "unary", {**local, "unit": "example"}), "unit 'user'"),
        ((1, Bound((8,), (1.0,)), "unary", local), "needs clip norms above 1"),
        ((1, SCORES, "exponential", local), "trust 'central'"),
        ((1, SCORES, "exponential", {"mechanism": "laplace"}), "does not fit"),
        ((2, SCORES, "exponential", {}), "number of rounds of .* must be 1, got 2"),
        ((1, ONES, "exponential", {}), "a bound for each candidate"),
        ((1, pairs, "exponential", {}), "a bound for each candidate"),
        ((1, PAIR, "laplace", {"mechanism": "exponential"}), "does not fit this"),
        ((1, PAIR, "gaussian", {"mechanism": "unary"}), "does not fit this"),
        ((1, PAIR, "laplace", {"delta": 0.0, "mechanism": "gaussian"}), "delta = 0"),
        ((4, PAIR, "gaussian", {"delta": 0.0}), "delta = 0 is not possible with Gaussian noise"),
        ((1, Bound((1, 1), (1e-6, 10.0)), "gaussian", {"clients": 10**6}), "not fit the ring"),
        ((1, BIG, "gaussian", {**MANY, **system}), "do not go with 10000000000 draws"),
        ((1, BIG, "gaussian", {"epsilon": 200.0, **system}), "draws from the operating system"),
        ((1, FAR, "gaussian", system), "too far apart"),
        (
            (1, PAIR, "gaussian", {**SITES, "quorum": 0.15}),
            "of 3 .*, 2 of which .* leaves 1 honest",
        ),
    ]
    each_is_refused(table, lambda row: plan_of(*row[:3], **row[3]))
    assert plan_of(1, BIG, **MANY).delta == 1e-9
    assert plan_of(1, FAR).private  # seeded doubles reach further
    assert not plan_of(delta=0.0, epsilon=math.inf).private


@pytest.mark.parametrize("trust", NOISY)
@pytest.mark.parametrize("delta", [1e-5, 1e-2])
@pytest.mark.parametrize("length", [1, 4, 30, 300])
def test_least_is_whichever_has_less_noise(trust, delta, length):
    """A Laplace release limits the L1 norm, a Gaussian one the L2 norm, to the same number."""
    bound = Bound((length,), (2.0,), "per_value")
    plans = {m: plan_of(3, bound, m, trust=trust, delta=delta) for m in ("laplace", "gaussian")}
    least = min(plans.values(), key=lambda plan: plan.std_of_sum(100)[0])
    assert plan_of(3, bound, "least", trust=trust, delta=delta) == least


@pytest.mark.parametrize("preferred", ["laplace", "gaussian", "exponential", "unary"])
@pytest.mark.parametrize("epsilon", [1e-310, 1e-300, 1e-12, 700.0, 1e308])
def test_an_absurd_epsilon_is_planned_or_refused_in_one_line(preferred, epsilon):
    trust = "local" if preferred == "unary" else "central"
    bound = Bound((4,), (2.0,), "per_value")
    try:
        assert plan_of(1, bound, preferred, epsilon=epsilon, trust=trust).ring.limit >= 1
    except InputError as error:
        said = str(error)
    else:
        return
    assert "\n" not in said
    assert preferred != "exponential"  # which draws by any
    assert not 1e-12 <= epsilon <= 700.0


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
        # shares for m answers, as without collusion, leave too little
        trusting = plan_of(mechanism=mechanism, trust=trust, **{**SITES, "colluding": 0})
        assert trusting.shares == 12
        assert (trusting.std_of_sum(10) < calibrated * 0.96).all()
        without = plan_of(mechanism=mechanism, trust=trust, clients=20, quorum=0.7)
        assert without.quorum == without.shares == 14
        np.testing.assert_allclose(without.std_of_sum(14), calibrated)
    if trust == "local":  # each answer alone hides any other one
        np.testing.assert_allclose(plan.std_of_sum(1), 2 * calibrated)
        np.testing.assert_allclose(plan.std_of_sum(16), 8 * calibrated)


@pytest.mark.parametrize("trust", ["secagg", "central", "distributed", "local"])
def test_everybody_answers_and_the_coin_is_its_own_under_every_trust(trust):
    epsilon = math.inf if trust == "secagg" else 1.0
    plan = plan_of(2, trust=trust, epsilon=epsilon, sampling_rate=0.25, **SITES)
    assert plan.committee
    assert plan.asks_everyone
    assert plan.own_rate == 0.25
    assert plan.sample(1).tolist() == plan.sample(2).tolist() == list(range(20))
    assert not plan.secret_sample  # the server sees who answers, and that is everybody
    assert plan.quorum == 12
    without = plan_of(2, clients=20, trust=trust, epsilon=epsilon, sampling_rate=0.25)
    assert without.own_rate == (0.25 if trust == "distributed" else 1.0)
    assert without.quorum == (18 if trust == "distributed" else 1)
    assert plan.multiplier == without.multiplier  # nothing is gained, and nothing lost


@pytest.mark.parametrize(("clients", "parts", "least"), [(10, 4, 2), (11, 3, 3), (30, 3, 9)])
def test_the_smallest_part_of_the_clients_can_make_a_quorum(clients, parts, least):
    who = federation(clients=clients, committee=3, threshold=2, trust="local")
    plan = make_plan(who, rounds=parts, bound=PAIR, asked_once=True)
    assert (plan.quorum, plan.parts) == (least, parts)
    assert min(len(plan.sample(k + 1)) for k in range(parts)) >= least
