"""`fedcal plan`: what it asks for is enough; a config, and the numbers of a privacy record."""

import math
from typing import Any

import pytest
from laws import prefer
from refusals import refused

from fedcal import __version__
from fedcal.privacy.making import make_plan
from fedcal.privacy.noise_plan import Plan
from fedcal.privacy.privacy import Federation
from fedcal.results.statement import of_plan
from fedcal.run.config import Config, load_config
from fedcal.run.plan import EPSILONS, plan
from fedcal.units import UNITS, Bound

FACTS: dict[str, Any] = {"clients": 100, "rows_per_client": 50.0, "classes": 10, "epsilon": 1.0}


def line(method: str, **facts: Any) -> dict[str, Any]:
    (found,) = plan(**{**FACTS, **facts, "method": [method]}).methods
    return found


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize("method", ["fednewton", "acct", "ecet"])
def test_what_it_asks_for_is_enough_and_half_is_not(method, trust):
    found = line(method, trust=trust)
    fewest, epsilon = found["fewest_clients"], found["smallest_epsilon"]
    assert line(method, trust=trust, clients=fewest)["helps"] == "yes"
    assert line(method, trust=trust, clients=max(1, fewest // 2))["helps"] != "yes" or fewest < 8
    if epsilon is not None:
        assert line(method, trust=trust, epsilon=epsilon)["helps"] == "yes"
        less = EPSILONS[EPSILONS.index(epsilon) - 1]
        assert line(method, trust=trust, epsilon=less)["helps"] != "yes"


def test_a_config_is_of_one_version(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(Config(method="acct").to_toml().replace(__version__, "0.1.0"))
    refused(r"written by fedcal '0\.1\.0', .* delete its line 'version'$", load_config, path, {})
    path.write_text("method = 'acct'\n")  # a person's own
    assert load_config(path, {}).method == "acct"


def test_a_method_s_name_in_a_config_imports_nothing(tmp_path, monkeypatch):
    """Only what a user gives as an option may name code; a `Config` is made of more."""
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    refused("unknown method 'planted:Method'", Config, method="planted:Method")


CLIENTS = 20


def plan_of(row_sums: bool, preferred: str, unit: str, trust: str, **more: Any) -> Plan:
    more |= {"classes": 3, "epsilon": 1.0, "unit": unit, "trust": trust, "rounds": 2}
    bound = Bound((4,), (1.0,), "joint")
    prefers = prefer(preferred)
    federation = Federation(CLIENTS, **more)
    return make_plan(federation, rounds=2, bound=bound, prefers=prefers, row_sums=row_sums)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("trust", ["central", "distributed", "local"])
@pytest.mark.parametrize(("preferred", "row_sums"), [("gaussian", False), ("laplace", True)])
def test_the_numbers_of_a_record_are_the_plan_s(unit, trust, preferred, row_sums):
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
    twice = replaced or not (UNITS[unit].by_client or row_sums)
    assert found["diameter"] == (2 if twice else 1)
