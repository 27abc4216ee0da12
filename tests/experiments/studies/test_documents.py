"""README and docs say what the shipped results say."""

from dataclasses import replace

import pytest

from fedcal.errors import InputError
from fedcal.evaluation.intervals import Estimate
from fedcal.experiments.studies import documents, subgroups, texts
from fedcal.experiments.studies.check import unsure
from fedcal.experiments.studies.claims import Verdict
from fedcal.experiments.studies.documents import filled, pages
from fedcal.experiments.studies.registry import SEEDS
from fedcal.experiments.studies.spec import EVERYWHERE, Experiment


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
    assert filled(text) == text, "run `python -m fedcal.experiments.studies.documents`"


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


def test_numbers_of_several_commits_are_told_apart(monkeypatch):
    commits = {"x": "abc", "y": "abc", "z": "def"}
    monkeypatch.setattr(texts, "read", lambda name: {"commit": commits[name]})
    assert texts.filled("made_by", ("x", "y")).endswith("made by commit abc.")
    assert texts.filled("made_by", ("x", "y", "z")).endswith(": `x`, `y` by abc; `z` by def.")


def estimate(value: float, low: float, high: float, drowned: bool = False) -> Estimate:
    return Estimate(value, low, high, 0.01, 0.01, 0.0, drowned)


def test_a_cell_says_what_noise_has_left():
    found = estimate(0.155, 0.068, 0.242)
    assert subgroups.cell(found, "+") == "**+15.5** (+6.8 to +24.2)"
    assert subgroups.cell(found) == "15.5 (6.8 to 24.2)"
    assert subgroups.cell(estimate(-0.2, -0.318, -0.01, True), "+") == "drowned (-31.8 to -1.0)"
    assert subgroups.cell(None) == "too few rows"
    assert subgroups.cell(subgroups.turned(found)) == "84.5 (75.8 to 93.2)"


@pytest.mark.slow
def test_figures_show_every_group_light_and_dark(tmp_path):
    subgroups.main([str(tmp_path)])
    assert len(list(tmp_path.glob("*-dark.png"))) == len(subgroups.FIGURES) == 2
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
    for shown, groups in zip(subgroups.FIGURES.values(), (16, 10), strict=True):
        assert {len(lines) for lines in shown().series.values()} == {groups}
