"""Lists of values, method variants, and the cells that they span."""

import math
from typing import Any

import pytest
from refusals import each_is_refused

from fedcal.experiments.runs.comparison.grid import AXES, Cell, read_grid, split_list
from fedcal.experiments.runs.config import POOLED

TEST_PART, NO_TEST_PART = {"d": False}, {"d": True}


def cells(**options: Any) -> list[Cell]:
    return list(read_grid({"data": "d", **options}).drafts(TEST_PART))


def test_commas_in_brackets_do_not_split():
    for text, entries in (
        ("a", ["a"]),
        ("a, b ,c", ["a", "b", "c"]),
        ("flwr:P:sizes=[10, 20],iid", ["flwr:P:sizes=[10, 20]", "iid"]),
        ("fedbbq[x=1,y=2],fedbin", ["fedbbq[x=1,y=2]", "fedbin"]),
        ("f(a,b),{c,d}", ["f(a,b)", "{c,d}"]),
    ):
        assert split_list("x", text) == entries
    none = ("", ",", "a,", "a,,b", " , a", "a]", "[a", "a)(", "[a,b")
    each_is_refused(((text, "empty|brackets") for text in none), lambda text: split_list("x", text))


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
    # one source's rows depend on how all of them are dealt
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
    found = cells(method="fedbin", epsilon="inf,1", trust="secagg,central")
    assert [(c.config.epsilon, c.config.trust) for c in found] == [
        (math.inf, "secagg"),
        (1.0, "central"),
    ]


def test_a_grid_may_grow_but_not_change():
    changes: tuple[tuple[dict[str, Any], list[str]], ...] = (
        ({}, []),
        ({"seeds": 6}, []),
        ({"epsilon": "8,1,inf"}, []),
        ({"method": "none,fedbin,fedtemp"}, []),
        ({"seeds": 2}, ["seeds was 3 and is 2"]),
        ({"seed": 1}, ["seed was 0 and is 1"]),
        ({"epsilon": "1,8"}, ["epsilon was inf, 1.0 and is 1.0, 8.0"]),
        ({"clients": "5"}, ["clients was the default and is 5"]),
        ({"set": {"clip": 0.2}}, ["set was"]),
        ({"method": "fedbin"}, ["method was"]),
    )
    begun = {"method": "fedbin,fedtemp", "epsilon": "inf,1", "seeds": 3}
    for more, differs in changes:
        said = read_grid(begun, more).what_differs(read_grid(begun))
        assert len(said) == len(differs)
        assert all(words in line for words, line in zip(differs, said, strict=True))
