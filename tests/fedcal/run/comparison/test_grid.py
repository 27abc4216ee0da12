"""Lists of values, the cells that they span, what of them can run, and what they give away."""

import math
import warnings
from typing import Any

import pytest
from made_up import halves
from refusals import each_is_refused, refused

from fedcal import datasets
from fedcal.core.checks import TooLittle
from fedcal.run.comparison import compare
from fedcal.run.comparison.grid import AXES, Cell, LeftOut, Variant, read_grid, resolve
from fedcal.run.comparison.run import composed
from fedcal.run.config import POOLED, Config

TEST_PART, NO_TEST_PART = {"d": False}, {"d": True}


def cells(**options: Any) -> list[Cell]:
    return list(read_grid({"data": "d", **options}).drafts(TEST_PART))


def test_shared_settings_go_to_methods_that_have_them_and_a_variant_s_own_win():
    found = cells(
        method="fedtemp,fedbin,fedbbq[weighting=none]",
        epsilon="inf",
        set={"bins_exponent": 4, "weighting": "all"},
    )
    assert [c.config.set for c in found] == [
        {},
        {"bins_exponent": 4, "weighting": "all"},
        {"bins_exponent": 4, "weighting": "none"},
    ]


def test_every_axis_multiplies():
    halves: tuple[dict[str, Any], ...] = (
        {"method": "fedbin,fedtemp", "partition": "iid,dirichlet:1", "clients": "3,4"}
        | {"data": "d,e", "epsilon": "1,2", "unit": "user"},
        {"rounds": "1,2", "sampling_rate": "1,0.5", "delta": "1e-5,1e-6", "epsilon": 1}
        | {"mechanism": "gaussian,laplace", "trust": "central", "method": "fedbin"},
    )
    assert {*halves[0], *halves[1]} == {*AXES}
    for half, twos in zip(halves, (5, 4), strict=True):
        grid = read_grid({"data": "d", **half, "seeds": 2, "seed": 7})
        found = list(grid.drafts({"d": False, "e": False}))
        assert len({(c.variant.text, str(c.config)) for c in found}) == len(found) == 2**twos
        assert {c.seeds for c in found} == {(7, 8)}


@pytest.mark.parametrize(("split", "seeds"), [(TEST_PART, (3,)), (NO_TEST_PART, (3, 4, 5))])
def test_baselines_run_once_unless_the_test_part_follows_from_the_seed(split, seeds):
    options = {"data": "d", "method": ",".join(POOLED), "epsilon": "1,2", "seed": 3, "seeds": 3}
    found = list(read_grid({**options, "partition": "iid,dirichlet:1"}).drafts(split))
    once = [c for c in found if c.variant.text != "one-source"]
    assert [c.variant.text for c in once] == [m for m in POOLED if m != "one-source"]
    assert {c.seeds for c in once} == {seeds}
    # the rows of one source depend on the partition
    alone = [c for c in found if c.variant.text == "one-source"]
    assert [c.config.partition for c in alone] == ["iid", "dirichlet:1"]
    assert {c.seeds for c in alone} == {(3, 4, 5)}


def test_without_privacy_there_is_one_delta_and_no_noise_to_trust_anybody_with():
    found = cells(method="fedbin", epsilon="inf,1", delta="1e-5,1e-6", trust="central")
    assert [(c.config.epsilon, c.config.delta, c.config.trust) for c in found] == [
        (math.inf, 1e-5, None),
        (1.0, 1e-5, "central"),
        (1.0, 1e-6, "central"),
    ]


