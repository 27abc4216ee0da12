"""README and docs say what the shipped results say."""

from dataclasses import replace

import pytest

from fedcal.core.errors import InputError
from fedcal.experiments.research.studies import documents, texts
from fedcal.experiments.research.studies.check import unsure
from fedcal.experiments.research.studies.claims import Verdict
from fedcal.experiments.research.studies.documents import filled, pages
from fedcal.experiments.research.studies.expected import ROOT
from fedcal.experiments.research.studies.registry import SEEDS
from fedcal.experiments.research.studies.spec import EVERYWHERE, Experiment


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


def test_each_block_stands_in_a_page():
    text = "".join(page.read_text("utf-8") for page in pages())
    assert [n for n in texts.BLOCKS if f"<!-- generated: {n} -->" not in text] == []


@pytest.mark.parametrize("page", texts.COMPLETE)
def test_a_results_page_lists_every_claim_that_does_not_hold(page):
    text = (ROOT / "docs" / "results" / f"{page}.md").read_text("utf-8")
    verdicts = [v for name in texts._PAGES[page] for v in texts.results(name).verdicts]
    failed = [v.text.rstrip(".") for v in verdicts if v.word == "does not hold"]
    assert [claim for claim in failed if claim.partition(": ")[2] not in text] == []
    assert [claim for claim in failed if claim.partition(": ")[0] not in text] == []


def test_a_block_is_made_anew_and_the_rest_is_left(monkeypatch):
    with pytest.raises(InputError, match="made-up"):
        filled("<!-- generated: made-up -->\n<!-- /generated -->\n")
    with pytest.raises(ValueError, match="no end"):
        filled("<!-- generated: maddock-table2 -->\nand no end\n")
    monkeypatch.setattr(documents, "BLOCKS", {"a": lambda: "new\n", "b": lambda: "| x |"})
    old = "before\n<!-- generated: a -->\nold\n<!-- /generated -->\nbetween\n"
    old += "<!-- generated: b -->\n<!-- /generated -->\n"
    new = "before\n<!-- generated: a -->\n\nnew\n\n<!-- /generated -->\nbetween\n"
    new += "<!-- generated: b -->\n\n| x |\n\n<!-- /generated -->\n"
    assert filled(old) == new
    assert filled(new) == new


def test_a_verdict_that_hangs_on_seeds_says_so_and_where():
    verdict = Verdict("key", "It is so.", "", True, "on 2 of 2", places={"a": True, "b": True})
    some = Experiment(name="n", title="t", about="a", module="none", tables=())
    for expected in ({"a": SEEDS, "b": "holds"}, {EVERYWHERE: SEEDS, "b": "holds"}):
        assert unsure(replace(some, expected={"key": expected}), verdict) == ["a"]
        assert unsure(replace(some, expected={"k*": expected}), verdict) == ["a"]
    assert unsure(some, verdict) == []
    assert texts.filled("doubt", ["a"], 2) == "(depends on seeds on a)"
    assert texts.filled("doubt", ["a", "b"], 2) == "(depends on seeds everywhere)"
    assert texts.filled("doubt", [], 2) == ""
