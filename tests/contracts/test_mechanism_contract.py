"""Promises of every mechanism about its own numbers and releases, under every trust model.

Cases come from the registries, bounds from the mechanisms' own `examples`.
"""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from experiments.benchmarks.in_process import run_in_process
from fedcal.calibrators import Calibrator, Identity
from fedcal.clients.answers import answer
from fedcal.clients.questions.temperature import TemperatureScores
from fedcal.core.checks import RoundFailed
from fedcal.core.numerics import Purpose, stream
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.mechanisms import PRIVATE, Mechanism
from fedcal.privacy import Federation, Ledger, Plan, make_plan
from fedcal.privacy.curator import Curator, Release
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import FederatedStrategy
from fedcal.trust import NOISY, Trust
from fedcal.units import UNITS, Bound

CLIENTS, DRAWS = 10, 2000
CASES = [
    (kind, trust, kind.examples[i])
    for kind, trust in product(PRIVATE.values(), NOISY.values())
    if trust.accepts(kind)
    for i in range(len(kind.examples))
]
every_case = pytest.mark.parametrize(
    ("kind", "trust", "example"),
    CASES,
    ids=[f"{kind.name}-{trust.name}-{sum(e['lengths'])}" for kind, trust, e in CASES],
)


def unit_of(kind: type[Mechanism]) -> str:
    return next(name for name, unit in UNITS.items() if kind.part in (None, unit.per))


def plan_of(kind: type[Mechanism], trust: Trust, example: Any, **change: Any) -> Plan:
    fields: dict[str, Any] = {"clients": CLIENTS, "classes": 2, "epsilon": 1.0}
    fields |= {"trust": trust.name, "mechanism": kind.name, "unit": unit_of(kind)}
    federation = Federation(**fields | ({"quorum": 0.8} if trust.shared else {}) | change)
    return make_plan(federation, rounds=1, bound=Bound(**example), prefers=(kind,), row_sums=True)


def released(plan: Plan, times: int) -> np.ndarray:
    """Return the releases of so many rounds without any rows, (times, length)."""
    assert plan.noise is not None
    wide = replace(plan.noise, lengths=tuple(n * times for n in plan.noise.lengths))
    nothing, source = np.zeros(sum(wide.lengths), np.uint64), stream(7, Purpose.NOISE, 0, plan.key)
    if plan.model.noise_by == "client":
        answers = [plan.mechanism.client(nothing, plan.ring, wide, source) for _ in range(CLIENTS)]
    else:
        answers = [plan.ring.add(nothing, wide.draw(source))]
    blocks = np.split(np.sum(answers, axis=0, dtype=np.uint64), np.cumsum(wide.lengths)[:-1])
    rounds = np.concatenate([block.reshape(times, -1) for block in blocks], axis=1)
    of = plan.sum_of(plan.bound, CLIENTS)
    return np.array(
        [plan.mechanism.release(plan.ring.decode(r), of, lambda: source)[0] for r in rounds]
    )


@every_case
def test_the_stated_std_is_that_of_what_is_released_and_the_ring_has_room_for_it(
    kind, trust, example
):
    plan = plan_of(kind, trust, example)
    if kind.answers == "index":
        assert plan.noise_std is None
        return
    values = released(plan, DRAWS)
    std = plan.std_of_sum(CLIENTS)
    ratio = float(np.sqrt((values**2).mean(axis=0) / std**2).mean())
    assert 0.87 < ratio < 1.13, "neither 2/3 nor 3/2 of it"
    assert np.abs(values.mean(axis=0)).max() < 6 * std.max() / math.sqrt(len(values))
    firsts = plan.std_of_sum(trust.expected(1.0, CLIENTS))[plan.bound.firsts]
    assert plan.noise_std == tuple(firsts.tolist())
    scales = kind.scale(plan.mechanism, plan.bound, plan.diameter)
    if len(scales):
        room = plan.mechanism.tail(plan.noise_copies(CLIENTS)) * scales.max()
        assert plan.ring.headroom * plan.grid >= room
        assert np.abs(values).max() < room


@every_case
def test_more_budget_is_less_noise_and_a_neighbour_twice_as_far_more(kind, trust, example):
    plans = [plan_of(kind, trust, example, epsilon=e) for e in (0.5, 1.0, 2.0)]
    if kind.answers == "index":
        assert [p.mechanism.epsilon for p in plans] == [0.5, 1.0, 2.0]
        return
    stds = [float(p.std_of_sum(CLIENTS)[0]) for p in plans]
    assert stds[0] > stds[1] > stds[2]
    bound, made = plans[1].bound, plans[1].mechanism
    assert bound is not None
    np.testing.assert_allclose(made.scale(bound, 2), 2 * made.scale(bound, 1), rtol=1e-12)


