"""Secure sums under a hostile server, which asks honest sites at random whatever may help it."""

import random
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import cache
from typing import Any
from unittest.mock import patch

from sum_world import MOST_ROUNDS, World

from fedcal.clients.site import party
from fedcal.secure_aggregation import keys
from fedcal.secure_aggregation.messages import Confirmation, Contribution, sum_digest

LIES = ("", "", "", "", "seeds", "commitments", "receivers", "number")


def run(seed: int) -> tuple[list[str], int]:
    """One federation with its jobs and rounds: (what should not be, sums opened)."""
    world = World.at_random(seed)
    with (
        closing(world),
        patch.object(keys, "verified", cache(keys.verified)),  # the same question often
        patch.object(party, "shared_key", cache(party.shared_key)),
    ):
        opened = _hostile(world)
        return world.violations(), opened


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
