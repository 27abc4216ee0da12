"""Nothing that a stranger writes controls a terminal or adds a line to a log."""

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from fedcal.core.naming import printable


@settings(max_examples=40)
@given(st.text())
def test_no_control_character_is_left(text):
    left = printable(text)
    assert not {unicodedata.category(c) for c in left} & {"Cc", "Cs", "Co", "Zl", "Zp"}
    assert {c for c in left if unicodedata.category(c) == "Cf"} <= {"\u200c", "\u200d"}
    assert printable(left) == left
    left.encode("utf-8")
