"""Secure sums with faults at random steps: of the network and the sites, or of a hostile server."""

import random
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from sum_world import MOST_ROUNDS, World, signed_part

from fedcal.clients.site import party
from fedcal.core.checks import RoundFailed
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.messages import Confirmation, Contribution, Opening, sum_digest
from fedcal.secure_aggregation.roster import stream_sum
from fedcal.strategies.server.collector import Collector, enrolled

KINDS = ("enrol", "answer", "header", "sealed", "confirm", "open")
LIES = ("", "", "", "", "seeds", "commitments", "receivers", "number")


def run(seed: int) -> tuple[list[str], int]:
    """One federation with its jobs and rounds: (what should not be, sums released)."""
    world = World.at_random(seed)
    with (
        closing(world),
        patch.object(keys, "verified", cache(keys.verified)),  # the same question often
        patch.object(party, "shared_key", cache(party.shared_key)),
    ):
        released = _faulty(world) if seed % 2 else _hostile(world)
        return world.violations(), released


def flipped(rng: random.Random, text: bytes) -> bytes:
    """The same with a few bits changed, or cut off."""
    if not text or rng.random() < 0.2:
        return text[: rng.randint(0, len(text))] + rng.randbytes(rng.randint(0, 3))
    changed = bytearray(text)
    for _ in range(rng.choice((1, 1, 3))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _shuffled(rng: random.Random, items: Iterable[Any]) -> list[Any]:
    found = list(items)
    rng.shuffle(found)
    return found


class _Network:
    """Delivers messages damaged, or older ones of their kind in their place."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._seen = rng, dict[str, list[bytes]]()
        few, bad = rng.choice((0.0, 0.01)), rng.choice(("", *KINDS, "open"))
        self._rates = {kind: 0.2 if kind == bad else few for kind in KINDS}
        self._absent = rng.choice((0.0, 0.05, 0.2))

    def __call__(self, kind: str, text: bytes) -> bytes:
        seen = self._seen.setdefault(kind, [])
        seen.append(text)
        if self._rng.random() < self._rates[kind]:
            return flipped(self._rng, text)
        if self._rng.random() < self._rates[kind] / 2:
            return self._rng.choice(seen)
        return text

    def there(self, sites: Iterable[int]) -> list[int]:
        """Those whose messages arrive, in any order, some twice."""
        found = [site for site in sites if self._rng.random() >= self._absent]
        return _shuffled(self._rng, found + [s for s in found if self._rng.random() < 0.1])


def _faulty(world: World) -> int:
    net, released = _Network(world.rng), 0
    for job in world.jobs:
        enrolments_of = {}
        for site in net.there(range(len(world.keys))):
            if (text := world.enrol(site, job)) is not None:
                enrolments_of[site] = net("enrol", text)
        known = {
            site: text
            for site, text in enrolled(world.roster, job, enrolments_of).items()
            if site in world.committee.members
        }
        for number in range(1, world.rounds + 1):
            for _ in range(2):  # a round that fails is asked again
                try:
                    _round(world, net, job, number, list(known.values()))
                except RoundFailed:
                    continue
                released += 1
                break
    return released


def _round(world: World, net: _Network, job: str, number: int, known: list[bytes]) -> None:
    rng, question = world.rng, world.question(job, number)
    bound = SimpleNamespace(length=world.length)
    request: Any = SimpleNamespace(round=number, digest=question, bound=bound)
    collector = Collector(world.roster, job, request)
    for site in net.there(range(len(world.keys))):
        enrolments = [net("enrol", text) for text in known]
        text: bytes | None
        if site in world.crooked:
            text = world.crooked_answer(site, job, number, known, rng.choice(LIES))
        else:
            text = world.answer(site, job, number, question, enrolments)
        if text is not None:
            collector.add(site, net("answer", text))
    collector.settle()
    if len(collector.contributions) < (1 if rng.random() < 0.1 else world.least):
        raise RoundFailed("too few answers")
    _confirmed(world, net, job, number, collector)
    replies = {}
    for member in net.there(collector.openers):
        reply = _opened(world, net, job, number, collector, member)
        if reply is not None:
            replies[member] = net("open", reply)
    total = collector.total(replies)
    want = np.zeros(world.length, np.uint64)
    for sent in collector.contributions.values():
        want += world.clear[signed_part(sent.header)].words
    if not np.array_equal(total, want):
        world.wrong.append("another sum than that of the contributions in it was released")


def _confirmed(world: World, net: _Network, job: str, number: int, to: Collector) -> None:
    replies = {}
    asked = to.to_confirm()
    for member in net.there(m for m in asked if m in world.committee.members):
        given = [(net("header", h), net("sealed", s)) for h, s in asked[member]]
        reply: bytes | None
        if member in world.crooked:
            reply = _signed(world, member, to.digest)
        else:
            reply = world.confirm(member, job, number, given)
        if reply is not None:
            replies[member] = net("confirm", reply)
    to.confirmed(replies)


def _opened(
    world: World, net: _Network, job: str, number: int, to: Collector, member: int
) -> bytes | None:
    if member not in world.crooked:
        signed = [net("confirm", to.confirmed({})[k]) for k in range(len(to.openers))]
        return world.open(member, job, number, to.digest, signed)
    inside = [world.clear[signed_part(s.header)] for s in to.contributions.values()]
    held = world.committee.held_by(member)
    sums = [stream_sum([clear.seeds[k] for clear in inside], world.length) for k in held]
    of = bytes.fromhex(to.digest)
    return Opening.made(world.keys[member], of, np.array(sums).tobytes()).to_bytes()


def _signed(world: World, member: int, of: str) -> bytes:
    key = world.keys[member] if member in world.crooked else world.servers_key
    return Confirmation.made(key, member, bytes.fromhex(of)).to_bytes()


def _hostile(world: World) -> int:
    """It asks whatever may help it; what it has learnt is looked at afterwards."""
    rng, members = world.rng, world.committee.members
    pool: dict[tuple[str, int], list[Contribution]] = {}
    enrolments_of: dict[str, dict[int, bytes]] = {}
    false: dict[str, dict[int, bytes]] = {}
    for job in world.jobs:
        reply = {member: world.enrol(member, job) for member in members}
        enrolments_of[job] = {member: text for member, text in reply.items() if text is not None}
        false[job] = {member: world.sent_key(member, world.servers_key, job) for member in members}
    rounds = [(job, number) for job in world.jobs for number in range(1, world.rounds + 1)]
    for job, number in rounds:
        sent = []
        for site in world.honest:
            if rng.random() < 0.95:
                sent += _asked(world, site, job, number, enrolments_of, false)
        known = list(enrolments_of[job].values())
        for site in world.crooked:
            for _ in range(rng.randint(1, 2)):
                sent.append(world.crooked_answer(site, job, number, known, rng.choice(LIES)))
        if rng.random() < 0.3:  # one in the name of an honest site
            sent.append(world.crooked_answer(rng.choice(world.honest), job, number, known))
        pool[job, number] = [Contribution.from_bytes(text) for text in dict.fromkeys(sent)]
    for job, number in _shuffled(rng, rounds):
        _seeks(world, job, number, pool)
    return len({one.of for one in world.openings})


def _asked(
    world: World,
    site: int,
    job: str,
    number: int,
    enrolments_of: dict[str, dict[int, bytes]],
    false: dict[str, dict[int, bytes]],
) -> list[bytes]:
    """Return the answers of an honest site to one or two questions."""
    rng, found = world.rng, []
    for _ in range(rng.choice((1, 1, 2))):
        known = dict(enrolments_of[job])
        fault = rng.choice(("", "", "", "", "few", "false", "other"))
        question = world.question(job, number)
        if fault == "few":
            known = {m: known[m] for m in rng.sample(sorted(known), rng.randint(0, len(known)))}
        elif fault == "false":
            for member in rng.sample(sorted(known), rng.randint(1, len(known))):
                known[member] = false[job][member]
        elif fault == "other":
            known = dict(enrolments_of[world.jobs[-1]])
        texts = _shuffled(rng, known.values())
        if rng.random() < 0.1:
            question = world.question(job, number + 1)
        if (text := world.answer(site, job, number, question, texts)) is not None:
            found.append(text)
    return found


def _seeks(
    world: World, job: str, number: int, pool: dict[tuple[str, int], list[Contribution]]
) -> None:
    """Have sums over several sets confirmed and opened, by all honest members."""
    rng, here = world.rng, pool[job, number]
    if not here:
        return
    everything = [one for sent in pool.values() for one in sent]
    sets = [_one_each(rng, here) for _ in range(2)]
    sets.append([one for one in sets[0] if one is not sets[0][-1]])  # but for one: a split view
    sets.append(rng.sample(here, rng.randint(1, len(here))))
    sets.append(rng.sample(here, min(len(here), world.least - 1)))
    sets.append(sets[0][: world.least - 1] + sets[0][:1])  # one counts twice
    sets.append([*sets[0][1:], rng.choice(everything)])
    honest = [m for m in world.committee.members if m not in world.crooked]
    often = rng.choice((0.5, 0.8, 0.95))
    favourite = rng.choice(sets[:3])
    signed: dict[str, list[bytes]] = {}
    for member in _shuffled(rng, honest * 2):
        chosen = favourite if rng.random() < often else rng.choice(sets)
        given = [(one.header, one.sealed.get(member, b"")) for one in chosen]
        if given and rng.random() < 0.1:  # of another contribution, or damaged
            k, stranger = rng.randrange(len(given)), rng.choice(everything)
            header, sealed = given[k]
            given[k] = rng.choice([(stranger.header, sealed), (header, flipped(rng, sealed))])
        if not given:
            continue
        of = sum_digest(bytes.fromhex(job), number, [header for header, _ in given]).hex()
        signed.setdefault(of, [])
        if (reply := world.confirm(member, job, number, given)) is not None:
            signed[of].append(reply)
    for of in signed:
        for member in honest:
            confirmations = _words_for(world, of, signed)
            at = number if rng.random() < 0.9 else rng.randint(1, MOST_ROUNDS)
            named = of if rng.random() < 0.95 else rng.choice((of.upper(), of[:-1], "", "of"))
            of_job = rng.choice((job, job, job, world.jobs[0]))
            world.open(member, of_job, at, named, confirmations)


def _one_each(rng: random.Random, sent: Sequence[Contribution]) -> list[Contribution]:
    """A contribution of each site; the last one is an honest site's where that can be."""
    found = {one.header[68:72]: one for one in _shuffled(rng, sent)}
    return _shuffled(rng, found.values())


def _words_for(world: World, of: str, signed: dict[str, list[bytes]]) -> list[bytes]:
    """Confirmations of a sum, as many as the server has or can make up."""
    rng = world.rng
    found = list(signed[of])
    crooked = world.crooked & set(world.committee.members)
    found += [_signed(world, member, of) for member in crooked]
    if rng.random() < 0.5:
        found += [_signed(world, member, of) for member in world.committee.members]  # made up
    if rng.random() < 0.5:
        found += [text for texts in signed.values() for text in texts] + found[:2]  # of other sums
    return _shuffled(rng, found)
