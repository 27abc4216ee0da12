"""README and docs say what the shipped results say; command lines say their options."""

import shlex

import pytest

from experiments.studies import expected, texts
from experiments.studies.spec import EXPERIMENTS
from fedcal.cli import main as cli


@pytest.mark.parametrize("page", texts.pages(), ids=lambda page: page.name)
def test_a_page_is_what_its_results_make_of_it(page):
    text = page.read_text("utf-8")
    assert texts.filled(text) == text, "run `python -m experiments.studies.texts`"


@pytest.mark.parametrize("page", [*texts._PAPERS, *texts._OWN])
def test_a_results_page_lists_every_claim_that_does_not_hold(page):
    text = (texts.ROOT / "docs" / "results" / f"{page}.md").read_text("utf-8")
    verdicts = [v for name in texts._PAGES[page] for v in texts.results(name).verdicts]
    failed = [v.text.rstrip(".") for v in verdicts if v.word == "does not hold"]
    for claim in failed:
        assert {part for part in claim.rpartition(": ") if part not in text} == set()


def test_a_comparison_s_command_line_says_its_options_and_what_ships_is_of_it():
    assert not set(texts.COMPARISONS) & set(EXPERIMENTS)
    for name, options in texts.COMPARISONS.items():
        words = shlex.split(texts.command(name).splitlines()[2])[1:]
        assert words[:2] == ["fedcal", "compare"]
        parsed = cli.load_command("compare").make_context("compare", words[2:]).params
        for key, value in options.items():
            values = value if isinstance(value, (list, tuple)) else [value]
            told = str(parsed[key]).split(",")
            assert [type(v)(t) for v, t in zip(values, told, strict=True)] == list(values)
        lines = expected.read(name)["results"]
        assert {line["failures"] != [] for line in lines} == {False}
        budgets = {float(line["epsilon"]) for line in lines if not line["baseline"]}
        assert budgets == {*options["epsilon"]}
        labels = {line["method"] for line in lines}
        assert labels == {method.partition("[")[0] for method in options["method"]}
