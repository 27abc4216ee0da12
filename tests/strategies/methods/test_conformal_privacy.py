"""Prediction sets' draws, by their exact probabilities, and the bits of their row sums."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategy_checks import assert_refused

from experiments.studies.rows import release_of
from fedcal.clients.answers import answer
from fedcal.clients.questions.conformal import SetCounts, SetGaps
from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats, Integers
from fedcal.core.shards import Shards
from fedcal.privacy.noise_plan import Federation
from fedcal.privacy.query import Query, Request
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.conformal import FedConformal

CLIENTS, ROWS, EPSILON = 60, 20, 1.0


def shards_of(scores: Floats, owner: Integers, clients: int = CLIENTS) -> Shards:
    """Rows of class 0 with these scores (`lac`), each of a subject of its own."""
    probs = np.clip(np.stack([1 - scores, scores], axis=1), 1e-15, None)
    labels, subjects = np.zeros(len(scores), np.int64), np.arange(len(scores))
    return Shards.from_owner(np.log(probs), labels, owner, clients, subjects=subjects)


def crossing(unit: str, **more: Any) -> FedConformal:
    facts = Federation(CLIENTS, 2, epsilon=EPSILON, unit=unit, trust="central")
    return FedConformal(facts, quantile="crossing", rows_per_client=float(ROWS), **more)


def summed(strategy: FedConformal, shards: Shards) -> Floats:
    """What the server adds up, exactly, (m,)."""
    query, plan = strategy.query(1), strategy.plan
    assert isinstance(query, SetGaps)
    assert plan.bound is not None
    words = answer(shards, Request(query, plan.bound, plan.ring, 1))
    return plan.ring.decode(words.sum(axis=0))


def logs(strategy: FedConformal, sums: Floats) -> Floats:
    """Log probability of each candidate, by what the mechanism takes for the bound, (m,)."""
    query, plan = strategy.query(1), strategy.plan
    assert isinstance(query, SetGaps)
    norm = max(plan.bound.norms) * plan.diameter
    scores = -query.costs(sums) * plan.mechanism.epsilon / (2 * norm)
    return scores - np.logaddexp.reduce(scores)


def worst(strategy: FedConformal, base: Shards, neighbours: list[Shards]) -> float:
    """The largest log ratio of a candidate's probabilities."""
    here = logs(strategy, summed(strategy, base))
    each = (logs(strategy, summed(strategy, other)) for other in neighbours)
    return max(float(np.abs(here - there).max()) for there in each)


@pytest.mark.parametrize("unit", ["example", "subject", "user"])
def test_neighbours_change_no_probability_by_more_than_epsilon(unit):
    strategy = crossing(unit)
    query = strategy.query(1)
    assert isinstance(query, SetGaps)
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(1, CLIENTS), ROWS)
    found = 0.0
    # one pile of scores below, the others above all thresholds: sums are as flat as they can be
    for low in (0.2, 0.92):
        scores = np.where(rng.random(len(owner)) < low, 1e-6, 1 - 1e-7)
        mixed = np.where(rng.random(len(owner)) < 0.3, rng.random(len(owner)), scores)
        for drawn in (scores, mixed):
            others = []
            for more in (np.zeros(ROWS * 9), np.ones(ROWS * 9), rng.random(ROWS)):
                added = more if unit == "user" else more[:1]
                both = np.append(drawn, np.clip(added, 1e-9, 1 - 1e-9))
                whose = np.append(owner, np.zeros(len(added), np.int64))
                others.append(shards_of(both, whose))
            found = max(found, worst(strategy, shards_of(drawn, owner), others))
    assert found <= EPSILON * (1 + 1e-6)
    assert found > EPSILON / 3


