"""Knowledge of a lying server that shows committee members different sets of contributors.

All there is to learn is linear. The server sees y_i = x_i - sum over pieces T of p_{i,T}, modulo
2**64, and of each member that holds piece T the sum of p_{i,T} over the set U that it was shown.
The masks p are uniform, so a combination a of the y tells something of the x exactly if, for each
piece, a is a combination of the indicators 1_U that were answered for it (`known_sums`). Whatever
colluding members hold, and what they sent themselves, is known: their pieces hide nothing, and sets
are looked at without them.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import pytest
from known_sums import is_multiple, learnable

from fedcal.secure_aggregation.roster import Committee

Vector = tuple[int, ...]
Sets = frozenset[int]

known = cache(learnable)


def indicator(of: Sets, sites: Sequence[int]) -> Vector:
    return tuple(int(site in of) for site in sites)


@cache
def holders_of(committee: Committee) -> tuple[Vector, ...]:
    """The members that get the seeds of each piece."""
    held = {m: set(committee.held_by(m)) for m in committee.members}
    numbers = range(len(committee.pieces))
    return tuple(tuple(m for m in committee.members if k in held[m]) for k in numbers)


def learnt(
    committee: Committee, shown: Mapping[int, Sequence[Sets]], sites: Sequence[int]
) -> list[Vector]:
    """Generators of the combinations of honest contributions that the server can compute.

    `shown` : honest member -> the sets whose sums it opened; other members collude. `sites` : the
    honest contributors.
    """
    pieces = {
        tuple(sorted({indicator(u, sites) for m in holders for u in shown[m]}))
        for holders in holders_of(committee)
        if all(m in shown for m in holders)  # who colludes tells this piece's seeds one by one
    }
    return known(tuple(sorted(pieces)), len(sites))


def is_sum_of(found: Sequence[Vector], of: Sets, sites: Sequence[int]) -> bool:
    """Return whether the sum over a set was learnt, and nothing else."""
    places = frozenset(k for k, site in enumerate(sites) if site in of)
    odd = any(v[k] % 2 for v in found for k in places)
    return odd and all(is_multiple(v, places) for v in found)


def split_views(
    committee: Committee, colluding: int, contributors: int, least: int
) -> Iterator[tuple[Mapping[int, Sequence[Sets]], Sequence[int]]]:
    """All that honest members can be shown, a set or nothing each; and the honest contributors.

    The last members collude, and all members contribute. Honest members are alike, so their order
    is left out.
    """
    honest = committee.members[: len(committee.members) - colluding]
    sites = [i for i in range(contributors) if i not in committee.members or i in honest]
    sizes = range(least, contributors + 1)
    subsets = (frozenset(c) for k in sizes for c in itertools.combinations(range(contributors), k))
    choices: list[tuple[Sets, ...]] = [(), *((u,) for u in subsets)]
    for views in itertools.combinations_with_replacement(choices, len(honest)):
        yield dict(zip(honest, views, strict=True)), sites


@pytest.mark.parametrize(("size", "threshold"), [(2, 2), (3, 2), (3, 3), (4, 3), (5, 4), (7, 5)])
def test_any_threshold_of_members_opens_one_sum_and_fewer_nothing(size, threshold):
    committee, sites = Committee.of_first(size, threshold), range(size)
    u = frozenset(sites[: size - 1])
    for k in range(size + 1):
        for answering in itertools.combinations(committee.members, k):
            shown = {m: [u] if m in answering else [] for m in committee.members}
            found = learnt(committee, shown, sites)
            assert is_sum_of(found, u, sites) if k >= threshold else not found


@pytest.mark.parametrize(
    ("size", "threshold", "contributors", "least"),
    [(3, 2, 4, 2), (3, 3, 5, 3), (4, 3, 5, 3), (5, 4, 5, 3), (7, 5, 7, 6)],
)
def test_a_confirmed_round_reveals_one_sum(size, threshold, contributors, least):
    """Honest members sign once, and open what has t signatures: with c colluding members."""
    committee = Committee.of_first(size, threshold)
    for colluding in range(committee.colluding + 1):
        opened = 0
        for signed, sites in split_views(committee, colluding, contributors, least):
            signers = [u for sets in signed.values() for u in sets]
            sets = {u for u in signers if signers.count(u) + colluding >= threshold}
            assert len(sets) <= 1
            for u in sets:
                everybody = dict.fromkeys(signed, (u,))  # who signed another one, too
                assert is_sum_of(learnt(committee, everybody, sites), u, sites)
                opened += 1
        assert opened
