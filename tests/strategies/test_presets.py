"""The preset "paper" stands for the settings of a method's paper."""

import math
from typing import Any

import pytest

from fedcal.core.checks import InputError
from fedcal.privacy.privacy import Federation
from fedcal.run.comparison.grid import read_grid
from fedcal.run.config import merge
from fedcal.strategies import STRATEGIES

FEDBBQ = {"tables": "per_class", "weighting": "all", "estimate": "share"}
CLIPS = {"clipping": "per_class", "clip_positive": 10.0, "clip_negative": 50.0}
PAPER: list[tuple[str, float, dict[str, Any]]] = [
    ("fedtemp", math.inf, {"average": "inverse", "limit": 1000.0, "steps": 50}),
    ("fedopvector", 1.0, {"proximal": 0.0, "steps": 50, "clip": None}),
    ("fedbbq", math.inf, FEDBBQ),
    ("fedbbq", 1.0, FEDBBQ | CLIPS),
    ("fedbin", 1.0, CLIPS | {"tables": "per_class", "weighting": "none"}),
    ("dp-histogram", 1.0, {"counts": "correct_total"}),
    ("dp-ts", 1.0, {"lr": 0.1, "clip": 1.0}),
    ("conformal", 1.0, {"quantile": "exponential", "rows_known": False}),
]


@pytest.mark.parametrize(("method", "epsilon", "settings"), PAPER)
def test_it_stands_for_the_paper_s_settings(method, epsilon, settings):
    rows = {"rows_per_client": 9.0} if method.startswith("dp") else {}
    made = STRATEGIES[method](Federation(10, 3, epsilon=epsilon), preset="paper", **rows)
    assert {name: getattr(made, name) for name in settings} == settings
    assert STRATEGIES["fedtemp"](Federation(10, 3), preset="paper", steps=3).steps == 3
    if method.startswith("fed"):
        assert made.plan.rounds - made.plan.counting_rounds == 12


def test_it_is_an_option_of_a_run_and_of_those_methods_of_a_comparison_that_have_one():
    assert merge({"method": "fedtemp", "preset": "paper"}).set == {"preset": "paper"}
    with pytest.raises(InputError, match="fednewton has no preset"):
        merge({"method": "fednewton", "preset": "paper"})
    grid = read_grid({"method": "fedtemp[steps=3],fednewton", "preset": "paper", "epsilon": 1})
    sets = [dict(cell.config.set) for cell in grid.drafts({"resnet110-cifar10": True})]
    assert sets == [{"preset": "paper", "steps": 3}, {}]
