"""Acc-T, NLL-T and ECE-T: the paper's algorithm without noise, and bounds and noise with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedcal.calibrators import TemperatureScaling
from fedcal.clients.answers import answer
from fedcal.errors import InputError
from fedcal.experiments.engines.inline import run_inline
from fedcal.metrics import accuracy, ece
from fedcal.numerics import log_grid, shifted, softmax
from fedcal.privacy.plan import Federation, Plan
from fedcal.queries.request import Request
from fedcal.release import Release
from fedcal.shards import Shards
from fedcal.strategies import ECET, NLLT, STRATEGIES, AccT, CalibrationStrategy
from fedcal.types import Floats, Integers

CLIENTS, CLASSES = 12, 4
METHODS: dict[str, type[Any]] = {"acct": AccT, "nllt": NLLT, "ecet": ECET}
methods = pytest.mark.parametrize("name", METHODS)
UNITS = ("user", "example")
RATIO = (math.sqrt(5) - 1) / 2


def federation(**fields: Any) -> Federation:
    return Federation(**{"clients": CLIENTS, "classes": CLASSES, **fields})


def private(**fields: Any) -> Federation:
    return federation(**{"epsilon": 1.0, **fields})


def method(name: str, own: Federation | None = None, **options: Any) -> CalibrationStrategy:
    made: CalibrationStrategy = METHODS[name](
        own or federation(), secure_aggregation="none", **options
    )
    return made


def some_shards(c: int = CLASSES, rows: int = 600, seed: int = 0, scale: float = 2.0) -> Shards:
    """Overconfident rows; the first and the last client have none."""
    rng = np.random.default_rng([c, seed])
    labels, owner = rng.integers(0, c, rows), rng.integers(1, CLIENTS - 1, rows)
    logits = rng.normal(0, 1, (rows, c))
    logits[np.arange(rows), labels] += rng.normal(1.5, 1, rows)
    return Shards.from_owner(logits * scale, labels, owner, CLIENTS)


def temperature(strategy: CalibrationStrategy) -> float:
    result = strategy.result()
    assert isinstance(result, TemperatureScaling)
    return result.temperature


def run(name: str, shards: Shards, own: Federation | None = None, **options: Any) -> float:
    own = own or federation(classes=shards.classes)
    strategy = method(name, own, **options)
    run_inline(strategy, shards)
    assert len(strategy.releases) == strategy.plan.rounds
    return temperature(strategy)


# --- without noise --------------------------------------------------------------------------------


def objective(name: str, z: Floats, y: Integers, t: float) -> float:
    """Of pooled rows, from the definitions in C.2."""
    p = softmax(z / t)
    confidence = p.max(axis=1)
    gap = (z.argmax(axis=1) == y) - confidence
    if name == "acct":
        return float(abs(gap.sum()))
    if name == "nllt":
        return float(np.minimum(-np.log(p[np.arange(len(y)), y]), 10.0).sum())
    bins = np.minimum((confidence * 15).astype(int), 14)
    return sum(abs(float(gap[bins == b].sum())) for b in range(15))


def algorithm_1(f: Callable[[float], float], low: float, high: float, k: int) -> float:
    """Luo et al., Algorithm 1, with K = k."""
    t0, t1 = high - (high - low) * RATIO, low + (high - low) * RATIO
    v0, v1 = f(t0), f(t1)
    for _ in range(k):
        if v0 >= v1:
            low, t0, v0 = t0, t1, v1
            t1 = low + (high - low) * RATIO
            v1 = f(t1)
        else:
            high, t1, v1 = t1, t0, v0
            t0 = high - (high - low) * RATIO
            v0 = f(t0)
    return (low + high) / 2


@methods
@pytest.mark.parametrize("c", [2, 4, 20])
@pytest.mark.parametrize("scale", [0.4, 1.0, 2.0])
def test_without_privacy_it_is_algorithm_1_on_the_pooled_rows(
    name: str, c: int, scale: float
) -> None:
    for seed in range(3):
        shards = some_shards(c, seed=seed, scale=scale)
        want = algorithm_1(
            lambda t, s=shards: objective(name, s.logits, s.labels, t),  # type: ignore[misc]
            *(0.5, 3.0, 5),
        )
        assert run(name, shards) == want


@methods
def test_other_intervals_and_iterations(name: str) -> None:
    shards = some_shards(seed=3)

    def f(t: float) -> float:
        return objective(name, shards.logits, shards.labels, t)

    for k in (1, 2, 9):
        want = algorithm_1(f, 0.25, 8.0, k)
        assert run(name, shards, iterations=k, low=0.25, high=8.0) == want
        assert run(name, shards, federation(rounds=k + 1), low=0.25, high=8.0) == want


def test_acct_makes_mean_confidence_equal_accuracy() -> None:
    shards = some_shards(rows=4000)
    z, y = shards.logits, shards.labels
    for options in ({"iterations": 25}, {"search": "bisection"}, {"search": "posterior"}):
        rounds = None if "iterations" in options else 20
        t = run("acct", shards, federation(rounds=rounds), rows_per_client=330, **options)
        close = 0.02 if options.get("search") == "posterior" else 1e-4
        assert softmax(z / t).max(axis=1).mean() == pytest.approx(
            accuracy(softmax(z), y), abs=close
        )


@methods
@pytest.mark.parametrize("c", [2, 4])
def test_the_exponential_search_without_privacy_is_the_best_of_the_grid(name: str, c: int) -> None:
    shards = some_shards(c)
    grid = np.exp(log_grid(0.5, 3.0, 31))
    each = [objective(name, shards.logits, shards.labels, t) for t in grid.tolist()]
    assert run(name, shards, search="exponential", points=31) == grid[int(np.argmin(each))]


def test_nll_is_cut_row_by_row() -> None:
    """One absurd row has no say if it is cut: the optimum stays that of the others."""
    shards = some_shards(seed=5, scale=1.0)
    logits = np.concatenate([shards.logits, [[4000.0, 0.0, 0.0, 0.0]]])
    labels, owner = np.append(shards.labels, 1), np.append(shards.owner, 3)
    odd = Shards.from_owner(logits, labels, owner, CLIENTS)
    assert run("nllt", odd) == run("nllt", shards)
    assert run("nllt", odd, nll_clip=1e9) > run("nllt", shards)


# --- noise ----------------------------------------------------------------------------------------


def plan_of(name: str, own: Federation, **options: Any) -> Plan:
    return method(name, own, **options).plan


@methods
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("k", [1, 5])
def test_the_laplace_scale_is_evaluations_times_sensitivity_over_epsilon(
    name: str, epsilon: float, k: int
) -> None:
    row = {"acct": 1.0, "nllt": 10.0, "ecet": 1.0}[name]
    for unit, options, sensitivity in (
        ("example", {}, row),
        ("user", {"clip": 3.5}, 3.5),
        ("user", {"rows_per_client": 200.0}, 200.0 if name == "nllt" else 16.0),
        ("user", {"rows_per_client": 2.0}, 10.0 if name == "nllt" else 2.0),
    ):
        for delta in (0.0, 1e-5):
            own = private(unit=unit, epsilon=epsilon, delta=delta)
            plan = plan_of(name, own, iterations=k, **options)
            assert (plan.mechanism, plan.rounds, plan.delta) == ("laplace", k + 1, 0.0)
            scale = (k + 1) * sensitivity / epsilon
            assert plan.noise_std == pytest.approx([math.sqrt(2) * scale], rel=1e-9)
    local = plan_of(name, private(unit="example", trust="local", epsilon=epsilon), iterations=k)
    scale = (k + 1) * row / epsilon
    assert local.noise_std == pytest.approx([math.sqrt(2 * CLIENTS) * scale], rel=1e-9)
    replaced = plan_of(name, private(trust="local", epsilon=epsilon), clip=1.0, iterations=k)
    scale = 2 * (k + 1) / epsilon
    assert replaced.noise_std == pytest.approx([math.sqrt(2 * CLIENTS) * scale], rel=1e-9)


def test_a_search_asks_as_often_as_it_plans() -> None:
    for search, rounds in (("golden", 6), ("bisection", 6), ("posterior", 3), ("exponential", 1)):
        plan = plan_of("acct", private(), search=search, rows_per_client=50.0)
        assert plan.rounds == rounds
        assert plan.mechanism == ("exponential" if rounds == 1 else "laplace")
    for search in ("golden", "bisection", "posterior"):
        assert plan_of("acct", private(rounds=4), search=search, rows_per_client=50.0).rounds == 4


def test_auto_takes_what_measured_best() -> None:
    def taken(name: str, own: Federation) -> str:
        strategy = method(name, own, search="auto", rows_per_client=50.0)
        return strategy.search  # type: ignore[attr-defined,no-any-return]

    for trust in ("central", "distributed", "local"):
        assert taken("acct", private(trust=trust)) == "posterior"
        at_once = "exponential" if trust == "central" else "golden"
        assert taken("nllt", private(trust=trust)) == at_once
        assert taken("ecet", private(trust=trust)) == at_once
    assert taken("acct", federation()) == taken("ecet", federation()) == "golden"
    # noise that the user names is for a sum, not for a draw
    assert taken("nllt", private(mechanism="laplace")) == "golden"
    assert taken("nllt", private(mechanism="exponential")) == "exponential"


@methods
def test_what_is_released_scatters_as_the_plan_says(name: str) -> None:
    """Nobody has rows, so that all is noise. 2/3 and 3/2 of its std are rejected."""
    none = np.zeros(0, np.int64)
    empty = Shards.from_owner(np.zeros((0, CLASSES)), none, none, CLIENTS)
    draws = []
    for seed in range(80):
        strategy = method(name, private(seed=seed), clip=2.0)
        run_inline(strategy, empty)
        assert 0.5 < temperature(strategy) < 3.0
        for release in strategy.releases:
            assert release.std == pytest.approx(np.full(len(release.std), 12 * math.sqrt(2)))
            draws.append(release.values / release.std)
    noise = np.concatenate(draws)
    tolerance = 4.5 * math.sqrt(5 / (4 * len(noise)))  # the kurtosis of Laplace noise is 6
    assert tolerance < 0.25
    assert abs(noise.std() - 1) < tolerance
    assert abs(noise.mean()) < 4.5 / math.sqrt(len(noise))


@methods
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("trust", ["central", "distributed", "local"])
def test_with_a_large_budget_it_finds_what_it_finds_without_noise(
    name: str, unit: str, trust: str
) -> None:
    shards = some_shards(rows=900, seed=2)
    own = private(epsilon=1e7, unit=unit, trust=trust)
    options = {"clip": 900.0} if unit == "user" else {}
    noisy = run(name, shards, own, iterations=3, **options)
    assert noisy == run(name, shards, iterations=3)


@methods
@pytest.mark.parametrize("unit", UNITS)
def test_the_exponential_search_with_a_large_budget_takes_the_best(name: str, unit: str) -> None:
    shards = some_shards(rows=900, seed=2)
    options = {"clip": 1e3} if unit == "user" else {}
    found = run(name, shards, private(epsilon=1e8, unit=unit), search="exponential", **options)
    assert found == run(name, shards, search="exponential")


def test_the_exponential_search_draws_with_the_stated_probabilities() -> None:
    """ECE-T: P(T) ~ exp(-epsilon S(T) / (2 C)), S(T) of clipped clients."""
    shards, points, clip = some_shards(rows=300), 5, 4.0
    grid = np.exp(log_grid(0.5, 3.0, points))
    total = np.zeros((points, 15))
    z = shifted(shards.logits)
    for i, t in enumerate(grid.tolist()):
        p = softmax(z / t).max(axis=1)
        gap = (shards.logits.argmax(axis=1) == shards.labels) - p
        bins = np.minimum((p * 15).astype(int), 14)
        for k in range(CLIENTS):
            of_k = np.bincount(bins[shards.owner == k], gap[shards.owner == k], 15)
            total[i] += of_k * min(1.0, clip / max(np.abs(of_k).sum(), 1e-12))
    weight = np.exp(-np.abs(total).sum(axis=1) / (2 * clip))
    want = weight / weight.sum()
    drawn = np.zeros(points)
    for seed in range(200):
        own = private(seed=seed)
        t = run("ecet", shards, own, search="exponential", points=points, clip=clip)
        drawn[grid.tolist().index(t)] += 1 / 200
    assert 0.05 < want.max() < 0.95
    assert np.abs(drawn - want).max() < 4.5 * math.sqrt(0.25 / 200)


def test_posterior_beats_golden_section_at_the_same_budget() -> None:
    shards = some_shards(rows=3000, seed=1)
    want = run("acct", shards, iterations=20)
    errors = {}
    for search in ("golden", "posterior"):
        off = [
            run("acct", shards, private(seed=s), search=search, rows_per_client=250.0, clip=15.0)
            - want
            for s in range(30)
        ]
        errors[search] = float(np.sqrt(np.mean(np.square(off))))
    assert errors["posterior"] < 0.6 * errors["golden"]


# --- how much a neighbour changes -----------------------------------------------------------------


def l1_change(whole: Shards, less: Shards, request: Request) -> Floats:
    """|change| of each number of the sum over clients, in the statistic's units."""
    sums = [answer(shards, request).sum(axis=0, dtype=np.uint64) for shards in (whole, less)]
    words = (sums[0] - sums[1]).view(np.int64)
    return np.asarray(np.abs(words * request.ring.grid))


