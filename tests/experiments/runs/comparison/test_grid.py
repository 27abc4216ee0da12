"""Lists of values, method variants, and the cells that they span."""

import math
import re
from typing import Any

import pytest
from refusals import each_is_refused

from fedcal.experiments.runs.comparison.grid import AXES, Cell, Grid, Variant, read_grid, split_list
from fedcal.experiments.runs.config import POOLED
from fedcal.strategies.settings import calibrating

ALL = [*calibrating(), *POOLED]
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


def test_an_axis_takes_a_value_a_list_or_text():
    for axis, value, found in (
        ("epsilon", "inf,8,1,0.1", (math.inf, 8.0, 1.0, 0.1)),
        ("epsilon", 1, (1.0,)),
        ("epsilon", [math.inf, "2"], (math.inf, 2.0)),
        ("clients", range(3, 5), (3, 4)),
        ("data", "a.npz,b.npz", ("a.npz", "b.npz")),
        ("data", ["a,b.npz"], ("a,b.npz",)),  # an entry of a list is taken as it is
        ("sampling_rate", (1, 0.5), (1.0, 0.5)),
        ("method", "fedbin,none", (Variant("fedbin"), Variant("none"))),
    ):
        assert getattr(read_grid({axis: value}), axis) == found
    assert read_grid({"method": "all"}) == read_grid({}) == read_grid() == Grid()
    both = read_grid({"method": ["fedbbq[weighting=none]", "all"]}).method
    assert [v.text for v in both] == ["fedbbq[weighting=none]", *ALL]


def test_options_that_are_refused():
    table: list[tuple[dict[str, Any], str]] = [
        ({"metod": "fedbin"}, "unknown option 'metod'"),
        ({"method": []}, "method: the list is empty"),
        ({"method": "fednewtn"}, "did you mean 'fednewton'"),
        ({"method": "fedbin[x=1]"}, "unknown --set key 'x' for fedbin"),
        ({"method": "fedbin,fednewton,fedbin"}, "method 'fedbin' occurs twice"),
        ({"method": "fedbbq,fedbbq[weighting=all]"}, "'fedbbq' means the same"),
        ({"method": [["fedbin"]]}, "'method' must be text"),
        ({"epsilon": "1,1.0"}, "epsilon '1.0' occurs twice"),
        ({"epsilon": "1,much"}, "epsilon must be a number, got 'much'"),
        ({"epsilon": "0"}, "epsilon must be"),
        ({"clients": "2.5"}, "clients must be a whole number, got '2.5'"),
        ({"clients": [[1]]}, "clients must be a number, or a list of numbers; got [1] in it"),
        ({"partition": "dirichlet:0.1,dirichlet:0.10"}, "'dirichlet:0.1' means the same"),
        ({"partition": "dirichlet"}, "needs dirichlet:BETA"),
        ({"trust": "nobody", "epsilon": "inf"}, "unknown trust 'nobody'"),
        ({"quorum": "0.5"}, "'quorum' must be a number"),
        ({"seeds": 0}, "seeds must be a whole number >= 1"),
        ({"seeds": "5"}, "seeds must be a whole number"),
        ({"seed": 2**63 - 3, "seeds": 5}, "seed must be"),
        ({"set": {"nonsense": 1}}, "none of the methods has"),
        ({"method": "none", "set": {"clip": 1.0}}, "none of the methods has"),
        ({"ledger": "l.db"}, "compare takes no ledger: "),
    ]
    each_is_refused(((o, re.escape(said)) for o, said in table), lambda o: cells(**o))


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
