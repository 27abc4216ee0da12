"""Comparisons that pages quote: their command lines, and what of them ships."""

import json
import shlex

import pytest

from fedcal.experiments import cli, compare
from fedcal.experiments.studies import comparisons, expected
from fedcal.experiments.studies.comparisons import COMPARISONS, command, measure
from fedcal.experiments.studies.registry import EXPERIMENTS


def test_a_comparison_s_command_line_says_its_options_and_what_ships_is_of_it():
    assert not set(COMPARISONS) & set(EXPERIMENTS)
    for name, options in COMPARISONS.items():
        words = shlex.split(command(name))
        assert words[:2] == ["fedcal", "compare"]
        parsed = cli.load_command("compare").make_context("compare", words[2:]).params
        for key, value in options.items():
            values = value if isinstance(value, (list, tuple)) else [value]
            told = str(parsed[key]).split(",")
            assert [type(v)(t) for v, t in zip(values, told, strict=True)] == list(values)
        found = expected.read(name)
        assert (found["schema"], found["name"]) == (3, name)
        lines = found["results"]
        assert {line["failures"] != [] for line in lines} == {False}
        budgets = {line["epsilon"] for line in lines if not line["baseline"]}
        assert budgets == {None if e == float("inf") else e for e in options["epsilon"]}
        labels = {line["method"] for line in lines}
        assert labels == {method.partition("[")[0] for method in options["method"]}


def test_a_line_is_what_compare_gives(monkeypatch):
    small = {"data": "imdb-binary", "method": "fednewton", "epsilon": [1.0], "seeds": 2}
    monkeypatch.setattr(comparisons, "COMPARISONS", {"small": small})
    _, line = measure("small", jobs=1)
    _, want = compare(jobs=1, **small).cells
    assert json.loads(json.dumps(line)) == line
    for metric in ("ece", "classwise_ece", "nll", "accuracy"):
        assert line["after"][metric]["mean"] == pytest.approx(
            want["after"][metric]["mean"], rel=1e-5
        )
    assert line["bytes_up"] == want["bytes_up"]