def without(shards: Shards, gone: NDArray[np.bool_]) -> Shards:
    keep = ~gone
    return Shards.from_owner(
        shards.logits[keep], shards.labels[keep], shards.owner[keep], shards.clients
    )


@methods
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    c=st.integers(2, 12),
    scale=st.sampled_from([0.0, 0.3, 3.0, 1e3, 1e80]),
    exponential=st.booleans(),
)
def test_neighbours_differ_by_at_most_the_bound_in_every_query(
    name: str, seed: int, c: int, scale: float, exponential: bool
) -> None:
    shards = some_shards(c, rows=80, seed=seed, scale=scale)
    options = {"search": "exponential", "points": 4} if exponential else {"iterations": 2}
    sensitivity = {"acct": 1.0, "nllt": 10.0, "ecet": 1.0}[name]
    for unit in UNITS:
        more = {"clip": 1.75} if unit == "user" else {}
        most = 1.75 if unit == "user" else sensitivity
        strategy = method(name, private(classes=c, unit=unit, seed=seed), **options, **more)
        client = 1 + seed % (CLIENTS - 2)
        gone = shards.owner == client if unit == "user" else np.arange(80) == seed % 80
        less = without(shards, gone)
        for number in range(1, strategy.plan.rounds + 1):
            asked = strategy.open_round(number)
            assert asked is not None
            change = l1_change(shards, less, asked.request)
            candidates = 4 if exponential else 1
            assert (change.reshape(candidates, -1).sum(axis=1) <= most).all()
            total = answer(shards, asked.request).sum(axis=0, dtype=np.uint64)
            strategy.charge_round(asked, CLIENTS)
            strategy.close_round(asked, total)


