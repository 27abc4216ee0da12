"""One release per round, in order, charged before the noise is drawn, and no more than planned."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from asks import Asks
from laws import prefer
from refusals import refused

from fedcal.core.checks import BudgetExceeded, InputError, PrivacyError, RoundFailed
from fedcal.core.numerics import Purpose, stream
from fedcal.mechanisms import Noise
from fedcal.privacy import Federation, Ledger, Plan, make_plan
from fedcal.privacy.curator import Curator, OpenRound, Release
from fedcal.privacy.query import QUERIES
from fedcal.units import Bound

BOUND = Bound((2, 1), (1.0, 3.0), "per_block")


class Another(Asks):
    kind = "another"


del QUERIES[Another.kind]


class OfEveryone(Asks):
    everyone = True


ASK = Asks()
SUM = np.array([1.5, -2.25, 100.0])
ROUNDS = 3


def plan_of(
    rounds: int = ROUNDS, bound: Bound = BOUND, prefers: str = "gaussian", **change: Any
) -> Plan:
    fields: dict[str, Any] = {"clients": 10, "classes": 2, "epsilon": 1.0}
    return make_plan(
        Federation(**fields | change), rounds=rounds, bound=bound, prefers=prefer(prefers)
    )


def seeded(plan: Plan, seed: int) -> Plan:
    return replace(plan, federation=replace(plan.federation, seed=seed))


def close(curator: Curator, asked: OpenRound, repliers: int = 10) -> Release:
    curator.charge(asked, repliers)
    return curator.close(asked, asked.request.ring.encode(SUM))


def release(curator: Curator, round_number: int = 1) -> Release:
    return close(curator, curator.open(round_number, ASK))


@pytest.fixture
def ledger():
    with Ledger(None, 1.5) as ledger:
        yield ledger


@pytest.fixture
def drawn(monkeypatch):
    """Rounds for which noise was drawn."""
    rounds: list[int] = []

    def spy(seed: int, purpose: Purpose, number: int = 0, what: str = "") -> Any:
        if purpose == Purpose.NOISE:
            rounds.append(number)
        return stream(seed, purpose, number, what)

    monkeypatch.setattr("fedcal.privacy.curator.stream", spy)
    return rounds


def test_without_privacy_the_exact_sum_is_released_and_nothing_charged(ledger):
    curator = Curator(plan_of(epsilon=math.inf), ledger)
    asked = curator.open(1, ASK)
    assert not asked.request.bound.finite
    released = close(curator, asked)
    assert (released.values.tolist(), released.std.tolist()) == (SUM.tolist(), [0, 0, 0])
    # a clip is the caller's, and so is the question of each round
    clipped = curator.open(2, ASK, norms=(0.5, 2.0)).request.bound
    assert clipped == Bound((2, 1), (0.5, 2.0), "per_block")
    curator = Curator(plan_of(epsilon=math.inf, sampling_rate=0.2), ledger)
    asked = curator.open(1, ASK)
    assert asked.clients.tolist() == curator.plan.sample(1).tolist()
    refused("none answered", close, curator, asked, 0, error=RoundFailed)
    assert (curator.releases, ledger.entries()) == (0, ())


def test_a_private_release_is_the_sum_and_noise_of_the_plans_std():
    plan = plan_of(bound=Bound((600, 300), (1.0, 3.0), "per_block"))
    curator, sums = Curator(plan), np.linspace(-9, 9, 900)
    asked = curator.open(1, Asks((600, 300)))
    assert (asked.request.bound, asked.request.ring) == (plan.bound, plan.ring)
    curator.charge(asked, 10)
    released = curator.close(asked, plan.ring.encode(sums))
    np.testing.assert_allclose(released.std, np.repeat(plan.noise_std or (), (600, 300)))
    squares = (((released.values - sums) / released.std) ** 2).sum()
    assert abs(squares - 900) < 5 * math.sqrt(2 * 900)  # chi-square, 900 degrees of freedom


def test_one_charge_is_for_one_release(drawn):
    """The sum again with fresh noise, as the operating system's is, would be a second release."""
    curator = Curator(plan_of())
    asked = curator.open(1, ASK)
    close(curator, asked)
    with pytest.raises(PrivacyError, match="was not charged: each round is released once"):
        curator.close(asked, asked.request.ring.encode(SUM))
    refused("each round is released once", close, curator, asked, error=PrivacyError)
    assert (drawn, curator.releases) == ([1], 1)


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_release_r_plus_1_is_refused_by_the_curator(epsilon, drawn):
    curator = Curator(plan_of(epsilon=epsilon))
    for r in range(1, ROUNDS + 1):
        refused(f"cannot be opened after {r - 1}", curator.open, r + 1, ASK, error=PrivacyError)
        asked = curator.open(r, ASK)
        close(curator, asked)
    drawn.clear()
    for wrong in (ROUNDS, ROUNDS + 1):
        refused("cannot be opened after 3 of", curator.open, wrong, ASK, error=PrivacyError)
    late = replace(asked, request=replace(asked.request, round=ROUNDS + 1))
    refused("round 4 is not open", close, curator, late, error=PrivacyError)
    assert not drawn


