"""Advice: what pays, what is taken, and an honest line where nothing pays."""

import json
import math
from typing import Any

import pytest
from refusals import each_is_refused

from fedcal.experiments.planner import plan as planning
from fedcal.experiments.planner.advise_methods import STAGES
from fedcal.experiments.planner.candidates import Candidate
from fedcal.experiments.planner.choice import NEAR_GRPC, PAYS, CandidateEstimate, choose, rank
from fedcal.experiments.planner.estimate import Population, Size, Trial
from fedcal.experiments.planner.facts import PublicFacts
from fedcal.experiments.planner.method_advice import grpc_seconds
from fedcal.experiments.planner.worlds import Errors, made_up
from fedcal.experiments.runs.files import to_json
from fedcal.privacy.federation import Federation

WORLDS = made_up(2)
FACTS = PublicFacts(Federation(10, 2), 10.0)
BEFORE = Errors(0.9, 0.1, 0.1)


def estimate(
    name: str,
    left: list[float],
    lost: float = 0.0,
    sent: int = 8,
    worlds: int = 1,
    rounds: int | None = None,
) -> CandidateEstimate:
    """An estimate whose runs left these shares of the error, in turn in so many worlds."""
    found = CandidateEstimate(Candidate(name), Candidate("fedtemp", rounds).plan(FACTS))
    shards = Population.draw(WORLDS[0], FACTS, 0).shards
    for k, share in enumerate(left):
        world = WORLDS[k % worlds]
        population = Population(world, shards, Size(10, 10.0), k, BEFORE, BEFORE)
        errors = Errors(0.9 - lost, 0.1 * share, 0.1 * share)
        found.runs.append(Trial(population, errors, world.truth[:, 0], (sent, 0)))
    return found


def test_what_is_left_is_a_mean_over_worlds_not_over_runs():
    uneven = estimate("a", [0.2, 0.6, 0.2], worlds=2)  # twice in the first world
    assert uneven.left == pytest.approx(0.4)
    assert uneven.spread == pytest.approx(0.0)
    assert estimate("a", [0.2]).spread is None
    one = estimate("a", [0.2])
    one.plan = Candidate("fedbbq", 3).plan(FACTS)  # which counts rows in a round of its own
    assert one.plan.counting_rounds == 1
    assert one.to_json()["rounds"] == 3


def test_what_pays():
    for left, lost, pays in (
        ([0.5] * 4, 0.0, True),
        ([PAYS + 0.05] * 4, 0.0, False),
        ([0.1, 0.1, 1.1, 1.1], 0.0, False),  # good on average, and a gamble
        ([0.1, 0.1, 0.1, 1.1], 0.0, True),
        ([0.1] * 4, 0.02, False),
    ):
        assert estimate("a", left, lost).pays is pays, (left, lost)


def test_of_equals_the_one_that_sends_least_is_taken():
    dear, cheap = estimate("dear", [0.50] * 2, sent=900), estimate("cheap", [0.52] * 2)
    assert choose([dear, cheap]) is cheap
    worse = estimate("worse", [0.56] * 2)
    assert choose([dear, worse]) is dear
    assert choose([estimate("bad", [1.2] * 2)]) is None
    loser = estimate("loser", [0.1] * 2, lost=0.5)
    assert min([loser, dear], key=rank) is dear


def test_over_grpc_of_equals_the_one_with_fewest_rounds_is_taken():
    long = estimate("long", [0.50] * 2, rounds=8)
    short = estimate("short", [0.55] * 2, sent=900, rounds=1)
    assert choose([long, short]) is long
    assert choose([long, short], "grpc") is short
    dear = estimate("dear", [0.51] * 2, sent=9000, rounds=1)
    assert choose([long, short, dear], "grpc") is short
    far = estimate("far", [0.50 * NEAR_GRPC + 0.01] * 2, rounds=1)
    assert choose([long, far], "grpc") is long
    assert choose([estimate("bad", [1.2] * 2, rounds=1)], "grpc") is None
    # to start, one exchange for each round, and two more
    assert grpc_seconds(long.plan) - grpc_seconds(short.plan) == pytest.approx(7 * 4.2)
    assert grpc_seconds(short.plan) == pytest.approx(15 + 3 * 4.2)


def plan(**given: Any) -> Any:
    usual: dict[str, Any] = {
        "clients": 60,
        "rows_per_client": 20,
        "classes": 2,
        "methods": ["fednewton"],
    }
    return planning.plan(**usual | given)


def test_a_plan_is_the_same_for_the_same_seed_and_strict_json():
    first, again = (plan(epsilon=1.0).to_json() for _ in range(2))
    first["seconds"] = again["seconds"] = 0.0
    assert first == again
    text = json.loads(to_json(first))
    assert text["schema"] == 1
    assert text["facts"]["epsilon"] == 1.0
    assert text["facts"]["trust"] == "central"
    line = text["recommendation"]
    assert line in text["methods"]
    assert line["method"] == "fednewton"
    assert line["runs"] == 4 * STAGES[-1][0]
    assert line["pays"]
    assert line["bytes_up_per_client"] == 16 * line["rounds"]
    facts = PublicFacts(Federation(60, 2, epsilon=1.0), 20.0)
    real = Candidate("fednewton", line["rounds"]).plan(facts)
    assert line["noise_std"] == list(real.noise_std or ())
    assert line["clip"] == list(real.bound.norms)
    assert text["not_enough"] is None


@pytest.mark.slow
def test_where_nothing_pays_it_says_what_would():
    advice = plan(clients=10, epsilon=0.1)
    assert advice.chosen is None
    clients, epsilon = advice.enough.clients, advice.enough.epsilon
    assert clients[0] > 10
    assert epsilon[0] > 0.1
    line = advice.recommended()
    assert line.startswith("not enough clients for this epsilon: with 10 clients at epsilon 0.1")
    assert f"at least about {clients[0]:,} clients" in line
    assert advice.to_json()["not_enough"]["clients"]["least"] == clients[0]
    assert plan(clients=clients[0], epsilon=0.1).chosen is not None


def test_public_data_take_the_place_of_made_up_rows():
    advice = plan(classes=None, data="imdb-binary", epsilon=1.0)
    assert advice.public
    assert [w["name"] for w in advice.worlds] == ["imdb-binary"]
    assert len(advice.estimates[0].runs) == 4 * STAGES[-1][0]  # as many as in four made-up worlds


def test_facts_that_are_not_allowed():
    table: list[tuple[dict[str, Any], str]] = [
        ({"classes": None}, r"needs classes \(the number .*: for example --classes 10$"),
        ({"data": "imdb-binary", "classes": 3}, "must fit together"),
        ({"data": "imdb"}, "unknown public data set"),
        ({"rows_per_client": 0}, "rows_per_client"),
        ({"clients": 0}, "clients"),
        ({"clients": 10_000_001}, r"clients must be a whole number in \[1, 10000000\]"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": 1.0, "trust": "secagg"}, "adds no noise"),
        ({"partition": "natural"}, "needs data"),
        ({"methods": ["nonsense"]}, "unknown method"),
        ({"methods": ["fedoneshot"], "rounds": 3}, "no method goes with these facts"),
        ({"seed": -1}, "seed"),
        ({"engine": "carrier pigeon"}, "unknown engine"),
        ({"clients": math.nan}, "clients"),
    ]
    each_is_refused(table, lambda given: plan(**given))
