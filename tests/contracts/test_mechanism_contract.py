"""Every mechanism, attacked: what a run releases must not tell neighbours apart beyond epsilon.

The audit: one client contributes all that its bound allows, or nothing. An attacker sees all
releases of the run and guesses by the optimal threshold. From the rates of its right and wrong
guesses follows a lower bound on epsilon (Clopper-Pearson; Jagielski et al. 2020), which must not
pass the claim, and which does pass it if the noise is half of what it should be.
"""

import math
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from experiments.benchmarks.in_process import run_in_process
from fedcal.calibrators import Calibrator, Identity
from fedcal.clients.answers import answer
from fedcal.clients.questions.temperature import TemperatureScores
from fedcal.core.checks import RoundFailed
from fedcal.core.shards import Shards
from fedcal.mechanisms import PRIVATE
from fedcal.privacy import Federation, Ledger, make_plan
from fedcal.privacy.curator import Curator, Release
from fedcal.privacy.noise_plan import Plan
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import FederatedStrategy
from fedcal.trust import NOISY
from fedcal.units import UNITS, Bound

CLIENTS = 20
TRUSTED = [
    (law.name, trust.name)
    for trust, law in product(NOISY.values(), PRIVATE.values())
    if law.answers == "sum" and trust.accepts(law)
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
    owner = rng.integers(1, CLIENTS, 300)  # the first client has no rows
    logits, labels = rng.normal(0, 3, (300, 3)), rng.integers(0, 3, 300)
    return Shards.from_owner(logits, labels, owner, CLIENTS, subjects=np.arange(300) % 7)


def sums_of(mechanism: str, trust: str, **change: Any) -> Sums:
    fields: dict[str, Any] = {"clients": CLIENTS, "classes": 3, "epsilon": 1.0, "quorum": 0.75}
    own = ("rounds", "length", "secure_aggregation", "ledger")
    base = {k: change.pop(k) for k in own if k in change}
    federation = Federation(**fields | {"mechanism": mechanism, "trust": trust} | change)
    return Sums(federation, **base)


MASKED = {"secure_aggregation": "masks"}


def exact_sum(strategy: Sums, shards: Shards, alive: list[int]) -> np.ndarray:
    """What the answers of these clients add up to, without noise and coins."""
    asked = Curator(strategy.plan).open(1, strategy.query(1))
    words = answer(shards.take(np.array(alive)), asked.request)
    return np.asarray(asked.request.ring.decode(words.sum(axis=0, dtype=np.uint64)))


@trusted
@pytest.mark.parametrize("unit", UNITS)
def test_both_engines_release_the_same_bits(mechanism, trust, unit):
    rate = (1.0, 0.5)[(TRUSTED.index((mechanism, trust)) + list(UNITS).index(unit)) % 2]
    change: dict[str, Any] = {"unit": unit, "sampling_rate": rate}
    runs = []
    for drive, masks in (
        (run_inline, "none"),
        (run_inline, "masks"),
        (partial(run_inline, block=3), "masks"),
        (run_in_process, "masks"),
        (run_in_process, "none"),
    ):
        strategy = sums_of(mechanism, trust, secure_aggregation=masks, **change)
        drive(strategy, some_rows())
        (release,) = strategy.releases
        runs.append((release.values.tobytes(), release.std.tobytes()))
    assert len(set(runs)) == 1


@trusted
@pytest.mark.parametrize("gone", [(), (0, 7, 19), (1, 2, 3, 4, 5)])
def test_dropouts_never_leave_less_noise_than_promised(mechanism, trust, gone):
    strategy = sums_of(mechanism, trust, length=2000)
    shards = some_rows()
    alive = [k for k in range(CLIENTS) if k not in gone]
    run_inline(strategy, shards, unavailable=lambda r: np.array(gone, np.int64))
    (release,) = strategy.releases
    noise = release.values - exact_sum(strategy, shards, alive)
    np.testing.assert_allclose(noise.std(), release.std[0], rtol=0.12)
    promised = sums_of(mechanism, "central", length=2000).plan.std_of_sum(CLIENTS)[0]
    assert release.std[0] >= promised * (1 - 1e-12)
    assert noise.std() > 0.88 * promised


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("engine", [run_inline, run_in_process])
def test_an_undersized_round_stops_before_its_sum_is_unmasked(mechanism, engine, monkeypatch):
    """15 of 20 must answer. With 14 no mask is taken off, and nothing is charged."""
    told: list[Any] = []
    monkeypatch.setattr("fedcal.strategies.server.transport.unmask", lambda *a: told.append(a))
    monkeypatch.setattr("fedcal.run.engines.inline.contribute", lambda *a: told.append(a))
    with Ledger(None, 1.0) as ledger:
        strategy = sums_of(mechanism, "distributed", ledger=ledger, **MASKED)
        with pytest.raises(RoundFailed, match=r"14 of 20 clients answered.*at least 15") as error:
            engine(strategy, some_rows(), unavailable=lambda r: np.arange(6))
        assert "\n" not in str(error.value)
        assert (told, strategy.releases, ledger.entries()) == ([], [], ())


@pytest.mark.parametrize("engine", [run_inline, run_in_process])
def test_a_later_undersized_round_stays_charged(engine):
    with Ledger(None, 1.0) as ledger:
        strategy = sums_of("auto", "distributed", rounds=3, ledger=ledger, **MASKED)
        with pytest.raises(RoundFailed, match="round 2"):
            engine(strategy, some_rows(), unavailable=lambda r: np.arange(6 if r == 2 else 5))
        assert len(strategy.releases) == 1
        assert [e.charged for e in ledger.entries()] == [(1,)]


def test_the_mean_of_sums_with_coins_is_the_rate_times_the_sum():
    shards, rate, runs = some_rows(), 0.25, 80
    got = []
    for seed in range(runs):
        strategy = sums_of("gaussian", "distributed", sampling_rate=rate, seed=seed, length=20)
        run_inline(strategy, shards)
        got.append(strategy.releases[0].values)
    want = rate * exact_sum(strategy, shards, list(range(CLIENTS)))
    error = np.std(got, axis=0) / math.sqrt(runs)
    assert (np.abs(np.mean(got, axis=0) - want) < 5 * error).all()


@trusted
def test_rounds_seeds_and_the_operating_system_share_no_noise(mechanism, trust):
    shards, seen = some_rows(), []
    for source in ("seeded", "seeded", "system", "system"):
        strategy = sums_of(
            *(mechanism, trust), rounds=2, seed=len(seen), length=400, noise_source=source
        )
        run_inline(strategy, shards)
        exact = exact_sum(strategy, shards, list(range(CLIENTS)))
        seen += [(r.values - exact) / r.std for r in strategy.releases]
    correlation = np.corrcoef(seen) - np.eye(8)
    assert np.abs(correlation).max() < 6 / math.sqrt(400)