# --- what runs release ---

SITES = 20
TRUSTED = [
    (kind.name, trust.name)
    for trust, kind in product(NOISY.values(), PRIVATE.values())
    if kind.answers == "sum" and trust.accepts(kind)
]
trusted = pytest.mark.parametrize(("mechanism", "trust"), TRUSTED)


class Sums(FederatedStrategy):
    """Asks for clipped scores, once a round, and keeps what is released."""

    name = "sums"

    rounds: int = 1
    length: int = 50

    def prepare(self) -> Plan:
        bound = Bound((self.length,), (2.0,), "joint")
        return make_plan(self.federation, rounds=self.rounds, bound=bound, row_sums=True)

    def query(self, round_number: int) -> TemperatureScores:
        return TemperatureScores(0.25, 8.0, self.length)

    def update(self, release: Release) -> None:
        pass

    def result(self) -> Calibrator:
        return Identity(self.classes)


def some_rows() -> Shards:
    rng = np.random.default_rng(5)
    owner = rng.integers(1, SITES, 300)  # the first client has no rows
    logits, labels = rng.normal(0, 3, (300, 3)), rng.integers(0, 3, 300)
    return rows_by_owner(logits, labels, owner, SITES, subjects=np.arange(300) % 7)


def sums_of(mechanism: str, trust: str, **change: Any) -> Sums:
    fields: dict[str, Any] = {"clients": SITES, "classes": 3, "epsilon": 1.0, "quorum": 0.75}
    own = ("rounds", "length", "secure_aggregation", "ledger")
    base = {k: change.pop(k) for k in own if k in change}
    federation = Federation(**fields | {"mechanism": mechanism, "trust": trust} | change)
    return Sums(federation, **base)


MASKED = {"secure_aggregation": "masks"}


def exact_sum(strategy: Sums, shards: Shards, alive: list[int]) -> np.ndarray:
    """Return the sum of these clients' answers, without noise and coins."""
    asked = Curator(strategy.plan).open(1, strategy.query(1))
    words = answer(shards.take(np.array(alive)), asked.request)
    return np.asarray(asked.request.ring.decode(words.sum(axis=0, dtype=np.uint64)))


@trusted
@pytest.mark.parametrize("gone", [(), (0, 1, 2, 7, 19)])
def test_dropouts_never_leave_less_noise_than_promised(mechanism, trust, gone):
    strategy = sums_of(mechanism, trust, length=2000)
    shards = some_rows()
    alive = [k for k in range(SITES) if k not in gone]
    run_inline(strategy, shards, unavailable=lambda r: np.array(gone, np.int64))
    (release,) = strategy.releases
    noise = release.values - exact_sum(strategy, shards, alive)
    np.testing.assert_allclose(noise.std(), release.std[0], rtol=0.12)
    promised = sums_of(mechanism, "central", length=2000).plan.std_of_sum(SITES)[0]
    assert release.std[0] >= promised * (1 - 1e-12)
    assert noise.std() > 0.88 * promised


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("engine", [run_inline, run_in_process])
def test_an_undersized_round_stops_before_its_sum_is_unmasked(mechanism, engine, monkeypatch):
    """15 of 20 must answer. With 14 no mask is taken off, and nothing is charged."""
    unmasked: list[Any] = []
    monkeypatch.setattr("fedcal.strategies.server.transport.unmask", lambda *a: unmasked.append(a))
    monkeypatch.setattr("fedcal.run.engines.inline.contribute", lambda *a: unmasked.append(a))
    with Ledger(None, 1.0) as ledger:
        strategy = sums_of(mechanism, "distributed", ledger=ledger, **MASKED)
        with pytest.raises(RoundFailed, match=r"14 of 20 clients answered.*at least 15") as error:
            engine(strategy, some_rows(), unavailable=lambda r: np.arange(6))
        assert "\n" not in str(error.value)
        assert (unmasked, strategy.releases, ledger.entries()) == ([], [], ())


@trusted
def test_rounds_seeds_and_the_operating_system_share_no_noise(mechanism, trust):
    shards, seen = some_rows(), []
    for source in ("seeded", "seeded", "system", "system"):
        strategy = sums_of(
            *(mechanism, trust), rounds=2, seed=len(seen), length=400, noise_source=source
        )
        run_inline(strategy, shards)
        exact = exact_sum(strategy, shards, list(range(SITES)))
        seen += [(r.values - exact) / r.std for r in strategy.releases]
    assert np.abs(np.corrcoef(seen) - np.eye(8)).max() < 6 / math.sqrt(400)