@methods
def test_a_large_client_is_clipped_to_exactly_its_bound(name: str) -> None:
    shards = some_shards(rows=3000)
    strategy = method(name, private(), clip=0.5)
    asked = strategy.open_round(1)
    assert asked is not None
    words = answer(shards, asked.request).view(np.int64) * asked.request.ring.grid
    sizes = np.abs(words).sum(axis=1)
    assert (sizes[[0, -1]] == 0).all()
    assert sizes[1:-1] == pytest.approx(np.full(CLIENTS - 2, 0.5), rel=0.005)
    assert (sizes <= 0.5).all()


@methods
def test_for_unit_example_no_client_is_clipped(name: str) -> None:
    shards = some_shards(rows=3000)
    exact, noisy = method(name), method(name, private(unit="example"))
    answers = []
    for strategy in (exact, noisy):
        asked = strategy.open_round(1)
        assert asked is not None
        words = answer(shards, asked.request).view(np.int64) * asked.request.ring.grid
        answers.append(words)
    # each row is rounded to the grid by itself
    assert answers[1] == pytest.approx(answers[0], abs=shards.rows.max() * noisy.plan.grid)
    assert np.abs(answers[0]).sum(axis=1).max() > 15


# --- edges ----------------------------------------------------------------------------------------


@methods
@pytest.mark.parametrize("search", ["golden", "exponential"])
def test_nobody_with_rows_leaves_the_model_as_it_is(name: str, search: str) -> None:
    none = np.zeros(0, np.int64)
    empty = Shards.from_owner(np.zeros((0, CLASSES)), none, none, CLIENTS)
    assert temperature(method(name, search=search)) == 1.0
    assert run(name, empty, search=search) == 1.0