def test_costs_change_by_no_more_than_sums():
    rng = np.random.default_rng(1)
    query = crossing("user").query(1)
    assert isinstance(query, SetGaps)
    for _ in range(100):
        sums = np.sort(rng.normal(0, rng.choice([1.0, 30.0, 1000.0]), len(query.thresholds)))
        clip = float(rng.uniform(0.1, 40.0))
        change = clip * rng.choice([-1.0, 1.0, rng.random()], len(sums))
        moved = query.costs(sums + change) - query.costs(sums)
        assert np.abs(moved).max() <= clip * (1 + 1e-12) + 1e-9


@pytest.mark.parametrize("kind", ["gaps", "gaps by class", "counts", "counts in a tree"])
def test_sums_of_rows_have_the_bits_of_rows(kind, monkeypatch):
    rng = np.random.default_rng(2)
    logits, labels = rng.normal(0, 3, (300, 3)), rng.integers(0, 3, 300)
    shards = Shards.from_owner(logits, labels, rng.integers(1, 7, 300), 8)
    thresholds = np.array([0.1, 0.3, 0.7, 1.0])
    asked = {
        "gaps": SetGaps(3, thresholds, need=0.9),
        "gaps by class": SetGaps(3, thresholds, need=0.3, by="class"),
        "counts": SetCounts(3, thresholds, encoding="prefix"),
        "counts in a tree": SetCounts(3, thresholds, encoding="tree", height=2, by="class"),
    }[kind]
    plan = crossing("example").plan
    for shrink in (1.0, 0.4):  # and where the bound cuts rows
        bound = asked.bound("row")
        norms = tuple(shrink * norm for norm in bound.norms)
        request = Request(asked, replace(bound, norms=norms, per="row"), plan.ring, 1)
        quick = answer(shards, request)
        with monkeypatch.context() as patched:
            patched.setattr(type(asked), "row_words", Query.row_words)
            assert np.array_equal(answer(shards, request), quick)
        assert quick.any()


def covered(strategy: FedConformal, scores: Floats, runs: int, rng: np.random.Generator) -> Floats:
    """How often a threshold covers equally likely scores, exactly, in each run, (runs,).

    Rows are drawn anew in each run, and the noise of all clients at once.
    """
    plan, query = strategy.plan, strategy.query(1)
    assert plan.bound is not None
    assert isinstance(query, SetGaps)
    place = np.searchsorted(query.thresholds, scores)
    shares = np.bincount(place, minlength=len(query.thresholds)) / len(scores)
    clip = max(plan.bound.norms) if plan.bound.per == "client" else math.inf
    rows, found = round(strategy.rows_per_client), np.empty(runs)
    for run in range(runs):
        counts = rng.multinomial(rows, shares, size=plan.clients)
        gaps = np.cumsum(counts, axis=1) - query.need * counts.sum(axis=1, keepdims=True)
        total = np.clip(gaps, -clip, clip).sum(axis=0)
        strategy.update(release_of(plan, 1, query, total, plan.clients, rng))
        found[run] = float(strategy.result().thresholds[0])
    return np.searchsorted(scores, found, side="right") / len(scores)


SMOOTH = (np.arange(5_000) + 0.5) / 5_000


@pytest.mark.parametrize("unit", ["example", "user"])
def test_a_drawn_threshold_covers(unit):
    rows = 10 if unit == "example" else 50
    facts = Federation(100, 10, epsilon=1.0, unit=unit, trust="central")
    for edges in (False, True):
        strategy = FedConformal(facts, quantile="crossing", rows_per_client=float(rows))
        scores = np.asarray(strategy.query(1).thresholds) if edges else SMOOTH
        often = covered(strategy, scores, 300, np.random.default_rng(4))
        error = often.std() / math.sqrt(len(often))
        assert 0.9 - 3.5 * error <= often.mean() < 0.93


def test_noisy_gaps_cover():
    facts = Federation(300, 10, epsilon=4.0, unit="user", trust="distributed")
    strategy = FedConformal(facts, quantile="gaps", rows_per_client=50.0)
    often = covered(strategy, SMOOTH, 200, np.random.default_rng(3))
    error = often.std() / math.sqrt(len(often))
    assert 0.9 - 3.5 * error <= often.mean() < 0.95