def test_all_of_the_budget_is_reserved_when_the_first_round_opens(ledger):
    curator = Curator(plan_of(epsilon=0.5), ledger)
    assert ledger.entries() == ()
    curator.open(1, ASK)
    Curator(plan_of(trust="local", mechanism="laplace"), ledger).open(1, ASK)
    one, other = ledger.entries()
    assert (one.epsilon, one.delta, one.releases, one.charged) == (0.5, 1e-5, ROUNDS, ())
    assert (one.mechanism, one.event) == ("gaussian", curator.plan.event)
    assert (other.unit, other.adjacency, other.mechanism) == ("user", "replace", "laplace")
    assert (other.epsilon, other.delta) == (1.0, 0.0)


def test_each_release_is_charged_before_its_noise_is_drawn(ledger, monkeypatch):
    charged_at_noise = []
    real = Noise.draw

    def spy(noise: Noise, source: Any) -> Any:
        charged_at_noise.append(ledger.entries()[0].charged)
        return real(noise, source)

    monkeypatch.setattr(Noise, "draw", spy)
    curator = Curator(plan_of(), ledger)
    for r in range(1, ROUNDS + 1):
        release(curator, r)
    assert charged_at_noise == [(1,), (1, 2), (1, 2, 3)]


def test_a_round_without_clients_releases_its_noise(ledger):
    curator = Curator(plan_of(1, sampling_rate=1e-3), ledger)
    asked = curator.open(1, ASK)
    assert len(asked.clients) == 0
    curator.charge(asked, 0)
    released = curator.close(asked, np.zeros(3, np.uint64))
    assert (released.values != 0).all()
    assert (np.abs(released.values) < 6 * released.std).all()
    assert ledger.entries()[0].charged == (1,)


def test_a_round_that_nobody_answers_releases_nothing(ledger, drawn):
    curator = Curator(plan_of(), ledger)
    asked = curator.open(1, ASK)
    refused("sampled and none answered", close, curator, asked, 0, error=RoundFailed)
    assert (drawn, ledger.entries()) == ([], ())  # the reservation is given back
    refused("is not open", close, curator, asked, error=PrivacyError)  # a late answer
    refused("round 1 was already asked", curator.open, 1, ASK, error=PrivacyError)
    later = Curator(plan_of(), ledger)
    release(later)
    refused("none answered", close, later, later.open(2, ASK), 0, error=RoundFailed)
    assert (drawn, [e.charged for e in ledger.entries()]) == ([1], [(1,)])


def test_a_private_query_is_the_one_that_was_planned(ledger):
    for ask in (Asks((4,)), Asks((1, 2)), Asks((1, 1, 1)), OfEveryone()):
        with pytest.raises(PrivacyError, match="not the one that the plan was made for"):
            Curator(plan_of(), ledger).open(1, ask)
    assert ledger.entries() == ()
    for ask, norms in ((Asks((3,)), None), (ASK, (0.5, 2.0))):  # the plan's bound, whatever is said
        assert Curator(plan_of()).open(1, ask, norms=norms).request.bound == BOUND


def test_runs_that_differ_in_anything_share_no_noise():
    """Two releases of one sum with proportional noise would give the sum away."""
    numbers = 200
    different: list[dict[str, Any]] = [
        *({"epsilon": 2.0}, {"delta": 1e-6}, {"seed": 1}, {"clients": 11}, {"rounds": 4}),
        *({"unit": "example"}, {"norms": (2.0, 3.0)}, {"rule": "joint"}, {"asks": Another}),
        *({"mechanism": "laplace"}, {"round": 2}, {"sampling_rate": 0.5}),
    ]

    def noise(
        norms: Any = (1.0, 3.0),
        rule: Any = "per_block",
        rounds: int = 1,
        asks: type[Asks] = Asks,
        round: int = 1,
        **public: Any,
    ) -> Any:
        bound = Bound((numbers, numbers), norms, rule)
        curator = Curator(plan_of(max(rounds, round), bound, **public))
        for r in range(1, round + 1):
            asked = curator.open(r, asks(bound.lengths))
            curator.charge(asked, 10)
            released = curator.close(asked, np.zeros(2 * numbers, np.uint64))
        return released.values / released.std

    one = noise()
    assert np.array_equal(one, noise())
    for change in different:
        other = noise(**change)
        for a, b in ((one, other), (np.abs(one), np.abs(other))):
            assert abs(np.corrcoef(a, b)[0, 1]) < 6 / math.sqrt(2 * numbers), change


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("trust", ["distributed", "local"])
def test_the_server_adds_nothing_where_clients_did(trust, mechanism, drawn):
    plan = plan_of(trust=trust, mechanism=mechanism)
    curator = Curator(plan)
    asked = curator.open(1, ASK)
    assert asked.request.noise == plan.noise
    released = close(curator, asked)
    np.testing.assert_array_equal(released.values, SUM)  # no client of this test added any
    np.testing.assert_array_equal(released.std, plan.std_of_sum(10))
    assert (released.std > 0).all()
    assert not drawn


