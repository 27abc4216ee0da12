"""What a lying server learns that shows members of the committee different sets of contributors.

All there is to learn is linear. The server sees y_i = x_i - sum over pieces T of p_{i,T}, modulo
2**64, and of each member that holds piece T the sum of p_{i,T} over the set U that it was shown.
The masks p are uniform, so a combination a of the y tells something of the x exactly if, for each
piece, a is a combination of the indicators 1_U that were answered for it. Whatever colluding
members hold, and what they sent themselves, is known: their pieces hide nothing, and sets are
looked at without them.

Over the reals such an intersection may be {0} where modulo 2**64 it is not: 1_U + 1_V - 1_W may be
twice something, and the low bits of all three sums come out. So everything here is computed over
Z / 2**64, by an echelon form for rings in which of any two numbers one divides the other (Howell).
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import pytest

from fedcal.secure_aggregation.roster import Committee

Vector = tuple[int, ...]
Sets = frozenset[int]

PRIME, POWER = 2, 64
FIELD = (2**61 - 1, 1)  # stands for the reals: no determinant here is a multiple of it
COMMITTEES = [(2, 2), (3, 2), (3, 3), (4, 3), (5, 4), (7, 5)]


def echelon(
    rows: Iterable[Vector], columns: int, prime: int, power: int
) -> tuple[list[Vector], list[Vector]]:
    """Rows with a pivot in the first `columns`, and what generates all that is zero there."""
    modulus, pivots = prime**power, list[Vector]()

    def order(x: int) -> int:
        k = 0
        while x % prime == 0:
            x, k = x // prime, k + 1
        return k

    left = [row for row in rows if any(row)]
    for j in range(columns):
        with_it = [row for row in left if row[j]]
        if not with_it:
            continue
        pivot = min(with_it, key=lambda row: order(row[j]))
        unit = prime ** order(pivot[j])
        left.remove(pivot)
        inverse = pow(pivot[j] // unit, -1, modulus)
        pivot = tuple(inverse * x % modulus for x in pivot)
        pivots.append(pivot)
        # what the pivot's row still generates with nothing in this column
        left.append(tuple(modulus // unit * x % modulus for x in pivot))
        for i, row in enumerate(left):
            times = row[j] // unit
            if times:
                left[i] = tuple((x - times * p) % modulus for x, p in zip(row, pivot, strict=True))
        left = [row for row in left if any(row)]
    return pivots, left


@cache
def intersection(
    a: tuple[Vector, ...], b: tuple[Vector, ...], prime: int, power: int
) -> tuple[Vector, ...]:
    """Generators of what both generate (Zassenhaus), the first number of each a power."""
    if not a or not b:
        return ()
    n = len(a[0])
    rows = [row + row for row in a] + [row + (0,) * n for row in b]
    _, both = echelon(rows, n, prime, power)
    return tuple(echelon([row[n:] for row in both], n, prime, power)[0])


def indicator(of: Sets, sites: Sequence[int]) -> Vector:
    return tuple(int(site in of) for site in sites)


@cache
def holders_of(committee: Committee) -> tuple[Vector, ...]:
    """Of each piece, the members that get its seeds."""
    held = {m: set(committee.held_by(m)) for m in committee.members}
    return tuple(
        tuple(m for m in committee.members if number in held[m])
        for number in range(len(committee.pieces))
    )


def learnt(
    committee: Committee,
    shown: Mapping[int, Sequence[Sets]],
    sites: Sequence[int],
    ring: tuple[int, int] = (PRIME, POWER),
) -> tuple[Vector, ...]:
    """Generators of the combinations of honest contributions that the server can compute.

    `shown` : honest member -> the sets whose sums it opened; other members collude. `sites` : the
    honest contributors.
    """
    known: tuple[Vector, ...] | None = None
    everything = tuple(indicator(frozenset([i]), sites) for i in sites)
    for holders in holders_of(committee):
        if any(m not in shown for m in holders):
            continue  # who colludes tells this piece's seeds one by one: it hides nothing
        spans = {indicator(u, sites) for m in holders for u in shown[m]}
        rows = tuple(sorted(spans))
        known = rows if known is None else intersection(known, rows, *ring)
    return everything if known is None else intersection(known, everything, *ring)


def is_multiple(row: Vector, of: Vector) -> bool:
    """Whether a combination is a multiple of a set's sum."""
    inside = {x for x, one in zip(row, of, strict=True) if one}
    return len(inside) <= 1 and not any(x for x, one in zip(row, of, strict=True) if not one)


