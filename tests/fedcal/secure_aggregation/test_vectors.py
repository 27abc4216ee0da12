"""Known answers: the RFCs' own vectors, and the whole protocol bit by bit in plain Python."""

import math
import os
import random
from contextlib import ExitStack

import numpy as np
import plain_protocol as plain
import pytest
from refusals import refused

from fedcal.clients.site import party
from fedcal.clients.site.party import Party
from fedcal.clients.site.policy import JobFacts
from fedcal.clients.site.store import SiteRecords
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.keys import SigningKey, seal, shared_key, unseal, verified
from fedcal.secure_aggregation.messages import Contribution
from fedcal.secure_aggregation.roster import Committee, Member, Roster, opened


def test_sealing_is_the_aead_of_rfc_8439(monkeypatch):
    """Section 2.8.2."""
    key = bytes(range(0x80, 0xA0))
    nonce = bytes.fromhex("070000004041424344454647")
    about = bytes.fromhex("50515253c0c1c2c3c4c5c6c7")
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the "
        b"future, sunscreen would be it."
    )
    sealed = nonce + bytes.fromhex(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6"
        "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"
        "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
        "3ff4def08e4b7a9de576d26586cec64b6116"
        "1ae10b594f09e26a7e902ecbd0600691"
    )
    assert unseal(key, sealed, about) == text
    assert nonce + plain.aead(key, nonce, text, about) == sealed
    monkeypatch.setattr(os, "urandom", lambda size: nonce[:size])
    assert seal(key, text, about) == sealed
    for other in (about + b"\0", b""):
        refused("damaged, or belongs to another context", unseal, key, sealed, other)


# RFC 7748, section 6.1
ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
ALICES = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
BOBS = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
AGREED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")

# RFC 5869, appendix A, case 1: secret, salt, info, and what comes out
DERIVED_FROM = (b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)))
DERIVED = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"


def test_keys_between_sites_are_those_of_rfc_7748_and_rfc_5869():
    assert plain.hkdf(*DERIVED_FROM, len(DERIVED) // 2).hex() == DERIVED
    for secret, public, other in ((ALICE, ALICES, BOBS), (BOB, BOBS, ALICES)):
        assert plain.x25519(secret) == public
        assert plain.x25519(secret, other) == AGREED
        for sender, receiver in ((3, 5), (5, 3)):
            info = b"fedcal/secure-sum/1/seal-2\0" + bytes([sender, 0, 0, 0, receiver, 0, 0, 0])
            info += min(ALICES, BOBS) + max(ALICES, BOBS)
            made = shared_key(secret, other, b"j" * 32, sender, receiver)
            assert made == plain.hkdf(AGREED, b"j" * 32, info, 32)


ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)


@pytest.mark.parametrize(
    "point", [0, 1, *ORDER_8, *(plain.PRIME + k for k in (-1, 0, 1)), 2**255, 2**256 - 19]
)
def test_a_key_that_agrees_on_zero_with_everybody_is_refused(point):
    """RFC 7748, section 6.1: points of small order."""
    public = point.to_bytes(32, "little")
    assert not keys.usable_exchange_key(public)
    assert keys.usable_exchange_key(ALICES)
    refused("X25519 key is not a valid key", shared_key, ALICE, public, bytes(32), 0, 1)


