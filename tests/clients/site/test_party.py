"""A site in a secure sum: what it refuses, one thing at a time.

What follows from all of it, whatever goes wrong: tests/end_to_end/test_secure_sum_faults.py.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from refusals import refused
from sum_world import ABOUT, Given, World, digest

from fedcal.clients.site import party
from fedcal.clients.site.party import Party
from fedcal.core.checks import InputError
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.messages import (
    Confirmation,
    Contribution,
    Enrolment,
    Header,
    sum_digest,
)
from fedcal.secure_aggregation.roster import Committee

SITES, LEAST = 5, 3


@pytest.fixture
def world():
    """Five sites, the first four of which are members; three open a sum, of three at least."""
    made = World.of(Committee((0, 1, 2, 3), 3), sites=SITES, least=LEAST)
    yield made
    made.close()


class Round:
    """The first round of a world, answered by all."""

    def __init__(self, world: World, number: int = 1) -> None:
        self.world, self.number = world, number
        (self.job,) = world.jobs
        output = [world.enrol(member, self.job) for member in world.committee.members]
        self.enrolled = [text for text in output if text is not None]
        question = world.question(self.job, number)
        self.sent = [
            Contribution.from_bytes(text)
            for k in range(SITES)
            if (text := world.answer(k, self.job, number, question, self.enrolled)) is not None
        ]
        assert len(self.sent) == SITES

    def party(self, site: int) -> Party:
        return self.world.party(site)

    def given(self, member: int, *contributors: int) -> Given:
        return [(self.sent[k].header, self.sent[k].sealed[member]) for k in contributors]

    def confirm(self, member: int, *contributors: int) -> bytes:
        given = self.given(member, *contributors)
        return self.party(member).confirm(self.job, self.number, LEAST, given)

    def of(self, *contributors: int) -> str:
        headers = [self.sent[k].header for k in contributors]
        return sum_digest(bytes.fromhex(self.job), self.number, headers).hex()

    def refused(self, match: str, member: int, given: Given, number: int | None = None) -> None:
        refused(match, self.party(member).confirm, self.job, number or self.number, LEAST, given)


def test_a_member_signs_one_sum_of_a_round_for_ever(world):
    one = Round(world)
    signed = one.confirm(0, 0, 1, 2, 4)
    assert one.confirm(0, 4, 2, 1, 0) == signed  # a set has no order
    for restart in (False, True):
        if restart:
            world.restart(0)
        one.refused("signed before must be", 0, one.given(0, 0, 1, 2))
    assert one.confirm(0, 0, 1, 2, 4) == signed


def test_a_sum_is_opened_on_enough_signatures_of_it(world):
    one = Round(world)
    all_of, fewer = range(SITES), (0, 1, 2)
    signed = [one.confirm(m, *all_of) for m in (0, 1)]
    other, of = one.confirm(2, *fewer), one.of(*all_of)
    outside = Confirmation.made(world.keys[4], 4, bytes.fromhex(of)).to_bytes()
    forged = Confirmation.made(SigningKey(bytes(32)), 2, bytes.fromhex(of)).to_bytes()
    for more in ([], signed, [other], [outside], [forged], [b""]):
        with pytest.raises(InputError, match=r"signed this sum must be .* got 2"):
            one.party(0).open(one.job, 1, of, [*signed, *more])
    signed += [b"", one.confirm(3, *all_of)]  # a damaged one does not spoil the others
    assert one.party(0).open(one.job, 1, of, signed)
    with pytest.raises(InputError, match="none are saved"):  # it signed for another
        one.party(2).open(one.job, 1, of, signed)


def test_no_signature_is_verified_twice(world, monkeypatch):
    one, verified = Round(world), list[bytes]()
    all_of = range(SITES)
    of, signed = one.of(*all_of), [one.confirm(m, *all_of) for m in (0, 1, 2)]
    verify = Confirmation.by

    def counted(self: Confirmation, key: bytes, about: bytes) -> bool:
        verified.append(key)
        return verify(self, key, about)

    monkeypatch.setattr(Confirmation, "by", counted)
    refused(
        "signed this sum must be .* got 1", one.party(0).open, one.job, 1, of, signed[:1] * 10_000
    )
    assert len(verified) == 1
    assert one.party(0).open(one.job, 1, of, signed)
    monkeypatch.setattr(party, "header_by", lambda *_: verified.append(b"header") or True)
    verified.clear()
    one.refused("two contributions of one site", 3, one.given(3, 0) * 10_000)
    assert not verified


def test_a_sum_of_fewer_than_m_is_not_signed(world):
    one = Round(world)
    one.refused("contributions in a sum must be a whole number >= 3", 0, one.given(0, 0, 4))
    one.refused("two contributions of one site", 0, one.given(0, 0, 4, 4))
    one.refused("contributions in a sum must be .* got 0", 0, [])


def test_a_contribution_counts_that_its_site_signed_for_this_round(world):
    one, two = Round(world), Round(world, 2)
    good = one.given(0, 0, 1, 2)
    header = Header.read(one.sent[4].header)
    forged = header.signed(SigningKey(bytes(32)))
    sealed = one.sent[4].sealed[0]
    one.refused("of site 4 is not signed by it", 0, [*good, (forged, sealed)])
    one.refused("contribution of site .* must be 1, got 2", 0, [*good, *two.given(0, 4)])
    one.refused("damaged, or belongs to another context", 0, [*good[:2], (good[2][0], good[1][1])])
    one.refused("damaged, or belongs to another context", 0, one.given(1, 0, 1, 2))


@pytest.mark.parametrize("lie", ["commitments", "all seeds"])
def test_a_lying_contributor_is_left_out(lie, world):
    one = Round(world)
    world.crooked = frozenset([4])
    made = Contribution.from_bytes(world.crooked_answer(4, one.job, 1, one.enrolled, lie))
    given = [*one.given(0, 0, 1, 2), (made.header, made.sealed[0])]
    one.refused("sealed other seeds than it committed to", 0, given)
    assert one.confirm(0, 0, 1, 2)


def test_only_members_keys_for_this_job_are_sealed_for(world):
    one = Round(world)
    job, question = digest("another job"), digest("question")
    about = replace(ABOUT, job=job)
    messages = [world.enrol(member, job) for member in world.committee.members]
    known = [text for text in messages if text is not None]
    drawn: list[Any] = []

    def draw() -> Any:
        drawn.append(0)
        return np.zeros(3, np.uint64)

    own = world.sent_key(3, SigningKey(bytes(32)), job)
    zero = Enrolment.made(world.keys[3], bytes.fromhex(job), 3, bytes(32), bytes(16)).to_bytes()
    outsiders = world.enrol(4, job)
    unusable = (own, one.enrolled[3], zero, known[0], outsiders, b"")
    for more in ([], *([text] for text in unusable)):
        with pytest.raises(InputError, match=r"have enrolled must be .* got 2"):
            one.party(4).answer(about, 1, question, [*known[:2], *more], draw)
    assert not drawn  # before anything is drawn
    for number, text in enumerate((zero, b"", own), 1):  # one bad member does not stop the others
        messages = [*known[:2], text, known[2]]
        sent, _ = one.party(4).answer(about, number, question, messages, draw)
        assert Header.read(Contribution.from_bytes(sent).header).receivers == (0, 1, 2)
