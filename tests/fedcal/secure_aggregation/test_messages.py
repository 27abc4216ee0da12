"""Messages of the secure sum: bytes that mean one thing, and damage that is noticed."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.messages import (
    Confirmation,
    Contribution,
    Damaged,
    Enrolment,
    Header,
    Opening,
    header_by,
    sum_digest,
    unpacked,
    vector_digest,
)

KEY, JOB, WORDS = SigningKey(bytes(range(32))), b"j" * 32, np.arange(3, dtype=np.uint64)
HEADER = Header(
    *(JOB, 2, b"q" * 32, 1, b"x" * 32, 3, vector_digest(WORDS), (0, 2)), (b"c" * 32, b"d" * 32)
)
OPENING = Opening.made(KEY, b"s" * 32, b"p" * 48)

# by name: bytes, and whether some bytes are a message that its site has signed
MESSAGES: dict[str, tuple[bytes, Callable[[bytes], bool]]] = {
    "enrolment": (
        Enrolment.made(KEY, JOB, 1, b"x" * 32, b"n" * 16).to_bytes(),
        lambda text: Enrolment.from_bytes(text).by(KEY.public, JOB),
    ),
    "header": (
        HEADER.signed(KEY),
        lambda text: Header.read(text) is not None and header_by(KEY.public, text),
    ),
    "confirmation": (
        Confirmation.made(KEY, 1, b"s" * 32).to_bytes(),
        lambda text: Confirmation.from_bytes(text).by(KEY.public, b"s" * 32),
    ),
    "opening": (OPENING.to_bytes(), lambda text: Opening.from_bytes(text).by(KEY.public)),
}


@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_changed_message_counts_as_signed(name, data):
    """Whatever came: it is damaged, or not signed, and nothing else is raised."""
    text, signed = MESSAGES[name]
    assert signed(text)
    place = data.draw(st.integers(0, len(text)))
    removed = data.draw(st.integers(0, 70))
    changed = text[:place] + data.draw(st.binary(max_size=70)) + text[place + removed :]
    if changed != text:
        try:
            assert not signed(changed)
        except Damaged:
            return


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_damaged(text):
    for read in (Contribution.from_bytes, unpacked, Opening.from_bytes, Header.read):
        try:
            read(text)
        except Damaged:
            continue


def test_a_sum_is_named_by_its_round_and_its_contributions_in_any_order():
    one, two = HEADER.signed(KEY), Header(**{**vars(HEADER), "site": 2}).signed(KEY)
    name = sum_digest(JOB, 1, [one, two])
    assert sum_digest(JOB, 1, [two, one]) == name
    others = [sum_digest(JOB, 1, sent) for sent in ([one], [one, one], [one, two, two])]
    others += [sum_digest(JOB, 2, [one, two]), sum_digest(b"k" * 32, 1, [one, two])]
    assert len({name, *others}) == 6
