"""The preset "paper" stands for the settings of a method's paper."""

import math
from typing import Any

import pytest

from fedcal.core.checks import InputError, NoEffect
from fedcal.privacy.privacy import Federation
from fedcal.run.comparison.grid import read_grid
from fedcal.run.config import merge
from fedcal.strategies import STRATEGIES

CLIPS = {"clipping": "per_class", "clip_positive": 10.0, "clip_negative": 50.0}
FEDBBQ = {"tables": "per_class", "weighting": "all", "estimate": "share"}
PAPER: list[tuple[str, float, str, dict[str, Any]]] = [
    ("fedtemp", math.inf, "user", {"average": "inverse", "limit": 1000.0, "steps": 50}),
    ("fedopvector", 1.0, "user", {"proximal": 0.0, "steps": 50, "clip": None}),
    ("fedbbq", math.inf, "user", FEDBBQ),
    ("fedbbq", 1.0, "user", FEDBBQ | CLIPS),
    ("fedbin", 1.0, "example", {"tables": "per_class", "weighting": "none"}),
    ("dp-histogram", 1.0, "example", {"counts": "correct_total"}),
    ("dp-ts", 1.0, "example", {"lr": 0.1, "clip": 1.0, "rows_per_client": 9.0}),
    ("conformal", 1.0, "user", {"quantile": "exponential", "rows_known": False}),
]


@pytest.mark.parametrize(("method", "epsilon", "unit", "settings"), PAPER)
def test_it_stands_for_the_paper_s_settings(method, epsilon, unit, settings):
    facts = Federation(10, 3, epsilon=epsilon, unit=unit)
    rows = {k: v for k, v in settings.items() if k == "rows_per_client"}
    made = STRATEGIES[method](facts, preset="paper", **rows)
    assert {name: getattr(made, name) for name in settings} == settings
    if method in ("fedtemp", "fedopvector", "fedbin", "fedbbq"):
        assert made.plan.rounds - made.plan.counting_rounds == 12


def test_what_is_given_comes_first_and_a_preset_without_effect_is_refused():
    made = STRATEGIES["fedtemp"](Federation(10, 3), preset="paper", steps=3)
    assert (made.steps, made.limit) == (3, 1000.0)
    with pytest.raises(NoEffect, match="the defaults are the paper's"):
        STRATEGIES["conformal"](Federation(10, 3), preset="paper")
    with pytest.raises(InputError, match="fednewton has no preset"):
        merge({"method": "fednewton", "preset": "paper"})


def test_an_option_of_a_run_and_of_those_methods_of_a_comparison_that_have_one():
    assert merge({"method": "fedtemp", "preset": "paper"}).set == {"preset": "paper"}
    grid = read_grid({"data": "imdb-binary", "method": "fedtemp,fednewton", "preset": "paper"})
    cells = grid.drafts({"imdb-binary": True})
    assert {c.config.method: dict(c.config.set) for c in cells if not c.variant.baseline} == {
        "fedtemp": {"preset": "paper"},
        "fednewton": {},
    }