def resolved(**options: Any) -> tuple[list[Cell], list[LeftOut]]:
    data = datasets.from_arrays(**halves(3, 60, 2, 1.0), name="d")
    grid = read_grid({"data": "d", "partition": "iid", "clients": 10, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return resolve(grid, {"d": data})


def test_a_setting_is_left_to_the_runs_that_it_does_something_in():
    found, left_out = resolved(
        method="fedbbq,acct", epsilon="inf,1", set={"clip_positive": 0.5, "clip": 2.0}
    )
    assert left_out == []
    assert {(c.config.method, c.config.epsilon): dict(c.config.set) for c in found} == {
        ("fedbbq", math.inf): {},
        ("acct", math.inf): {},
        ("fedbbq", 1.0): {"clip_positive": 0.5},
        ("acct", 1.0): {"clip": 2.0},
    }
    _, ((cell, why),) = resolved(method="fedbbq,fedbbq[clip_positive=1]", epsilon="inf,1")
    assert (cell.variant.text, cell.config.epsilon) == ("fedbbq[clip_positive=1]", math.inf)
    assert "clip_positive has no effect here" in why


def test_a_quorum_is_of_runs_that_count_answers():
    found, _ = resolved(method="fedtemp", epsilon=1, trust="central,distributed", quorum=0.5)
    assert [c.config.quorum for c in found] == [0.9, 0.5]


def test_a_value_that_goes_with_nothing_is_refused():
    table: list[tuple[dict[str, Any], str]] = [
        ({"epsilon": "inf,1", "trust": "secagg"}, "^fedtemp on d, iid, epsilon 1: .*secagg"),
        ({"trust": "central,local", "mechanism": "auto,unary"}, "'unary' does not fit"),
        ({"quorum": 0.5}, "quorum"),
        # what no choice of trust would mend
        ({"method": "fedoneshot", "rounds": 3, "trust": "central,local"}, "fedoneshot on d"),
        ({"epsilon": "inf", "method": "acct", "set": {"clip": 2.0}}, "clip has no effect here: no"),
    ]
    each_is_refused(table, lambda given: resolved(**{"method": "fedtemp", "epsilon": "1", **given}))


def test_no_processes_are_refused():
    refused("jobs must be a whole number >= 1, got 0", compare, halves(3, 60, 2, 1.0), jobs=0)


def test_what_is_left_out_is_named_before_and_after():
    options: dict[str, Any] = {"mechanism": "auto,exponential", "clients": 10, "seeds": 1}
    options |= {"method": "fedtemp,fedoneshot", "epsilon": 1, "jobs": 1}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = compare(halves(3, 60, 2, 1.0), **options)
    (warning,) = (str(w.message) for w in caught if w.category is not TooLittle)
    assert warning.startswith("impossible combinations are skipped (1), the first FedTemp with ")
    (line,) = [line for line in found.more if line.startswith("Skipped: ")]
    assert "FedTemp with epsilon 1, unit user, mechanism exponential" in line
    assert "'exponential' does not fit" in line
    assert len(found.cells) == 1 + 2


def cell(epsilon: float, seeds: tuple[int, ...] = (0,), **config: Any) -> Cell:
    given = {"data": "d", "method": "fedbin", "partition": "natural", "clients": 5, **config}
    return Cell(Variant(given["method"]), Config(epsilon=epsilon, **given), seeds)


def test_natural_clients_pay_for_every_run():
    spent = composed([cell(1.0, (0, 1, 2)), cell(0.5, (0, 1, 2), method="fedtemp")])
    total = {"epsilon": pytest.approx(4.5), "delta": pytest.approx(6e-5)}
    assert spent == [{"data": "d", "unit": "user", **total, "deals": 1, "runs": 6}]


def test_assigned_clients_pay_within_an_assignment():
    cells = [
        cell(1.0, (0, 1), partition="iid"),
        cell(0.5, (0, 1), partition="iid", method="fedtemp"),
        cell(4.0, (1,), partition="dirichlet:1"),
        cell(4.0, (1,), partition="iid", clients=6),
    ]
    known: dict[str, Any] = {"data": "d", "unit": "user"}
    assert composed(cells) == [{**known, "epsilon": 4.0, "delta": 1e-5, "deals": 4, "runs": 6}]
    # within a deal they add up
    both = {**known, "epsilon": 1.5, "delta": 2e-5, "deals": 2, "runs": 4}
    assert composed(cells[:2]) == [both]
    # runs without privacy do not count
    cells = [cell(math.inf), cell(1.0, data="e"), cell(math.inf, method="none")]
    assert [(one["data"], one["unit"]) for one in composed(cells)] == [("e", "user")]