# RFC 8032, section 7.1, test 2
SECRET = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
PUBLIC = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
SIGNATURE = (
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0"
    "f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_signatures_are_those_of_rfc_8032(monkeypatch):
    secret, text = bytes.fromhex(SECRET), b"\x72"
    key = SigningKey(secret)
    assert key.public.hex() == PUBLIC == plain.ed25519_public(secret).hex()
    assert plain.ed25519_sign(secret, text).hex() == SIGNATURE
    own = plain.ed25519_sign(secret, b"fedcal/secure-sum/1/enrol\0" + text)
    assert key.sign("enrol", text) == own
    assert verified(key.public, "enrol", text, own)
    assert not verified(key.public, "confirm", text, own)
    assert not verified(key.public, "enrol", text + b"\0", own)
    monkeypatch.setattr(keys, "domain", lambda purpose: b"")
    assert key.sign("enrol", text).hex() == SIGNATURE


JOB, QUESTION = bytes(range(32)), bytes(range(32, 64))
ABOUT = JobFacts(
    *(JOB.hex(), "fedbin", "user", "secagg", "zero-out", "none", math.inf, 0.0, 1, "claimed"),
    *("", math.inf),
)


@pytest.mark.parametrize(
    ("members", "threshold", "sites"),
    [((0, 1, 2), 2, 3), ((0, 1, 2), 3, 4), ((1, 2, 3, 5), 3, 6), ((0, 1, 2, 3, 4), 4, 6)],
)
def test_the_protocol_has_the_bits_of_a_plain_loop(members, threshold, sites, monkeypatch):
    """Fixed keys, seeds and nonces; the last member has not enrolled where it may be absent."""
    rng = random.Random(sites)
    told: list[bytes] = []

    def chosen(size: int) -> bytes:
        told.append(rng.randbytes(size))
        return told[-1]

    exchange = [rng.randbytes(32) for _ in range(sites)]
    waiting = iter([(secret, plain.x25519(secret)) for secret in exchange])
    monkeypatch.setattr(os, "urandom", chosen)
    monkeypatch.setattr(party, "new_exchange_key", lambda: next(waiting))
    secrets = [rng.randbytes(32) for _ in range(sites)]
    signing = [SigningKey(secret) for secret in secrets]
    committee = Committee(members, threshold)
    listed = tuple(Member(f"site {k}", key.public) for k, key in enumerate(signing))
    roster = Roster("plain", listed, committee)
    pieces = plain.pieces_of(list(members), threshold)
    assert list(committee.pieces) == pieces
    there = list(members)[: committee.threshold]
    vectors = [[rng.getrandbits(64) for _ in range(11)] for _ in range(sites)]

    with ExitStack() as stack:
        parties = [Party(key, roster, stack.enter_context(SiteRecords(None))) for key in signing]
        enrolled = []
        for k, one in enumerate(parties):
            text = one.enrol(ABOUT)
            assert text == plain.enrolment(secrets[k], exchange[k], JOB, k, told[-1])
            enrolled += [text] if k in there else []
        sent, seeds = [], []
        for k, one in enumerate(parties):
            told.clear()
            words = np.array(vectors[k], np.uint64)
            text, _ = one.answer(ABOUT, 1, QUESTION.hex(), enrolled, words.copy)
            drawn, *nonces = told
            seeds.append([drawn[32 * p : 32 * p + 32] for p in range(len(pieces))])
            keys_of = {member: plain.x25519(exchange[member]) for member in there}
            assert text == plain.contribution(
                *(secrets[k], exchange[k], JOB, 1, QUESTION, k, keys_of, pieces, vectors[k]),
                *(seeds[k], dict(zip(there, nonces, strict=True))),
            )
            sent.append(text)
        messages = [Contribution.from_bytes(text) for text in sent]
        of = plain.sum_digest(JOB, 1, sent)
        confirmed = []
        for member in there:
            given = [(m.header, m.sealed[member]) for m in messages]
            confirmed.append(parties[member].confirm(JOB.hex(), 1, sites, given))
            assert confirmed[-1] == plain.confirmation(secrets[member], member, of)
        openings = {}
        for member in there:
            text = parties[member].open(JOB.hex(), 1, of.hex(), confirmed)
            assert text == plain.opening(secrets[member], member, of, pieces, seeds, 11)
            rows = np.frombuffer(text[40 : -4 - 64], "<u8").reshape(-1, 11)
            openings[member] = dict(zip(committee.held_by(member), rows, strict=True))
    hidden_sum = np.sum([m.words for m in messages], axis=0, dtype=np.uint64)
    total = opened(hidden_sum, openings, len(pieces))
    assert total.tolist() == [sum(column) % 2**64 for column in zip(*vectors, strict=True)]
