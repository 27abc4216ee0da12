"""The numbers of the privacy record are the plan's; its sentences: tests/golden."""

import math

import pytest
from laws import prefer

from fedcal.experiments.runs.statement import of_plan
from fedcal.privacy.noise_plan import Federation, Plan, make_plan
from fedcal.units import UNITS
from fedcal.units.bounding import Bound

CLIENTS = 20
TRUSTS = ("central", "distributed", "local")


def plan_of(row_sums: bool, preferred: str, unit: str, trust: str) -> Plan:
    public = {"clients": CLIENTS, "classes": 3, "epsilon": 1.0, "unit": unit, "trust": trust}
    bound = Bound((4,), (1.0,), "joint")
    prefers = prefer(preferred)
    return make_plan(
        Federation(**public, rounds=2), rounds=2, bound=bound, prefers=prefers, row_sums=row_sums
    )


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("preferred", ["gaussian", "laplace"])
@pytest.mark.parametrize("row_sums", [False, True])
def test_the_numbers_are_the_plan_s(unit, trust, preferred, row_sums):
    plan = plan_of(row_sums, preferred, unit, trust)
    found = of_plan(plan, 2, "masks")
    for key in ("unit", "adjacency", "trust", "epsilon", "delta"):
        assert found[key] == getattr(plan, key)
    assert found["mechanism"] == plan.mechanism.name
    assert found["noise_source"] == plan.federation.noise_source
    assert (found["releases"], found["diameter"]) == (2, plan.diameter)
    assert found["quorum"] == (18 if trust == "distributed" else None)
    assert found["secure_aggregation"] == "masks"
    answers = {"central": 1.0, "distributed": CLIENTS / 18, "local": CLIENTS}[trust]
    if preferred == "gaussian":
        one = plan.multiplier * plan.diameter
    else:
        one = math.sqrt(2.0) * plan.diameter / plan.epsilon_per_release
    assert found["noise_std"] == pytest.approx(one * math.sqrt(answers))
    replaced = UNITS[unit].adjacency(trust == "local") == "replace"
    twice = replaced or not (UNITS[unit].whole_client or row_sums)
    assert found["diameter"] == (2 if twice else 1)
