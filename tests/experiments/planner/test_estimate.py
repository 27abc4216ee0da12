"""Few simulated clients stand for many: exactly where all are there, in the mean where not."""

from typing import Any

import numpy as np
import pytest

from fedcal.core.errors import InputError
from fedcal.core.shards import Shards
from fedcal.experiments.planner.candidates import Candidate, candidates
from fedcal.experiments.planner.estimate import Population, Size, drive, scaled
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.worlds import made_up
from fedcal.experiments.runs.engines.inline import run_inline
from fedcal.partition import owners
from fedcal.privacy.federation import Federation
from fedcal.strategies.settings import calibrating

WORLD = made_up(3)[0]


def facts(clients: int = 40, rows: float = 20.0, **public: Any) -> PublicFacts:
    return PublicFacts(Federation(clients, 3, **public), rows)


def test_with_all_clients_there_it_is_the_engine_itself():
    public = facts(epsilon=1.0)
    population = Population.draw(WORLD, public, 5)
    assert population.size == Size(40, 20.0)
    candidate = Candidate("fednewton")
    strategy, weight = scaled(candidate, public, population)
    ours = drive(strategy, population.shards, weight, 5)
    theirs = run_inline(candidate.job(public, 20.0, 5).strategy(), population.shards)
    assert ours.arrays()["temperature"] == theirs.arrays()["temperature"]


@pytest.mark.parametrize(
    ("trust", "mechanism"),
    [
        ("central", "gaussian"),
        ("local", "laplace"),
        ("distributed", "gaussian"),
        ("distributed", "laplace"),
    ],
)
def test_the_noise_of_a_released_sum_is_the_plan_s(trust, mechanism):
    """Sums of simulated clients scatter by what the plan says for all of its clients."""
    public = facts(2000, 5.0, epsilon=1.0, trust=trust, mechanism=mechanism, rounds=1)
    population = Population.draw(WORLD, public, 0)
    assert population.size.clients < 2000
    values = []
    for seed in range(100):
        strategy = Candidate("fednewton").job(public, 5.0, seed).strategy()
        drive(strategy, population.shards, 1.0, seed)
        values.append(strategy.releases[0].values)
        std = strategy.releases[0].std
    assert np.std(values, axis=0) == pytest.approx(std, rel=0.3)


@pytest.mark.parametrize(
    ("trust", "rate"), [("secagg", 1.0), ("secagg", 0.5), ("central", 0.5), ("distributed", 1.0)]
)
def test_few_clients_add_up_to_what_many_would(trust, rate):
    """The scaled sum of a part of the clients is, but for chance, the sum of all of them."""
    epsilon = {} if trust == "secagg" else {"epsilon": 500.0, "trust": trust}
    public = facts(2000, 5.0, rounds=1, sampling_rate=rate, **epsilon)
    few = Population.draw(WORLD, public, 0)
    rng = np.random.default_rng(0)
    logits, labels = WORLD.draw(10_000, rng)
    everybody = Shards.from_owner(logits, labels, owners.iid(labels, 2000, rng), 2000)
    sums = []
    for shards in (few.shards, everybody):
        strategy = Candidate("fednewton").job(public, 5.0, 1).strategy()
        drive(strategy, shards, 1.0, 1)
        sums.append(strategy.releases[0].values[1])  # the curvature: a sum of positive numbers
    assert sums[0] == pytest.approx(sums[1], rel=0.25)


def test_rows_scale_where_each_row_has_its_own_bound():
    """Unit example: a client of very many rows counts as so many, not as the few simulated."""
    public = facts(50, 10_000.0, epsilon=1.0, unit="example", trust="central")
    population = Population.draw(WORLD, public, 0)
    assert population.size.rows < 10_000
    _, weight = scaled(Candidate("acct"), public, population)
    assert weight == pytest.approx(10_000 / population.size.rows)
    strategy, weight = scaled(Candidate("fednewton"), facts(50, 10_000.0, epsilon=1.0), population)
    assert weight == 1.0
    assert strategy.plan.bound.norms[0] == pytest.approx(0.2 * population.size.rows)


def test_candidates_are_the_strategies_and_say_why_one_is_left_out():
    found, refused = candidates(facts(epsilon=1.0))
    assert {c.method for c in found} | {name for name, _ in refused} == set(calibrating())
    found, refused = candidates(facts(epsilon=1.0, rounds=3))
    assert "fedoneshot" in {name for name, _ in refused}
    assert all(c.plan(facts(epsilon=1.0, rounds=3)).rounds == 3 for c in found)
    with pytest.raises(InputError, match="unknown method"):
        candidates(facts(), ["fedtmp"])
