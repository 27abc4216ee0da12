"""README and docs say what the shipped results say."""

import pytest

from fedcal.experiments.research.studies import texts
from fedcal.experiments.research.studies.documents import filled, pages
from fedcal.experiments.research.studies.expected import ROOT


@pytest.mark.parametrize(
    "page",
    [
        # forty federations of all rows are evaluated for this one
        pytest.param(p, marks=[pytest.mark.slow] if p.name == "subgroups.md" else [], id=p.name)
        for p in pages()
    ],
)
def test_a_page_is_what_its_results_make_of_it(page):
    text = page.read_text("utf-8")
    assert filled(text) == text, "run `python -m fedcal.experiments.research.studies.documents`"


@pytest.mark.parametrize("page", texts.COMPLETE)
def test_a_results_page_lists_every_claim_that_does_not_hold(page):
    text = (ROOT / "docs" / "results" / f"{page}.md").read_text("utf-8")
    verdicts = [v for name in texts._PAGES[page] for v in texts.results(name).verdicts]
    failed = [v.text.rstrip(".") for v in verdicts if v.word == "does not hold"]
    assert [claim for claim in failed if claim.partition(": ")[2] not in text] == []
    assert [claim for claim in failed if claim.partition(": ")[0] not in text] == []
