"""What editors and type checkers know of the Python functions is what these take."""

import inspect
from collections.abc import Sequence
from types import NoneType
from typing import get_args, get_type_hints

import fedcal
from fedcal.experiments.runs.comparison.grid import AXES, Grid
from fedcal.experiments.runs.config import Config
from fedcal.experiments.runs.plan import plan
from fedcal.experiments.runs.signatures import CompareOptions


def test_a_comparison_s_axes_take_several():
    hints, found = get_type_hints(Config), get_type_hints(CompareOptions)
    assert {*found} == {*Grid().__dict__} - {"data"}
    for name, hint in found.items():
        kind = next(t for t in (*get_args(hints.get(name)), hints.get(name)) if t is not NoneType)
        several = {kind, str, Sequence[kind]}
        if name in AXES:
            assert {*get_args(hint)} == several, name
        elif name != "seeds":
            assert hint == hints[name], name


def test_a_notebook_sees_every_option():
    others = (fedcal.compare, fedcal.evaluate, fedcal.plan, fedcal.prediction_sets)
    for function in (*others, fedcal.simulate):
        seen = inspect.signature(function).parameters
        assert not any(p.kind is p.VAR_KEYWORD for p in seen.values()), function
        assert {"epsilon", "unit", "trust", "clients"} <= {*seen}, function
    assert all(seen[k].default == v for k, v in vars(Config()).items() if k != "data")


def test_a_plan_takes_what_a_run_takes():
    of_run, found = get_type_hints(Config), get_type_hints(plan)
    assert all(found[name] == of_run[name] for name in {*found} & {*of_run} - {"data"})
