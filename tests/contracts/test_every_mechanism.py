"""What every mechanism promises about its own numbers, under every trust model that it goes with.

Cases come from the registries, bounds from the mechanisms' own `examples`.
"""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from experiments.audit import audit
from fedcal.core.numerics import Purpose, stream
from fedcal.mechanisms import PRIVATE, Mechanism, Target
from fedcal.privacy import Federation, Plan, make_plan
from fedcal.trust import NOISY, Trust
from fedcal.units import UNITS, Bound

CLIENTS, DRAWS = 10, 1200
CASES = [
    (law, trust, law.examples[i])
    for law, trust in product(PRIVATE.values(), NOISY.values())
    if trust.accepts(law)
    for i in range(len(law.examples))
]
every_case = pytest.mark.parametrize(
    ("law", "trust", "example"),
    CASES,
    ids=[f"{law.name}-{trust.name}-{sum(e['lengths'])}" for law, trust, e in CASES],
)


def unit_of(law: type[Mechanism]) -> str:
    return next(name for name, unit in UNITS.items() if law.part in (None, unit.per))


def plan_of(law: type[Mechanism], trust: Trust, example: Any, **change: Any) -> Plan:
    fields: dict[str, Any] = {"clients": CLIENTS, "classes": 2, "epsilon": 1.0}
    fields |= {"trust": trust.name, "mechanism": law.name, "unit": unit_of(law)}
    federation = Federation(**fields | ({"quorum": 0.8} if trust.shared else {}) | change)
    return make_plan(federation, rounds=1, bound=Bound(**example), prefers=(law,), row_sums=True)


def released(plan: Plan, times: int) -> np.ndarray:
    """What a round without any rows releases, again and again, (times, length)."""
    nothing = np.zeros(plan.bound.length, np.uint64)
    source = stream(7, Purpose.NOISE, 0, plan.key)
    found = []
    for _ in range(times):
        total = nothing.copy()
        if plan.noise is not None and plan.model.noise_by == "client":
            for _ in range(CLIENTS):
                total += plan.mechanism.client(nothing, plan.ring, plan.noise, source)
        elif plan.noise is not None:
            total = plan.ring.add(total, plan.noise.draw(source))
        of = plan.sum_of(plan.bound, CLIENTS)
        found.append(plan.mechanism.release(plan.ring.decode(total), of, lambda: source)[0])
    return np.array(found)


@every_case
def test_the_stated_std_is_that_of_what_is_released(law, trust, example):
    plan = plan_of(law, trust, example)
    if law.answers == "index":
        assert plan.noise_std is None
        return
    values = released(plan, DRAWS // plan.bound.length)
    std = plan.std_of_sum(CLIENTS)
    ratio = float(np.sqrt((values**2).mean(axis=0) / std**2).mean())
    assert 0.87 < ratio < 1.13, "neither 2/3 nor 3/2 of it"
    assert np.abs(values.mean(axis=0)).max() < 6 * std.max() / math.sqrt(len(values))
    firsts = plan.std_of_sum(trust.expected(1.0, CLIENTS))[plan.bound.firsts]
    assert plan.noise_std == tuple(firsts.tolist())


@every_case
def test_no_noise_leaves_the_room_that_is_kept_for_it(law, trust, example):
    plan = plan_of(law, trust, example)
    assert plan.bound is not None
    scales = law.scale(plan.mechanism, plan.bound, plan.diameter)
    if not len(scales):
        return
    room = plan.mechanism.tail(plan.noise_copies(CLIENTS)) * scales.max()
    assert plan.ring.headroom * plan.grid >= room
    assert np.abs(released(plan, 50)).max() < room


@every_case
def test_more_budget_is_less_noise_and_a_neighbour_twice_as_far_more(law, trust, example):
    plans = [plan_of(law, trust, example, epsilon=e) for e in (0.5, 1.0, 2.0)]
    if law.answers == "index":
        assert [p.mechanism.epsilon for p in plans] == [0.5, 1.0, 2.0]
        return
    stds = [float(p.std_of_sum(CLIENTS)[0]) for p in plans]
    assert stds[0] > stds[1] > stds[2]
    bound, made = plans[1].bound, plans[1].mechanism
    assert bound is not None
    np.testing.assert_allclose(made.scale(bound, 2), 2 * made.scale(bound, 1), rtol=1e-12)


@every_case
def test_who_spends_several_times_as_much_is_caught(law, trust, example):
    plan = plan_of(law, trust, example, delta=0.0 if law.pure else 1e-5)
    trials = 4000 if law.answers == "sum" else 1500
    assert not audit(plan, trials, error=1e-4, seed=3).refuted
    budget = Target(3.0 if law.pure else 10.0, 1e-5, 1)
    weak = replace(plan, mechanism=law.calibrate(budget))
    assert audit(weak, trials, error=1e-4, seed=3).refuted
