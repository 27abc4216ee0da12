"""The server's side of a secure sum: one site's damaged message does not spoil the round."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refusals import refused
from sum_world import World

from fedcal.core.checks import RoundFailed
from fedcal.secure_aggregation.messages import Contribution, Enrolment, Header
from fedcal.secure_aggregation.roster import Committee
from fedcal.strategies.server.collector import Collector, SecureRounds, enrolled

SITES = 5
ALICES = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")


@pytest.fixture
def world():
    """Five sites, of which the first three are members and two open a sum."""
    made = World.of(Committee((0, 1, 2), 2), sites=SITES, least=3)
    yield made
    made.close()


def damaged(text: bytes, place: int) -> bytes:
    changed = bytearray(text)
    changed[place] ^= 1
    return bytes(changed)


def answers(
    world: World, members: Sequence[int] = (0, 1, 2), sites: Sequence[int] = range(SITES)
) -> dict[int, bytes]:
    (job,) = world.jobs
    replies = {k: text for k in members if (text := world.enrol(k, job)) is not None}
    known = list(enrolled(world.roster, job, replies).values())
    sent = {k: world.answer(k, job, 1, world.question(job, 1), known) for k in sites}
    return {k: text for k, text in sent.items() if text is not None}


def collector(world: World) -> Collector:
    (job,) = world.jobs
    bound = SimpleNamespace(length=world.length)
    request: Any = SimpleNamespace(round=1, digest=world.question(job, 1), bound=bound)
    return Collector(world.roster, job, request)


def gathered(world: World, sent: dict[int, bytes]) -> Collector:
    to = collector(world)
    for site, text in sent.items():
        assert to.add(site, text)
    to.settle()
    return to


def everybody(world: World) -> Any:
    return sum(clear.words for clear in world.clear.values())


def openings(world: World, to: Collector, members: tuple[int, ...] = (0, 1, 2)) -> dict[int, bytes]:
    (job,) = world.jobs
    asked = to.to_confirm()
    replies = {m: world.confirm(m, job, 1, asked[m]) for m in members}
    signed = to.confirmed({m: text for m, text in replies.items() if text is not None})
    opened = {m: world.open(m, job, 1, to.digest, signed) for m in to.openers}
    return {m: text for m, text in opened.items() if text is not None}


def test_what_cannot_be_used_is_absent(world):
    to, sent = collector(world), answers(world)
    assert not to.add(3, damaged(sent[3], 5))  # its header
    assert not to.add(3, damaged(sent[3], len(sent[3]) // 2))
    assert not to.add(3, sent[4])
    assert not to.add(3, b"")
    made = Contribution.from_bytes(sent[3])  # a key of small order: no member would confirm the sum
    header = replace(Header.read(made.header), exchange=bytes(32)).signed(world.keys[3])
    assert not to.add(3, replace(made, header=header).to_bytes())
    for lie in ("commitments", "receivers", "number"):
        world.crooked = frozenset([3])
        enrolments = [text for k in range(3) if (text := world.enrol(k, world.jobs[0])) is not None]
        assert not to.add(3, world.crooked_answer(3, world.jobs[0], 1, enrolments, lie))
    for site in (0, 1, 2, 4, 4):
        assert to.add(site, sent[site])
    to.settle()
    total = to.total(openings(world, to))
    want = sum(c.words for c in world.clear.values() if c.site in (0, 1, 2, 4))
    assert np.array_equal(total, want)


@pytest.mark.parametrize("how", ["small order", "bad signature", "another job", "damaged", "away"])
def test_one_bad_member_is_missing_and_stops_nobody(how, world):
    """At the server and at contributors alike; the other two members open the sum."""
    (job,), key = world.jobs, world.keys[0]
    of, zero = bytes.fromhex(job), bytes(32)
    good = world.enrol(0, job)
    bad = {
        "small order": Enrolment.made(key, of, 0, zero, bytes(16)).to_bytes(),
        "bad signature": damaged(good, -1),
        "another job": Enrolment.made(key, zero, 0, ALICES, bytes(16)).to_bytes(),
        "damaged": good[:-1],
    }
    replies = {k: text for k in (1, 2) if (text := world.enrol(k, job)) is not None}
    replies |= {0: bad[how]} if how in bad else {}
    assert enrolled(world.roster, job, replies).keys() == {1, 2}
    known, question = list(replies.values()), world.question(job, 1)
    sent = {k: world.answer(k, job, 1, question, known) for k in range(SITES)}
    to = gathered(world, {k: text for k, text in sent.items() if text is not None})
    assert np.array_equal(to.total(openings(world, to, (1, 2))), everybody(world))


def test_a_damaged_opening_is_no_opening(world):
    """Of its digest, of a mask or of its signature; any two others do."""
    to = gathered(world, answers(world))
    replies = openings(world, to)
    for place in (4, 40, -1):
        spoilt = {**replies, 1: damaged(replies[1], place)}
        assert np.array_equal(to.total(spoilt), everybody(world))
        del spoilt[2]
        refused("too few members", to.total, spoilt, error=RoundFailed)


@pytest.mark.parametrize("of_site_1", [(0, 1), (0, 1, 2)])
def test_without_enough_members_in_common_the_sum_is_that_of_the_most(of_site_1, world):
    """Not those with the same members: sites 2 to 4 may have two in common with site 1."""
    sent = answers(world, (0, 1), (0,)) | answers(world, of_site_1, (1,))
    to = gathered(world, sent | answers(world, (1, 2), (2, 3, 4)))
    assert sorted(to.contributions) == ([1] if 2 in of_site_1 else []) + [2, 3, 4]


def test_the_sites_of_a_sum_are_settled_once_members_are_asked_to_confirm_it(world, tmp_path):
    """A round that too few answered is open to others when the run goes on."""
    rounds = SecureRounds(world.roster, world.jobs[0], "run", tmp_path)
    sent, few = answers(world), collector(world)
    few.add(0, sent[0])
    assert rounds.settle(few, 1) == 1
    all_there = collector(world)
    for site, text in sent.items():
        all_there.add(site, text)
    assert rounds.settle(all_there, 1) == SITES
    with pytest.raises(RoundFailed, match="0 members of the committee confirmed"):
        rounds.total(all_there, 1, range(SITES), lambda kind, content, number: {})
    refused("not all sites in it are online", rounds.settle, few, 1, error=RoundFailed)
    # of another round, and of another job in the same folder, nobody was asked before
    another = SecureRounds(world.roster, world.question("another job", 1), "run", tmp_path)
    for new, number in ((rounds, 2), (another, 1)):
        few = collector(world)
        few.add(0, sent[0])
        assert new.settle(few, number) == 1
