"""Sums that honest clients cannot have made are refused, and no others."""

import math
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from asks import Asks
from laws import prefer
from refusals import refused

from fedcal.core.checks import InputError, RoundFailed
from fedcal.core.numerics import Floats, Purpose, Words, stream
from fedcal.mechanisms import MECHANISMS, PRIVATE
from fedcal.privacy import Federation, Ledger, Plan, make_plan
from fedcal.privacy.curator import Curator, OpenRound, Release, check_plausible, honest_range
from fedcal.privacy.query import Query
from fedcal.secure_aggregation import ClientSums
from fedcal.trust import NOISY
from fedcal.units import UNITS, Bound, encode_bounded


class Counts(Asks):
    signed = False


def plans() -> dict[str, Plan]:
    """Every mechanism, trust and unit that go together, under each bound of the mechanism's."""
    found = dict[str, Plan]()
    for name, trust, unit in product(PRIVATE, NOISY, UNITS):
        for number, example in enumerate(MECHANISMS[name].examples):
            federation = Federation(
                clients=7, classes=2, epsilon=1.0, unit=unit, trust=trust, mechanism=name
            )
            options = {"prefers": prefer(name), "row_sums": UNITS[unit].per != "client"}
            with suppress(InputError):
                plan = make_plan(federation, rounds=1, bound=Bound(**example), **options)
                found[f"{name}-{trust}-{unit}-{number}"] = plan
    return found


PLANS = plans()
every_plan = pytest.mark.parametrize("name", PLANS)


def asks(plan: Plan, kind: type[Asks] = Asks) -> Asks:
    return kind(plan.bound.lengths)


def extreme(plan: Plan, asked: OpenRound, sign: float) -> Words:
    """Return the answer of an honest client that adds as much as it may, (length,)."""
    bound, ring = asked.request.bound, asked.request.ring
    x = np.full((1, bound.length), 1e9 * sign)
    if plan.mechanism.answers == "onehot":
        x = np.eye(bound.length)[:1]
    elif bound.rule != "per_value" and bound.per == "client":
        x[:, 1:] = 0.0  # all of a norm in one number
    if bound.per == "client":
        return np.asarray(encode_bounded(x, bound, ring)[0])
    sums, rows = ClientSums(1, bound.length, ring), encode_bounded(x, bound, ring)
    high, low = rows.view(np.int64) >> 32, (rows & np.uint64(2**32 - 1)).view(np.int64)
    sums.add_halves(high * 10**9, low * 10**9)  # of so many rows
    return np.asarray(sums.saturated()[0])


def closed(plan: Plan, query: Query, words: list[Words]) -> Release:
    """A round with these answers, before their noise."""
    curator = Curator(plan)
    asked = curator.open(1, query)
    curator.charge(asked, len(words))
    total = np.zeros(asked.request.bound.length, np.uint64)
    for number, one in enumerate(words):
        if asked.request.noise is not None:
            source = stream(plan.client_seed, Purpose.SHARE, 1, f"site {number}")
            one = asked.request.noise.mechanism.client(one, plan.ring, asked.request.noise, source)
        total = total + one
    return curator.close(asked, total)


def seeded(plan: Plan, seed: int) -> Plan:
    return replace(plan, federation=replace(plan.federation, seed=seed))


@every_plan
def test_honest_clients_at_their_bound_or_without_rows_are_never_refused(name):
    for seed in range(4):
        plan = seeded(PLANS[name], seed)
        for sign in (1.0, 0.0, -1.0):
            query = asks(plan, Asks if sign < 0 else Counts)
            mine = extreme(plan, Curator(plan).open(1, query), sign)
            closed(plan, query, [mine if sign else 0 * mine] * plan.clients)


@every_plan
def test_one_step_beyond_the_range_is_refused(name):
    plan = PLANS[name]
    if plan.mechanism.answers == "index":
        pytest.skip("exact sums are nobody's to see")
    for kind in (Asks, Counts):
        request = Curator(plan).open(1, asks(plan, kind)).request
        for limit in honest_range(plan, request):
            steps = np.trunc(limit / plan.grid)  # toward zero: within
            if np.abs(steps).max() * 1.001 > 2.0**63:
                continue  # the ring has no such number
            check_plausible(_words(steps), plan, request)
            for number in range(len(steps)):
                beyond = steps.copy()
                beyond[number] += np.sign(steps[number] or -1.0) * max(1, abs(steps[number]) * 1e-9)
                with pytest.raises(RoundFailed, match="some client exceeded its bound"):
                    check_plausible(_words(beyond), plan, request)


def _words(steps: Floats) -> Words:
    return steps.astype(np.int64).view(np.uint64)


@pytest.mark.parametrize(
    ("change", "kind"),
    [({"unit": "user"}, Asks), ({"unit": "example"}, Counts), ({"epsilon": math.inf}, Counts)],
)
def test_a_random_ring_element_is_refused(change, kind):
    fields: dict[str, Any] = {"clients": 100, "classes": 2, "epsilon": 1.0}
    bound = Bound((64,), (1.0,))
    plan = make_plan(Federation(**fields | change), rounds=1, bound=bound, row_sums=kind is Counts)
    lie = np.random.default_rng(0).integers(0, 2**64, 64, dtype=np.uint64)
    with pytest.raises(RoundFailed, match="round 1: 100 clients within their bound cannot make"):
        closed(plan, kind((64,)), [np.zeros(64, np.uint64)] * 99 + [lie])


def test_with_a_clip_exact_sums_are_within_it_and_without_a_bound_they_may_be_anything():
    plan = make_plan(Federation(3, 2), rounds=1, bound=Bound((3,)))
    for times in (3, 4):
        curator = Curator(plan)
        asked = curator.open(1, Asks((3,)), norms=(0.5,))
        curator.charge(asked, 3)
        total = np.full(3, round(times * 0.5 / plan.grid), np.uint64)
        with pytest.raises(RoundFailed) if times > 3 else nullcontext():
            curator.close(asked, total)
    lie = np.array([2**63, 1, 2**64 - 1], np.uint64)
    assert np.isfinite(closed(plan, Asks((3,)), [lie] * 3).values).all()


def test_a_refused_round_stays_charged_and_says_no_value():
    federation = Federation(clients=5, classes=2, epsilon=1.0)
    plan = make_plan(federation, rounds=2, bound=Bound((3,), (1.0,)))
    with Ledger(None, 1.0) as ledger:
        curator = Curator(plan, ledger)
        asked = curator.open(1, Asks((3,)))
        curator.charge(asked, 5)
        lie = plan.ring.encode(np.array([0.0, 123456.0, 0.0]))
        refused("^(?!.*123)", curator.close, asked, lie, error=RoundFailed)
        curator.abandon()
        assert [e.charged for e in ledger.entries()] == [(1,)]
        assert ledger.spent()[0] == 1.0


def test_exact_sums_of_candidates_are_not_looked_at():
    """A liar that adds a limit less a guess would learn from a refusal whether the guess is low."""
    bound = Bound((5,), (2.0,), "per_value")
    plan = make_plan(
        Federation(10, 2, epsilon=1.0), rounds=1, bound=bound, prefers=prefer("exponential")
    )
    released = closed(plan, Asks((5,)), [plan.ring.encode(np.full(5, 1e5))])
    assert released.values[0] in range(5)
