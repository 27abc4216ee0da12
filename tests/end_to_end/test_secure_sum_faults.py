"""The secure sum among faults and liars, in thousands of random runs; and that these would notice.

`sum_faults.run` makes a federation at random and lets things go wrong: an honest server among
sites that are absent, late or restarted and messages that are damaged, doubled or old ones; or a
hostile server with the keys of as many sites as may work with it. Each run is checked: every sum
that is released is that of the contributions in it, each site draws and sends one contribution a
round, and from all that the server has it can compute nothing but multiples of one sum a round
over at least m contributors.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
import sum_faults
from hypothesis import given, settings
from hypothesis import strategies as st
from known_sums import learnable

from fedcal.clients.site import party
from fedcal.clients.site.party import Party
from fedcal.clients.site.store import SiteRecords
from fedcal.core.checks import InputError
from fedcal.secure_aggregation.messages import Confirmation, Enrolment, Header, Opening
from fedcal.secure_aggregation.roster import SEED_BYTES


def wrong_in(seeds: Sequence[int]) -> Counter[str]:
    """What should not be, in the runs of these seeds; at least a part of them release sums."""
    found, released = Counter[str](), 0
    for seed in seeds:
        wrong, sums = sum_faults.run(seed)
        found.update(f"{text} (seed {seed})" for text in wrong)
        released += sums
    assert released > len(seeds) / 4
    return found


def test_nothing_but_one_sum_a_round_is_opened_whatever_goes_wrong():
    assert not wrong_in(range(40))


@pytest.mark.slow
@pytest.mark.parametrize("thousand", range(1, 11))
def test_ten_thousand_runs(thousand):
    assert not wrong_in(range(1000 * thousand, 1000 * thousand + 1000))


def open_for_anybody(
    self: Party, job: str, number: int, of: str, confirmations: Sequence[bytes]
) -> bytes:
    pieces = self._records.sums(job, number, of)
    return Opening.made(self._key, bytes.fromhex(of), pieces).to_bytes()


KEPT: dict[tuple[Any, ...], bytes] = {}


def confirm_often(
    self: SiteRecords, job: str, number: int, of: str, make: Callable[[], Any]
) -> Any:
    signature, KEPT[id(self), job, number, of] = make()
    return signature


def all_sums(self: SiteRecords, *which: Any) -> bytes:
    if (id(self), *which) not in KEPT:
        raise InputError("nothing is kept")
    return KEPT[(id(self), *which)]


OWN = Party.confirm


def confirm_few(self: Party, job: str, number: int, least: int, given: Any) -> bytes:
    return OWN(self, job, number, 0, given)


def believed(self: Party, header: Header, told: bytes) -> list[bytes]:
    return [told[a : a + SEED_BYTES] for a in range(0, len(told), SEED_BYTES)]


def answer_anew(self: SiteRecords, *about: Any, asked_once: bool = False) -> tuple[bytes, bool]:
    return about[-1](), False


def true(*_: Any) -> bool:
    return True


FAULTS: list[tuple[tuple[Any, str, Any], str, int]] = [
    ((Party, "open", open_for_anybody), "signatures", 12),
    ((SiteRecords, "confirm", confirm_often), "can compute", 85),
    ((Party, "confirm", confirm_few), "at least", 2),
    ((party, "header_by", true), "no site made", 4),
    ((Enrolment, "by", true), "can compute", 2),
    ((Confirmation, "by", true), "signatures", 12),
    ((Party, "_seeds", believed), "another sum", 201),
    ((SiteRecords, "answer", answer_anew), "contributions to one round", 0),
    ((Opening, "by", true), "another sum", 303),
]
"""What a party forgets, what is noticed, and the run that notices, or one shortly before it."""


@pytest.mark.parametrize(
    ("forgets", "noticed", "first"), FAULTS, ids=[f"{f[0][1]}, {f[1]}" for f in FAULTS]
)
def test_a_party_that_forgets_a_check_is_found_out(forgets, noticed, first, monkeypatch):
    monkeypatch.setattr(*forgets)
    if forgets[2] is confirm_often:
        monkeypatch.setattr(SiteRecords, "sums", all_sums)
    for seed in range(first, first + 1000):
        wrong, _ = sum_faults.run(seed)
        if any(noticed in text for text in wrong):
            return
    pytest.fail("no run notices")


BITS = 2
INTO = 1 << BITS

spans = st.integers(1, 3).flatmap(
    lambda size: st.lists(
        st.lists(st.tuples(*[st.integers(0, INTO - 1)] * size), min_size=1, max_size=3),
        min_size=1,
        max_size=3,
    )
)


@settings(max_examples=40, deadline=None)
@given(spans)
def test_the_algebra_finds_all_that_enumeration_finds(pieces):
    size = len(pieces[0][0])

    def all_of(span: Sequence[tuple[int, ...]]) -> set[tuple[int, ...]]:
        return {
            tuple(sum(a * v[k] for a, v in zip(by, span, strict=True)) % INTO for k in range(size))
            for by in product(range(INTO), repeat=len(span))
        }

    want = set.intersection(*map(all_of, pieces))
    assert all_of(learnable(pieces, size, BITS)) == want