def one_sum_at_most(found: Sequence[Vector], sets: Iterable[Sets], sites: Sequence[int]) -> bool:
    """Whether all that was learnt is (multiples of) the sum over one of the sets."""
    return not found or any(
        all(is_multiple(row, indicator(u, sites)) for row in found) for u in set(sets)
    )


def subsets(n: int, least: int) -> list[Sets]:
    """Sets of at least so many of n contributors."""
    sizes = range(least, n + 1)
    return [frozenset(c) for k in sizes for c in itertools.combinations(range(n), k)]


def split_views(
    committee: Committee, colluding: int, n: int, m: int
) -> Iterator[tuple[Mapping[int, Sequence[Sets]], Sequence[int]]]:
    """All that honest members can be shown, a set or nothing each; and the honest contributors.

    The last members collude, and all members contribute. Honest members are alike, so their order
    is left out.
    """
    honest = committee.members[: len(committee.members) - colluding]
    sites = [i for i in range(n) if i not in committee.members or i in honest]
    choices = [(), *((u,) for u in subsets(n, m))]
    for views in itertools.combinations_with_replacement(choices, len(honest)):
        yield dict(zip(honest, views, strict=True)), sites


def confirmed(
    committee: Committee, signed: Mapping[int, Sequence[Sets]], colluding: int
) -> dict[Sets, list[int]]:
    """Sets with at least t signatures, and which honest members signed them: one each, ever."""
    by = dict[Sets, list[int]]()
    for member, sets in signed.items():
        for u in sets:
            by.setdefault(u, []).append(member)
    return {u: who for u, who in by.items() if len(who) + colluding >= committee.threshold}


# --- one set --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_any_threshold_of_members_opens_one_sum_and_fewer_nothing(size, threshold):
    committee = Committee.of_first(size, threshold)
    sites = range(size)
    u = frozenset(sites[: size - 1])
    for k in range(size + 1):
        for answering in itertools.combinations(committee.members, k):
            shown = {m: [u] if m in answering else [] for m in committee.members}
            found = learnt(committee, shown, sites)
            assert found == ((indicator(u, sites),) if k >= threshold else ())


@pytest.mark.parametrize(
    ("size", "threshold", "colluding", "n", "m", "hidden"),
    [
        (3, 2, 0, 4, 2, False),
        (3, 2, 0, 5, 3, True),
        (5, 4, 0, 5, 4, None),
        (5, 4, 1, 5, 4, None),
        (5, 4, 2, 5, 4, True),
        (5, 4, 2, 6, 4, False),
    ],
)
def test_split_views_reveal_more_than_one_sum(size, threshold, colluding, n, m, hidden):
    """Which enumerations leak, and whether the reals show some of it (hidden: never).

    (5, 4) with at most one colluding member leaks nothing even so: each two honest members hold
    a piece for themselves.
    """
    committee = Committee.of_first(size, threshold)
    modular = real = 0
    for shown, sites in split_views(committee, colluding, n, m):
        sets = [u for views in shown.values() for u in views]
        modular += not one_sum_at_most(learnt(committee, shown, sites), sets, sites)
        real += not one_sum_at_most(learnt(committee, shown, sites, FIELD), sets, sites)
    assert (modular > 0) == (hidden is not None)
    assert modular >= real
    if hidden is not None:
        assert (real == 0) == hidden


@pytest.mark.parametrize(
    ("size", "threshold", "n", "m"),
    [(3, 2, 4, 2), (3, 2, 5, 3), (3, 3, 5, 3), (4, 3, 5, 3), (5, 4, 5, 3), (7, 5, 7, 6)],
)
def test_a_confirmed_round_reveals_one_sum(size, threshold, n, m):
    """Honest members sign once, and open what has t signatures: with c colluding members."""
    committee = Committee.of_first(size, threshold)
    for colluding in range(committee.colluding + 1):
        opened = 0
        for signed, sites in split_views(committee, colluding, n, m):
            sets = confirmed(committee, signed, colluding)
            assert len(sets) <= 1
            for u in sets:
                everybody = dict.fromkeys(signed, (u,))  # who signed another one, too
                assert learnt(committee, everybody, sites) == (indicator(u, sites),)
                opened += 1
        assert opened
