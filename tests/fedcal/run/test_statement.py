"""The numbers of the privacy record are the plan's; few sentences: they are in tests/golden."""

import math
from typing import Any

import pytest
from laws import prefer

from fedcal.privacy.making import make_plan
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.privacy import Federation
from fedcal.results.statement import Facts, of_plan, without_privacy
from fedcal.units import UNITS, Bound

CLIENTS = 20
TRUSTS = ("central", "distributed", "local")


FACTS = (
    Facts(held_out=True, counted=True, rows=5.0, dealt="iid", rows_per_subject=9, at_home=True),
    Facts(noun="thresholds", guarded=True, unused=True, rows=3.0),
    Facts(noun="release", tested=False, in_app=True, rows=3.0),
    Facts(noun="model", untold=True),
)
EXACT = "No differential privacy: the exact sums are released."


def plan_of(row_sums: bool, preferred: str, unit: str, trust: str, **more: Any) -> Plan:
    more |= {"classes": 3, "epsilon": 1.0, "unit": unit, "trust": trust, "rounds": 2}
    bound = Bound((4,), (1.0,), "joint")
    prefers = prefer(preferred)
    federation = Federation(CLIENTS, **more)
    return make_plan(federation, rounds=2, bound=bound, prefers=prefers, row_sums=row_sums)


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
        one = math.sqrt(2.0) * plan.diameter / plan.mechanism.epsilon
    assert found["noise_std"] == pytest.approx(one * math.sqrt(answers))
    replaced = UNITS[unit].adjacency(trust == "local") == "replace"
    twice = replaced or not (UNITS[unit].whole_client or row_sums)
    assert found["diameter"] == (2 if twice else 1)


def check_sentences(record: dict[str, Any]) -> None:
    said = [*record["statement"], *record["more"]]
    assert 2 <= len(record["statement"]) <= 6
    assert len(set(said)) == len(said)
    for line in (*said, *(seen["what"] for seen in record["sees"])):
        assert line.endswith("."), line
        assert not any(mark in line for mark in ("{", "}", " ,", " . ", "None", "  ")), line
    assert ("simulation" in str(record["sees"])) is not ("SuperLink" in str(record["sees"]))


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("how", ["none", "masks", "protocol"])
def test_at_most_six_sentences_are_said_first_and_none_twice(unit, trust, how):
    for more in ({}, {"sampling_rate": 0.5}, {"noise_source": "system", "delta": 0.2}):
        agreed = {"committee": 7, "threshold": 5, "colluding": 2} if how == "protocol" else {}
        plan = plan_of(True, "gaussian", unit, trust, **agreed, **more)
        for facts in FACTS:
            check_sentences(of_plan(plan, 2, how, facts))
    exact = make_plan(Federation(CLIENTS, 3, unit=unit, **agreed), rounds=2, bound=Bound((4,)))
    for facts in FACTS:
        check_sentences(of_plan(exact, 2, how, facts))
        check_sentences(without_privacy("one-source", unit, EXACT, facts))
        check_sentences(without_privacy("pooled", unit, EXACT, facts))
