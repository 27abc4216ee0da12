"""Lists of values, method variants, and the cells that they span."""

import math
from typing import Any

import pytest

from fedcal.run.comparison.grid import AXES, Cell, read_grid
from fedcal.run.config import POOLED

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
