"""Messages of the secure sum: known answers, bytes that mean one thing, damage that is noticed."""

import hashlib
import math
import os
import random
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from fedcal.clients.site import party
from fedcal.clients.site.party import Party
from fedcal.clients.site.policy import JobFacts
from fedcal.clients.site.store import SiteRecords
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.keys import SigningKey, seal, shared_key, unseal, verified
from fedcal.secure_aggregation.masking import mask, unmask
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
from fedcal.secure_aggregation.roster import Committee, Member, Roster, stream
from fedcal.strategies.server.collector import opened

JOB, QUESTION = bytes(range(32)), bytes(range(32, 64))
ABOUT = JobFacts(
    *(JOB.hex(), "fedbin", "user", "secagg", "zero-out", "none", math.inf, 0.0, 1, "claimed"),
    *("", math.inf),
)

KEY, WORDS = SigningKey(bytes(range(32))), np.arange(3, dtype=np.uint64)
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
    """Each is damaged or not signed, and nothing else is raised."""
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


# --- known answers ---


def test_what_is_sealed_or_signed_for_one_context_is_not_of_another():
    sealed = seal(bytes(32), b"seeds", b"header")
    assert unseal(bytes(32), sealed, b"header") == b"seeds"
    for key, context in ((bytes(32), b"other"), (b"k" * 32, b"header")):
        refused("damaged, or belongs to another context", unseal, key, sealed, context)
    signature = KEY.sign("enrol", b"text")
    assert verified(KEY.public, "enrol", b"text", signature)
    assert not verified(KEY.public, "confirm", b"text", signature)
    assert not verified(KEY.public, "enrol", b"text\0", signature)


ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)


@pytest.mark.parametrize(
    "point", [0, 1, *ORDER_8, *(2**255 - 19 + k for k in (-1, 0, 1)), 2**255, 2**256 - 19]
)
def test_a_key_that_agrees_on_zero_with_everybody_is_refused(point):
    """RFC 7748, section 6.1: points of small order."""
    public = point.to_bytes(32, "little")
    assert not keys.usable_exchange_key(public)
    secret, other = keys.new_exchange_key()
    assert keys.usable_exchange_key(other)
    refused("X25519 key is not a valid key", shared_key, secret, public, bytes(32), 0, 1)


def test_stream_is_chacha20():
    """RFC 8439, appendix A.1, test vector 1: key, nonce and counter zero."""
    start = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    words = stream(bytes(32), 4)
    assert words.tolist() == [int.from_bytes(start[k : k + 8], "little") for k in (0, 8, 16, 24)]


def test_masks_hide_what_is_sent_and_come_off_the_sum():
    """In a simulation: each is of its own run, round and client."""
    contexts = [(k, run, number) for k in (0, 1, 2**63) for run in (1, 2) for number in (1, 2)]
    masks = [mask(*context, 200) for context in contexts]
    near = np.corrcoef(np.array(masks).view(np.int64) / 2.0**63) - np.eye(len(masks))
    assert np.abs(near).max() < 6 / math.sqrt(200)
    words = np.arange(400, dtype=np.uint64).reshape(2, 200)
    total = words.sum(axis=0) + mask(0, 1, 2, 200) + mask(2**63, 1, 2, 200)
    assert (unmask(total, (2**63, 0), 1, 2) == words.sum(axis=0)).all()


PROTOCOL = [
    ((0, 1, 2), 2, 3, "6273ad035c25f22148d74666a852645fe751c81c2353144316fbdc80a2afad2c"),
    ((1, 2, 3, 5), 3, 6, "a2d01b6932bfa66dd17825ddd282a96867417ba854f3b6e3c85c095dbf4f9481"),
    ((0, 1, 2, 3, 4), 4, 6, "2827b9a5165b6c45b8e72187412b2c62f0756ce3e83365eed8b61941e9a56103"),
]
"""Members, threshold, sites, and the digest of all messages, taken when a twin of the protocol in
plain Python had the same bits. Another digest is another protocol."""


@pytest.mark.parametrize(("members", "threshold", "sites", "digest"), PROTOCOL)
def test_the_bits_of_the_protocol_stay(members, threshold, sites, digest, monkeypatch):
    """Fixed keys, seeds and nonces; the last member has not enrolled where it may be absent."""
    rng, all_bytes = random.Random(sites), hashlib.sha256()

    def noted(text: bytes) -> bytes:
        all_bytes.update(text)
        return text

    def exchange_key() -> tuple[bytes, bytes]:
        secret = X25519PrivateKey.from_private_bytes(rng.randbytes(32))
        return secret.private_bytes_raw(), secret.public_key().public_bytes_raw()

    monkeypatch.setattr(os, "urandom", rng.randbytes)
    monkeypatch.setattr(party, "new_exchange_key", exchange_key)
    signing = [SigningKey(rng.randbytes(32)) for _ in range(sites)]
    committee = Committee(members, threshold)
    listed = tuple(Member(f"site {k}", key.public) for k, key in enumerate(signing))
    roster, there = Roster("plain", listed, committee), list(members)[:threshold]
    vectors = rng.getrandbits(64 * 11 * sites).to_bytes(88 * sites, "little")
    words = np.frombuffer(vectors, "<u8").reshape(sites, 11)
    with ExitStack() as stack:
        parties = [Party(key, roster, stack.enter_context(SiteRecords(None))) for key in signing]
        enrolled = [noted(parties[k].enrol(ABOUT)) for k in range(sites)]
        known = [enrolled[k] for k in there]
        sent = [
            noted(one.answer(ABOUT, 1, QUESTION.hex(), known, words[k].copy)[0])
            for k, one in enumerate(parties)
        ]
        messages = [Contribution.from_bytes(text) for text in sent]
        of = sum_digest(JOB, 1, [m.header for m in messages]).hex()
        given = {member: [(m.header, m.sealed[member]) for m in messages] for member in there}
        confirmed = [noted(parties[m].confirm(JOB.hex(), 1, sites, given[m])) for m in there]
        openings = {}
        for member in there:
            text = noted(parties[member].open(JOB.hex(), 1, of, confirmed))
            rows = np.frombuffer(Opening.from_bytes(text).pieces, "<u8").reshape(-1, 11)
            openings[member] = dict(zip(committee.held_by(member), rows, strict=True))
    hidden_sum = np.sum([m.words for m in messages], axis=0, dtype=np.uint64)
    total = opened(hidden_sum, openings, len(committee.pieces))
    assert (total == words.sum(axis=0, dtype=np.uint64)).all()
    assert all_bytes.hexdigest() == digest
