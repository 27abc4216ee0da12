"""Stages of a pipeline keep to one budget: what is fixed, what is left, what is refused."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fedcal.accounting import Guarantee, Stage, composed_epsilon, gaussian_epsilon
from fedcal.core.errors import InputError
from fedcal.experiments.pipeline.budget import Budget, Spender, account_of, budget_of
from fedcal.mechanisms import Gaussian, Laplace
from fedcal.privacy.federation import Federation
from fedcal.privacy.noise_plan import Plan
from fedcal.strategies import STRATEGIES

DELTA = 1e-5


def planned(mechanism: str, rounds: int = 4) -> Callable[[float], Plan]:
    def plan(epsilon: float) -> Plan:
        facts = Federation(
            clients=10,
            classes=3,
            rounds=rounds,
            epsilon=epsilon,
            delta=DELTA,
            unit="example",
            mechanism=mechanism,
        )
        return STRATEGIES["fednewton"](facts).plan

    return plan


GAUSSIAN, LAPLACE = planned(Gaussian.name), planned(Laplace.name)


def spent(budget: Budget) -> float:
    return composed_epsilon([account_of(plan) for plan in budget.plans.values()], DELTA)


def test_trainings_share_what_is_left_and_nothing_is_left():
    stages = [Spender(name, "rows", None, GAUSSIAN) for name in "ab"]
    budget = budget_of([*stages, Spender("c", "rows", 1.0, GAUSSIAN)], 2.0, DELTA)
    assert budget.epsilons["a"] == budget.epsilons["b"]
    assert 1.99 < budget.epsilon <= 2.0
    with pytest.raises(InputError, match="is spent"):
        budget_of([Spender("c", "rows", 2.0, GAUSSIAN), stages[1]], 2.0, DELTA)
    plan = GAUSSIAN(2.0)
    assert account_of(plan) == Stage(plan.multiplier, 4)
    assert account_of(LAPLACE(2.0)) == Guarantee(2.0)


def test_disjoint_rows_cost_the_largest():
    stages = [Spender("a", "train", None, GAUSSIAN), Spender("b", "held", 0.5, LAPLACE)]
    budget = budget_of(stages, 2.0, DELTA)
    assert budget.epsilons == {"a": 2.0, "b": 0.5}
    assert budget.epsilon == max(budget.by_part.values()) <= 2.0 * (1 + 1e-9)
    assert budget.by_part["held"] <= 0.5
    assert budget.basic == 2.5


@pytest.mark.parametrize("open_stage", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("fixed", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_the_open_stage_takes_what_is_left(fixed, open_stage):
    stages = [Spender("a", "rows", 1.0, fixed), Spender("b", "rows", None, open_stage)]
    budget = budget_of(stages, 2.0, DELTA)
    assert 1.99 < spent(budget) <= 2.0
    assert budget.epsilon == spent(budget)
    own = budget.epsilons["b"]
    more = replace(stages[1], epsilon=1.02 * own)  # nothing is left for more
    with pytest.raises(InputError, match=r"^a and b spend epsilon = 2\.\d+ on the rows 'rows'"):
        budget_of([stages[0], more], 2.0, DELTA)
    if fixed is open_stage is GAUSSIAN:  # Gaussian stages add up by the squares of mu
        mu2 = sum(p.rounds / p.multiplier**2 for p in budget.plans.values())
        assert budget.epsilon == pytest.approx(gaussian_epsilon(DELTA, mu2**-0.5), rel=1e-6)
