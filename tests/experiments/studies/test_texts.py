"""README and docs say what the shipped results say."""

import pytest

from experiments.studies import texts


@pytest.mark.parametrize("page", texts.pages(), ids=lambda page: page.name)
def test_a_page_is_what_its_results_make_of_it(page):
    text = page.read_text("utf-8")
    assert texts.filled(text) == text, "run `python -m experiments.studies.texts`"