def test_a_draw_without_slack_is_noticed():
    strategy = crossing("example")
    query = strategy.query(1)
    assert isinstance(query, SetGaps)
    assert query.level > 0.9 + 2.0  # rows; b is 1.8


@pytest.mark.parametrize("quantile", ["crossing", "gaps"])
def test_a_promise_that_clipping_may_break_says_so_at_once(quantile):
    """And says what is sure: C = 1 + 2.75 sqrt(.09 m), of m = 50 rows; C / (C + m / 10)."""
    settings: dict[str, Any] = {"quantile": quantile, "rows_per_client": 50.0}
    private = Federation(100, 10, epsilon=1.0)
    first = FedConformal(private, **settings).result().guarantee[0]
    clip = 1 + 2.75 * math.sqrt(0.09 * 50)
    assert first.startswith("The label of a new row is in its set with probability at least 0.9")
    assert clip / (clip + 5) == pytest.approx(0.5775, abs=1e-4)
    assert first.endswith(
        "as long as clipping cuts off no misses; whatever the rows are, 0.577 is guaranteed if no "
        "client has more than 50."
    )
    if quantile == "gaps":  # a crossing has one threshold
        other = FedConformal(private, **settings, by="class").result().guarantee[0]
        assert other.endswith("cuts off no misses; whatever the rows are, nothing is guaranteed.")
    free = FedConformal(Federation(100, 10, epsilon=1.0, unit="example"), rows_per_client=50.0)
    assert "clipping" not in free.result().guarantee[0]


def test_without_privacy_the_rank_is_exact_whatever_the_clients():
    """Which are the same in each round."""
    facts = Federation(100, 2, epsilon=math.inf, trust="secagg")
    scores = (np.arange(299) + 0.5) / 300  # n + 1 is a multiple of 10: the 270th of them
    sets: Any = run_inline(FedConformal(facts), shards_of(scores, np.arange(299) % 100, 100))
    assert sets.thresholds[0] == pytest.approx(scores[269], abs=1e-9)
    with pytest.raises(InputError, match="sampling takes others"):
        FedConformal(replace(facts, sampling_rate=0.5))


def ranks(seed: int = 0, **settings: Any) -> FedConformal:
    facts: dict[str, Any] = {"epsilon": 1.0, "unit": "example"}
    facts |= {k: settings.pop(k) for k in ("unit", "epsilon", "trust") if k in settings}
    known: Any = {"rows_per_client": 50.0, "rows_known": True, "quantile": "exponential"}
    return FedConformal(Federation(20, 2, seed=seed, **facts), **(known | settings))


def ranked(rule: FedConformal, scores: Floats) -> float:
    """The threshold of 20 clients with 50 rows each."""
    sets: Any = run_inline(rule, shards_of(scores, np.repeat(np.arange(20), 50), 20))
    return float(sets.thresholds[0])


def test_a_user_counts_with_one_row():
    rule = ranks(unit="user", epsilon=1000.0, rows_known=False, bins=1000)
    assert "number of clients, all of which have a row, 20" in " ".join(rule.result().guarantee)
    scores = np.repeat(np.linspace(0.01, 0.99, 20), 50)
    assert ranked(rule, scores) == pytest.approx(0.94, abs=0.002)


def test_who_may_not_ask():
    table: list[tuple[dict[str, Any], str]] = [
        ({"rows_known": False}, "must be public"),
        ({"unit": "subject", "rows_known": False}, "how many subjects there are is not"),
        ({"unit": "subject"}, "another unit than one of subjects"),
        ({"by": "class", "quantile": "prefix"}, "all parts together"),
        ({"trust": "distributed"}, "does not have the exact sums"),
        ({"by": "class"}, "one threshold"),
    ]
    assert_refused(table, lambda settings: ranks(**settings))
