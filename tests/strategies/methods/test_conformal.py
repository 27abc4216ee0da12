"""Prediction sets: exact probabilities of drawn thresholds, coverage, and what is promised."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from refusals import refused
from strategy_checks import assert_refused

from experiments.studies.rows import release_of
from fedcal import simulate
from fedcal.clients.answers import answer
from fedcal.clients.questions.conformal import SetGaps
from fedcal.conformal import load
from fedcal.core.numerics import Floats, Integers
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.datasets import from_arrays
from fedcal.privacy.noise_plan import Federation
from fedcal.privacy.query import Request
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.conformal import FedConformal

CLIENTS, ROWS, EPSILON = 60, 20, 1.0


def shards_of(scores: Floats, owner: Integers, clients: int = CLIENTS) -> Shards:
    """Rows of class 0 with these scores (`lac`), each of a subject of its own."""
    probs = np.clip(np.stack([1 - scores, scores], axis=1), 1e-15, None)
    labels, subjects = np.zeros(len(scores), np.int64), np.arange(len(scores))
    return rows_by_owner(np.log(probs), labels, owner, clients, subjects=subjects)


def crossing(unit: str) -> tuple[FedConformal, SetGaps]:
    """Return a strategy that draws its threshold, and its question."""
    federation = Federation(CLIENTS, 2, epsilon=EPSILON, unit=unit, trust="central")
    strategy = FedConformal(federation, quantile="crossing", rows_per_client=float(ROWS))
    query = strategy.query(1)
    assert isinstance(query, SetGaps)
    return strategy, query


def log_probabilities(strategy: FedConformal, query: SetGaps, shards: Shards) -> Floats:
    """Return the log probability of each candidate, by the mechanism's bound, (m,)."""
    plan = strategy.plan
    assert plan.bound is not None
    words = answer(shards, Request(query, plan.bound, plan.ring, 1))
    norm = max(plan.bound.norms) * plan.diameter
    costs = query.costs(plan.ring.decode(words.sum(axis=0)))
    scores = -costs * plan.mechanism.epsilon / (2 * norm)
    return scores - np.logaddexp.reduce(scores)


@pytest.mark.parametrize("unit", ["example", "subject", "user"])
def test_neighbours_change_no_probability_by_more_than_epsilon(unit):
    strategy, query = crossing(unit)
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(1, CLIENTS), ROWS)
    found = 0.0
    # one pile of scores below, the others above all thresholds: sums are as flat as they can be
    for low in (0.2, 0.92):
        scores = np.where(rng.random(len(owner)) < low, 1e-6, 1 - 1e-7)
        mixed = np.where(rng.random(len(owner)) < 0.3, rng.random(len(owner)), scores)
        for drawn in (scores, mixed):
            here = log_probabilities(strategy, query, shards_of(drawn, owner))
            for more in (np.zeros(ROWS * 9), np.ones(ROWS * 9), rng.random(ROWS)):
                added = more if unit == "user" else more[:1]
                both = np.append(drawn, np.clip(added, 1e-9, 1 - 1e-9))
                owners = np.append(owner, np.zeros(len(added), np.int64))
                there = log_probabilities(strategy, query, shards_of(both, owners))
                found = max(found, float(np.abs(here - there).max()))
    assert found <= EPSILON * (1 + 1e-6)
    assert found > EPSILON / 3


def test_costs_change_by_no_more_than_sums():
    rng = np.random.default_rng(1)
    _, query = crossing("user")
    for _ in range(100):
        sums = np.sort(rng.normal(0, rng.choice([1.0, 30.0, 1000.0]), len(query.thresholds)))
        clip = float(rng.uniform(0.1, 40.0))
        change = clip * rng.choice([-1.0, 1.0, rng.random()], len(sums))
        moved = query.costs(sums + change) - query.costs(sums)
        assert np.abs(moved).max() <= clip * (1 + 1e-12) + 1e-9


SMOOTH = (np.arange(5_000) + 0.5) / 5_000


