"""What runs cost together: each rule where it holds, and never more than the sums."""

import math
from dataclasses import replace
from typing import Any

import pytest
from refusals import each_is_refused

from fedcal.accounting import Guarantee, Stage, composed_epsilon, gaussian_multiplier
from fedcal.mechanisms import Gaussian, Laplace
from fedcal.privacy import Federation, make_plan
from fedcal.privacy.account import by_stage, stage_of
from fedcal.privacy.ledger import Entry
from fedcal.units.bounding import Bound

DELTA = 1e-5


def entry(run: str, mechanism: str = Gaussian.name, rounds: int = 4, **change: Any) -> Entry:
    """What a run of a real plan writes into the ledger."""
    row_rate = change.pop("row_rate", 1.0)
    settings = {"clients": 10, "classes": 2, "epsilon": 1.0, "delta": DELTA, "unit": "example"}
    plan = make_plan(
        Federation(**settings | change, mechanism=mechanism),
        rounds=rounds,
        bound=Bound((3,), (1.0,)),
        row_sums=True,
        row_rate=row_rate,
    )
    words = (plan.mechanism, plan.unit, plan.adjacency, plan.event)
    return Entry(run, plan.epsilon, plan.delta, plan.rounds, *words)


TRAIN = entry("train", rounds=200, row_rate=0.02, epsilon=6.0)
HEAD = entry("recalibrate")
LAPLACE = entry("sets", Laplace.name, rounds=1, epsilon=0.5, delta=0.0)


def test_an_entry_says_what_its_noise_is():
    assert stage_of(TRAIN) == Stage(gaussian_multiplier(6.0, DELTA, 200, 0.02), 200, 0.02)
    assert stage_of(HEAD) == Stage(gaussian_multiplier(1.0, DELTA, 4), 4)
    assert stage_of(LAPLACE) == Guarantee(0.5)
    shared = entry("shared", "gaussian", trust="distributed")
    assert stage_of(shared) == stage_of(HEAD)
    # unit example, clients sampled: their other rows change too, so nothing is claimed for it
    sampled = entry("evaluate", sampling_rate=0.3)
    assert "Poisson(0.3)" in sampled.event
    assert stage_of(sampled) == stage_of(HEAD)
    amplified = entry("evaluate", sampling_rate=0.3, unit="user")
    assert stage_of(amplified).rate == 0.3


def test_gaussian_runs_compose_by_gaussian_dp():
    found = by_stage([entry(f"run {i}", rounds=1) for i in range(10)], delta=1e-4)
    assert (found.rule, found.delta) == ("Gaussian DP", 1e-4)
    assert found.epsilon == pytest.approx(3.1, abs=0.05)  # not 10
    assert len(found.runs) == 10
    assert (found.runs[3].run, found.runs[3].epsilon, found.runs[3].delta) == ("run 3", 1.0, DELTA)


def test_training_and_what_follows_cost_less_than_the_sum():
    entries = [TRAIN, HEAD, LAPLACE]
    chosen = by_stage(entries)
    planned = by_stage(entries, fixed_beforehand=True)
    assert (chosen.rule, planned.rule) == ("Renyi DP", "loss distributions")
    assert 6.0 < planned.epsilon < chosen.epsilon < 7.5
    assert chosen.delta == planned.delta == 2 * DELTA
    exact = composed_epsilon([stage_of(e) for e in entries], 2 * DELTA)
    assert planned.epsilon == exact


def test_what_guarantees_take_of_delta_is_not_the_noise_s():
    """Their deltas are set aside: the rest costs what it costs at the delta that is left."""
    known, pure = (
        Entry("old", 0.1, delta, 1, "gaussian", "example", "add-remove", "something else")
        for delta in (9e-6, 0.0)
    )
    for fixed, rule in ((False, "Renyi DP"), (True, "loss distributions")):
        found, left = (
            by_stage([TRAIN, replace(TRAIN, run="again"), one], fixed_beforehand=fixed)
            for one in (known, pure)
        )
        assert (found.rule, found.delta, left.delta) == (rule, 2.9e-5, 2e-5)
        assert found.epsilon == pytest.approx(left.epsilon, rel=1e-9 if not fixed else 1e-3)


def test_the_sum_holds_where_nothing_is_tighter():
    assert by_stage([]).epsilon == 0.0
    one = by_stage([TRAIN], fixed_beforehand=True)
    assert (one.epsilon, one.delta, one.rule) == (6.0, DELTA, "sum")
    pure = by_stage([LAPLACE, entry("more", Laplace.name, rounds=1, epsilon=0.1, delta=0.0)])
    assert pure.epsilon == pytest.approx(0.6)
    assert (pure.delta, pure.rule) == (0.0, "sum")
    unknown = Entry("old", 2.0, 1e-6, 1, "gaussian", "example", "add-remove", "something else")
    assert by_stage([unknown, LAPLACE]).rule == "sum"  # no delta is left for what is known


def test_disjoint_parts_of_the_rows_cost_the_dearest():
    parts = {"train": "most", "recalibrate": "a tenth"}
    assert by_stage([TRAIN, HEAD], parts=parts).epsilon == 6.0
    both = by_stage([TRAIN, HEAD, LAPLACE], parts=parts)  # the sets use all rows
    assert both.epsilon == by_stage([TRAIN, LAPLACE]).epsilon
    assert [run.part for run in both.runs] == ["most", "a tenth", ""]


def test_it_is_never_more_than_the_sum():
    for epsilon in (0.1, 20.0, 200.0):
        entries = [TRAIN, entry("big", epsilon=epsilon), LAPLACE]
        for fixed in (False, True):
            found = by_stage(entries, fixed_beforehand=fixed)
            assert found.epsilon <= math.fsum(e.epsilon for e in entries)


def test_what_does_not_add_up_is_refused():
    table = [
        ({"delta": 1e-6}, "below it"),
        ({"parts": {"trian": "most"}}, "no run 'trian'"),
        ({"entries": [TRAIN, entry("user", unit="user")]}, "several units"),
    ]
    each_is_refused(table, lambda change: by_stage(**{"entries": [TRAIN, HEAD]} | change))
