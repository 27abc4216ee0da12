"""README and docs say what the shipped results say."""

import pytest

from experiments.studies import texts


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