def assert_covers(strategy: FedConformal, scores: Floats, runs: int, most: float) -> None:
    """Thresholds cover equally likely scores as often as they should, on average over runs.

    Rows are drawn anew in each run, and the noise of all clients at once.
    """
    plan, query, rng = strategy.plan, strategy.query(1), np.random.default_rng(4)
    assert plan.bound is not None
    assert isinstance(query, SetGaps)
    place = np.searchsorted(query.thresholds, scores)
    shares = np.bincount(place, minlength=len(query.thresholds)) / len(scores)
    clip = max(plan.bound.norms) if plan.bound.per == "client" else math.inf
    rows, found = round(strategy.rows_per_client), np.empty((runs, query.parts))
    parts = np.arange(1.0, query.parts + 1)
    shares = np.outer(parts / parts.sum(), shares).ravel()
    for run in range(runs):
        counts = rng.multinomial(rows, shares, size=plan.clients)
        counts = counts.reshape(plan.clients, query.parts, -1)
        gaps = np.cumsum(counts, axis=2) - query.need * counts.sum(axis=2, keepdims=True)
        total = np.clip(gaps, -clip, clip).sum(axis=0).ravel()
        strategy.update(release_of(plan, 1, query, total, plan.clients, rng))
        found[run] = strategy.result().thresholds
    coverage = np.searchsorted(scores, found, side="right") / len(scores)
    mean, error = coverage.mean(axis=0), coverage.std(axis=0) / math.sqrt(runs)
    assert (mean >= 0.9 - 3.5 * error).all()
    assert (mean < most).all()


@pytest.mark.parametrize("unit", ["example", "user"])
def test_a_drawn_threshold_covers(unit):
    rows = 10.0 if unit == "example" else 50.0
    federation = Federation(100, 10, epsilon=1.0, unit=unit, trust="central")
    for edges in (False, True):
        strategy = FedConformal(federation, quantile="crossing", rows_per_client=rows)
        query: Any = strategy.query(1)
        assert_covers(strategy, np.asarray(query.thresholds) if edges else SMOOTH, 300, 0.93)


def test_a_draw_has_slack():
    _, query = crossing("example")
    assert query.level > 0.9 + 2.0  # rows; b is 1.8


