"""README and docs say what the shipped results say."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.reproduce import documents
from experiments.reproduce.documents import filled, pages
from fedcal.errors import InputError


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.name)
def test_a_page_is_what_its_results_make_of_it(page: Path) -> None:
    text = page.read_text("utf-8")
    assert filled(text) == text, "run `python -m experiments.reproduce.documents`"


def test_a_block_is_made_anew_and_the_rest_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BLOCKS", {"a": lambda: "new\n", "b": lambda: "| x |"})
    old = "before\n<!-- generated: a -->\nold\n<!-- /generated -->\nbetween\n"
    old += "<!-- generated: b -->\n<!-- /generated -->\n"
    new = "before\n<!-- generated: a -->\n\nnew\n\n<!-- /generated -->\nbetween\n"
    new += "<!-- generated: b -->\n\n| x |\n\n<!-- /generated -->\n"
    assert filled(old) == new
    assert filled(new) == new


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("<!-- generated: made-up -->\n<!-- /generated -->\n", InputError, "made-up"),
        ("<!-- generated: maddock-table2 -->\nand no end\n", ValueError, "no end"),
    ],
)
def test_a_block_that_nobody_makes_or_that_does_not_end(
    text: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        filled(text)
