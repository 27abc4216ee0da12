"""Nothing that a stranger writes controls a terminal or adds a line to a log."""

import logging
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from fedcal.core.naming import Printable, printable

HOSTILE = "a\x1b[2J\x9b31mb\r\n2026-01-01 all is well\x07\u202e\u2066\u2028\x7f\udce9"
SHOWN = "a\\x1b[2J\\x9b31mb\\r\\n2026-01-01 all is well\\x07\\u202e\\u2066\\u2028\\x7f\\udce9"


def test_what_a_terminal_obeys_is_an_escape():
    assert printable(HOSTILE) == SHOWN
    assert printable(HOSTILE, lines=True) == SHOWN.replace("\\n", "\n")
    for text in ("plain [red] \\x1b", "Zürich, 東京, مى‌خواهم", "1 234 567\xa0→ ✓ †", ""):
        assert printable(text) == text


@settings(max_examples=40)
@given(st.text())
def test_no_control_character_is_left(text):
    left = printable(text)
    assert not {unicodedata.category(c) for c in left} & {"Cc", "Cs", "Co", "Zl", "Zp"}
    assert {c for c in left if unicodedata.category(c) == "Cf"} <= {"\u200c", "\u200d"}
    assert printable(left) == left
    left.encode("utf-8")


def test_a_record_is_one_line_of_bounded_length(caplog):
    log = logging.getLogger("tests.printable")
    log.addFilter(Printable())
    log.warning("asked: %s", HOSTILE)
    log.warning("asked: %s", "x" * (1 << 20))
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception("failed")
    assert caplog.messages[0] == f"asked: {SHOWN}"
    assert len(caplog.messages[1]) == 2000
    assert "\x1b" not in caplog.text
    assert "\nValueError: a\\x1b[2J" in caplog.text
