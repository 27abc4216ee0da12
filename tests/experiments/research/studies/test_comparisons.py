"""Comparisons that pages quote: their command lines, and what of them ships."""

import shlex

from fedcal.experiments.cli import main as cli
from fedcal.experiments.research.studies import expected
from fedcal.experiments.research.studies.comparisons import COMPARISONS, command
from fedcal.experiments.research.studies.registry import EXPERIMENTS


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
        budgets = {float(line["epsilon"]) for line in lines if not line["baseline"]}
        assert budgets == {*options["epsilon"]}
        labels = {line["method"] for line in lines}
        assert labels == {method.partition("[")[0] for method in options["method"]}