def test_what_clients_learn_of_noise_and_coins():
    central = Curator(plan_of(1, sampling_rate=0.5)).open(1, ASK).request
    assert (central.noise, central.rate, central.seed) == (None, 1.0, None)
    shared = plan_of(1, sampling_rate=0.5, trust="distributed")
    query = Curator(shared).open(1, ASK).request
    assert (query.noise, query.rate, query.seed) == (shared.noise, 0.5, shared.client_seed)
    alone = plan_of(1, sampling_rate=0.5, trust="local")
    query = Curator(alone).open(1, ASK).request
    assert (query.noise, query.rate, query.seed) == (alone.noise, 1.0, alone.client_seed)
    for trust in ("distributed", "local"):
        plan = plan_of(trust=trust, noise_source="system")
        assert Curator(plan).open(1, ASK).request.seed is None
    seeds = {shared.federation.seed, shared.client_seed, shared.mask_seed}
    assert len(seeds) == 3  # who knows one of clients' seeds must not know the server's


def test_a_round_below_the_quorum_is_not_released(ledger, drawn):
    curator = Curator(plan_of(trust="distributed"), ledger)
    assert curator.plan.quorum == 9
    asked = curator.open(1, ASK)
    too_few = "8 of 10 clients answered.* at least 9"
    refused(too_few, close, curator, asked, 8, error=RoundFailed)
    assert (curator.releases, ledger.entries(), drawn) == (0, (), [])  # nothing was learned
    with pytest.raises(PrivacyError, match="is not open"):
        close(curator, asked, 10)  # late answers do not bring it back
    refused("already asked", curator.open, 1, ASK, error=PrivacyError)
    full = Curator(plan_of(trust="distributed"))
    assert close(full, full.open(1, ASK), 9).round == 1


@pytest.mark.parametrize("trust", ["central", "distributed"])
def test_what_was_charged_stays_spent_whatever_fails_later(trust, ledger):
    """The sum may have been seen: under `distributed` it is all that there is to see."""
    curator = Curator(plan_of(trust=trust), ledger)
    asked = curator.open(1, ASK)
    refused("was not charged", curator.close, asked, np.zeros(3, np.uint64), error=PrivacyError)
    curator.charge(asked, 10)
    curator.abandon()
    assert ledger.spent()[0] == 1.0
    refused("was not charged", curator.close, asked, np.zeros(3, np.uint64), error=PrivacyError)
    with pytest.raises(BudgetExceeded):  # of the cap of 1.5
        Curator(plan_of(trust=trust), ledger).open(1, ASK)


def test_a_ledger_that_fails_comes_before_the_sum(ledger, drawn, monkeypatch):
    curator = Curator(plan_of(), ledger)
    asked = curator.open(1, ASK)

    def broken(run: str, number: int) -> None:
        raise InputError("disk full")

    monkeypatch.setattr(ledger, "charge", broken)
    refused("disk full", curator.charge, asked, 10)
    refused("was not charged", curator.close, asked, np.zeros(3, np.uint64), error=PrivacyError)
    curator.abandon()
    assert ledger.spent()[0] == 0.0  # nobody may have added anything up
    assert (drawn, curator.releases) == ([], 0)


def test_under_local_a_question_is_spent_when_it_is_asked(ledger):
    """The server reads each answer, also of a round that then fails."""
    curator = Curator(plan_of(trust="local"), ledger)
    asked = curator.open(1, ASK)
    with pytest.raises(RoundFailed):
        close(curator, asked, repliers=0)
    curator.abandon()
    assert ledger.spent()[0] == 1.0
    refused("round 1 was already asked", curator.open, 1, ASK, error=PrivacyError)


@pytest.mark.parametrize("masked", [True, False])
def test_a_share_that_the_server_saw_is_spent(ledger, masked):
    """Without masks the server has each client's answer, which holds a share of the noise."""
    curator = Curator(plan_of(trust="distributed"), ledger, masked=masked)
    asked = curator.open(1, ASK)
    with pytest.raises(RoundFailed):
        close(curator, asked, repliers=1)
    assert ledger.spent()[0] == (0.0 if masked else 1.0)
