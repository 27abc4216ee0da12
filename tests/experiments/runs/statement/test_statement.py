"""The privacy record: each sentence is there where it is true, and nowhere else."""

import math
from typing import Any

import pytest
from laws import prefer

from fedcal.experiments.runs.statement import of_plan
from fedcal.privacy.noise_plan import Federation, Plan, make_plan
from fedcal.units import UNITS
from fedcal.units.bounding import Bound

CLIENTS = 20
TRUSTS = ("central", "distributed", "local")


def plan_of(row_sums: bool = False, preferred: Any = "gaussian", **fields: Any) -> Plan:
    rounds = 1 if preferred == "exponential" else 2
    public = {"clients": CLIENTS, "classes": 3, "rounds": rounds, "epsilon": 1.0, **fields}
    if public.get("committee"):
        public = {"threshold": 4, "colluding": 2, **public}
    rule: Any = "per_value" if preferred == "exponential" else "joint"
    norm = 2.0 if preferred == "unary" else 1.0
    bound = Bound((4,), (norm,), rule)
    return make_plan(
        Federation(**public),
        rounds=rounds,
        bound=bound,
        prefers=prefer(preferred),
        row_sums=row_sums,
    )


def record(
    plan: Plan, masks: str = "none", rows: float | None = None, real: bool = False
) -> dict[str, Any]:
    return of_plan(plan, plan.rounds, masks, rows, real=real)


def statement(plan: Plan, masks: str = "none", rows: float | None = None) -> str:
    return " ".join(record(plan, masks, rows)["statement"])


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("preferred", ["gaussian", "laplace"])
@pytest.mark.parametrize("row_sums", [False, True])
def test_the_numbers_are_the_plan_s(unit, trust, preferred, row_sums):
    plan = plan_of(row_sums, preferred, unit=unit, trust=trust)
    found = record(plan, "masks")
    for key in ("unit", "adjacency", "trust", "epsilon", "delta", "mechanism", "noise_source"):
        assert found[key] == getattr(plan, key)
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