@pytest.mark.parametrize("search", ["golden", "bisection", "posterior"])
def test_a_round_in_which_nobody_is_asked_tells_the_search_nothing(search: str) -> None:
    own = private(trust="local", unit="example", sampling_rate=1e-9)
    strategy = method("acct", own, search=search, rows_per_client=50.0)
    run_inline(strategy, some_shards())
    assert len(strategy.releases) == strategy.plan.rounds
    assert not any(release.std.any() for release in strategy.releases)
    assert temperature(strategy) == 1.0


def test_the_result_so_far_is_the_middle_of_the_interval() -> None:
    strategy = method("acct")
    asked = strategy.query(1)
    assert asked is not None
    assert asked.params() == {"temperatures": 3.0 - 2.5 * RATIO}
    strategy.update(Release(1, asked.kind, np.array([5.0]), np.zeros(1)))
    assert temperature(strategy) == 1.75
    strategy.update(Release(2, asked.kind, np.array([9.0]), np.zeros(1)))
    assert temperature(strategy) == (0.5 + 0.5 + 2.5 * RATIO) / 2


def test_acct_lowers_the_calibration_error_of_fresh_rows() -> None:
    shards = some_shards(rows=4000, seed=7)
    fresh = some_shards(rows=4000, seed=8)
    t = run("acct", shards, private(unit="example"))
    before, after = (ece(softmax(fresh.logits / x), fresh.labels) for x in (1.0, t))
    assert after < 0.5 * before


