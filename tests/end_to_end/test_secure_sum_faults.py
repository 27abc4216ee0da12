"""The secure sum among liars, in thousands of random runs; and that these would notice.

`sum_faults.run` makes a federation at random and a hostile server with the keys of as many sites as
may work with it, which asks for whatever may help it; sites restart now and then. Each run is
checked: each site draws and sends one contribution a round, and from all that the server has it can
compute nothing but multiples of one sum a round over at least m contributors. What an honest server
makes of damaged messages: tests/strategies/server/test_collector.py.
"""

from collections import Counter
from collections.abc import Sequence

import pytest
import sum_faults

from fedcal.clients.site import party
from fedcal.secure_aggregation.messages import Confirmation, Enrolment


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


FAULTS = [
    (party, "header_by", "no site made", 4),
    (Enrolment, "by", "can compute", 2),
    (Confirmation, "by", "signatures", 12),
]
"""A check that is forgotten, what is noticed, and the run that notices or one shortly before it.

What else a party may forget is planted one by one, and seen by tests/clients/site/test_party.py.
"""


@pytest.mark.parametrize(("owner", "check", "noticed", "first"), FAULTS)
def test_a_party_that_forgets_a_check_is_found_out(owner, check, noticed, first, monkeypatch):
    monkeypatch.setattr(owner, check, lambda *_: True)
    for seed in range(first, first + 1000):
        wrong, _ = sum_faults.run(seed)
        if any(noticed in text for text in wrong):
            return
    pytest.fail("no run notices")