def test_where_all_labels_are_needed_sets_hold_them():
    rows = rows_by_owner(np.ones((1000, 2)), np.zeros(1000, int), np.arange(1000) // 50, 20)
    for epsilon in (0.01, 8.0):
        facts = Federation(20, 2, epsilon=epsilon, unit="example", trust="central")
        sets: Any = run_inline(FedConformal(facts, rows_per_client=50.0), rows)
        assert (sets.thresholds[0] == 1.0) == (epsilon == 0.01)


def test_noisy_gaps_cover():
    federation = Federation(300, 10, epsilon=4.0, unit="user", trust="distributed")
    strategy = FedConformal(federation, quantile="gaps", rows_per_client=50.0)
    assert_covers(strategy, SMOOTH, 200, 0.95)


@pytest.mark.parametrize(
    ("trust", "part"), [("central", {"by": "class"}), ("distributed", {"groups": ("a", "b")})]
)
def test_noisy_gaps_cover_each_part(trust, part):
    """Whose number of rows is read from the noisy sum at 1."""
    federation = Federation(500, 3, epsilon=4.0, unit="user", trust=trust)
    strategy = FedConformal(federation, rows_per_client=60.0, bins=100, **part)
    assert_covers(strategy, SMOOTH, 100, 0.94)
    basis: Any = strategy.result().basis
    assert basis.std == pytest.approx(strategy.plan.noise_std[0] * 10, rel=0.01)  # 1 / alpha
    assert basis.rows == pytest.approx([5_000, 10_000, 15_000], abs=4 * basis.std)


@pytest.mark.parametrize("quantile", ["crossing", "gaps"])
def test_a_promise_that_clipping_may_break_says_so_at_once(quantile):
    """And says what is sure: C = 1 + 2.75 sqrt(.09 m), of m = 50 rows; C / (C + m / 10)."""
    settings: dict[str, Any] = {"quantile": quantile, "rows_per_client": 50.0}
    private = Federation(100, 10, epsilon=1.0)
    first = FedConformal(private, **settings).result().guarantee[0]
    clip = 1 + 2.75 * math.sqrt(0.09 * 50)
    assert clip / (clip + 5) == pytest.approx(0.5775, abs=1e-4)
    assert first.endswith(
        "as long as clipping cuts off no misses; whatever the rows are, 0.577 is guaranteed if no "
        "client has more than 50."
    )
    if quantile == "gaps":  # a crossing has one threshold
        other = FedConformal(private, **settings, by="class").result().guarantee
        assert other[0].endswith(
            "cuts off no misses; whatever the rows are, nothing is guaranteed."
        )
        assert not any("counts on" in line for line in other)
    free = FedConformal(Federation(100, 10, epsilon=1.0, unit="example"), rows_per_client=50.0)
    assert "clipping" not in free.result().guarantee[0]


def exponential(**options: Any) -> FedConformal:
    fields: dict[str, Any] = {"epsilon": 1.0, "unit": "example"}
    fields |= {k: options.pop(k) for k in ("unit", "epsilon", "trust") if k in options}
    known: Any = {"rows_per_client": 50.0, "rows_known": True, "quantile": "exponential"}
    return FedConformal(Federation(20, 2, **fields), **(known | options))


def test_a_user_counts_with_one_row():
    rule = exponential(unit="user", epsilon=1000.0, rows_known=False, bins=1000)
    scores = np.repeat(np.linspace(0.01, 0.99, 20), 50)
    sets: Any = run_inline(rule, shards_of(scores, np.repeat(np.arange(20), 50), 20))
    assert float(sets.thresholds[0]) == pytest.approx(0.94, abs=0.002)


def test_quantiles_that_a_federation_cannot_ask_for():
    table: list[tuple[dict[str, Any], str]] = [
        ({"rows_known": False}, "must be public"),
        ({"unit": "subject", "rows_known": False}, "how many subjects there are is not"),
        ({"unit": "subject"}, "another unit than one of subjects"),
        ({"by": "class", "quantile": "prefix"}, "all parts together"),
        ({"trust": "distributed"}, "does not have the exact sums"),
        ({"by": "class"}, "one threshold"),
    ]
    assert_refused(table, lambda options: exponential(**options))


# --- runs on shipped data -------------------------------------------------------------------------

PRIVATE: dict[str, Any] = {"epsilon": 2.0, "unit": "example"}


def run(data: Any, options: dict[str, Any], **settings: Any) -> Any:
    return simulate(data, method="conformal", seed=3, set=settings, **options)


def test_one_release_serves_every_alpha(tmp_path):
    options = {**PRIVATE, "trust": "distributed"}
    sets = run("adult-income", options, by="class").artifact
    sets.write(tmp_path, "sets")
    read: Any = load(tmp_path / "sets.npz")
    assert_array_equal(read.at(0.1).thresholds, sets.thresholds)
    assert read.at(0.1).guarantee == sets.guarantee
    assert (read.at(0.02).thresholds >= sets.thresholds).all()
    anew = run("adult-income", options, alpha=0.3, by="class").artifact
    assert_array_equal(anew.thresholds, read.at(0.3).thresholds)  # the same release, bit for bit
    refused(r"alpha must be in \(0, 1\)", read.at, 1.0)


def test_a_rare_label_is_in_every_set_and_no_exact_count_is_released():
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.full(12, 2), rng.integers(0, 2, 988)])
    logits = rng.normal(size=(1000, 3)) + 2 * np.eye(3)[labels]
    data = from_arrays(logits=logits, labels=labels, test_logits=logits, test_labels=labels)
    made = run(data, {"clients": 20}, by="class", alpha=0.05)
    exact, page = made.evaluated["sets"], made.parts
    why = "its rows, 12, are too few for a threshold, which needs 19"
    assert exact["all_labels_why"] == {"class 2": why}
    assert f"class 2 is in every set: {why}" in str(page)
    assert len(page) > len(made.artifact.page())  # results on test rows, below it
    private = run(data, {"clients": 20, **PRIVATE}, by="class", alpha=0.05).evaluated["sets"]
    assert "by a noisy count, are too few" in private["all_labels_why"]["class 2"]
    assert "12," not in private["all_labels_why"]["class 2"]


def test_no_number_of_rows_is_kept_where_none_is_released():
    """Nor counts, of which another alpha's thresholds could be made."""
    made = run("adult-income", PRIVATE)  # its nominal number of rows is that of the rows
    refused("released thresholds for one alpha", made.artifact.at, 0.2)
    assert made.sets.basis is None
    assert "8141" not in str(made.sets.arrays()["sets"])