@pytest.mark.parametrize(
    ("name", "own", "options", "words"),
    [
        ("nllt", {}, {"search": "bisection"}, "needs an objective with a sign, and nllt has none"),
        ("ecet", {}, {"search": "posterior"}, "needs an objective with a sign, and ecet has none"),
        ("acct", {}, {"search": "grid"}, "unknown search 'grid'"),
        ("acct", {"epsilon": 1.0}, {}, "rows_per_client"),
        ("acct", {}, {"search": "posterior"}, "rows_per_client"),
        ("acct", {"epsilon": 1.0}, {"clip": 0.0}, "clip must be a finite number > 0"),
        ("acct", {"epsilon": 1.0}, {"rows_per_client": -1}, "rows_per_client"),
        (
            "acct",
            {"epsilon": 1.0, "unit": "example"},
            {"clip": 3.0},
            "clip has no effect here: unit 'example'",
        ),
        ("acct", {}, {"low": 3.0, "high": 0.5}, "low < high"),
        ("acct", {}, {"low": 0.0}, "> 0"),
        ("acct", {}, {"iterations": 0}, "iterations"),
        ("acct", {"rounds": 1}, {}, "at least 2"),
        ("acct", {"rounds": 5}, {"iterations": 5}, "iterations = 5 take 6 rounds"),
        ("acct", {"rounds": 2}, {"search": "exponential"}, "rounds must be 1"),
        ("acct", {}, {"search": "exponential", "iterations": 5}, "rounds must be 1"),
        ("acct", {}, {"search": "exponential", "points": 1}, "points"),
        ("nllt", {}, {"nll_clip": 0}, "nll_clip"),
        ("ecet", {}, {"bins": 0}, "bins"),
    ],
)
def test_bad_settings_are_refused(
    name: str, own: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as error:
        method(name, federation(**own), **options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@methods
@pytest.mark.parametrize("trust", ["distributed", "local"])
def test_the_exponential_search_needs_a_trusted_server(name: str, trust: str) -> None:
    with pytest.raises(InputError, match="'exponential' needs trust 'central'"):
        method(name, private(trust=trust), search="exponential", clip=1.0)


def test_they_are_registered() -> None:
    assert {name: STRATEGIES[name] for name in METHODS} == METHODS
