"""When something goes wrong: both engines stop in the same way, and release nothing they may not.

What only the Flower engine can meet (malformed or lying clients) stands in `test_flower_grid`.
"""

import math
from typing import Any

import numpy as np
import pytest
from refusals import refused
from strategy_checks import some_shards

from experiments.benchmarks.in_process import run_in_process
from fedcal.clients.questions.temperature import TemperatureNewton
from fedcal.core import checks
from fedcal.privacy.curator import Release
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies import FederatedStrategy
from fedcal.strategies.methods.newton import FedNewton

CLIENTS, CLASSES = 12, 3
engines = pytest.mark.parametrize("run", [run_inline, run_in_process])


@pytest.fixture
def shards():
    return some_shards(CLASSES, rows=120, clients=CLIENTS)


@pytest.fixture
def ledger():
    return Ledger(None, 1.5)


def newton(
    epsilon: float = 1.0, rounds: int = 3, rate: float = 1.0, **options: Any
) -> FederatedStrategy:
    federation = Federation(
        CLIENTS, CLASSES, rounds=rounds, sampling_rate=rate, epsilon=epsilon, seed=2
    )
    return FedNewton(federation, rows_per_client=10, **options)


@engines
def test_all_clients_fail_in_a_round(run, shards, ledger):
    masks = "none" if run is run_inline else "masks"
    strategy = newton(ledger=ledger, secure_aggregation=masks)
    noted: list[Release] = []
    strategy.on_release = noted.append
    with pytest.raises(checks.RoundFailed, match="none answered") as caught:
        run(strategy, shards, unavailable=lambda number: np.arange(CLIENTS))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1
    assert (strategy.releases, noted) == ([], [])
    assert ledger.entries() == ()
    assert ledger.spent() == (0.0, 0.0)  # the budget is there again


@engines
def test_a_contribution_that_leaves_the_ring_is_refused_without_privacy_too(run, shards):
    shards.logits[5] = [1e30, -1e30, 0.0]
    shards.labels[5] = 1
    strategy = newton(math.inf)
    with pytest.raises(checks.FedcalError, match="leaves the ring's range") as caught:
        run(strategy, shards)
    assert strategy.releases == []
    assert "e+30" not in str(caught.value)  # the message leaves the client, the value must not
    assert "\n" not in str(caught.value)
    assert isinstance(
        caught.value, checks.ContributionRefused if run is run_inline else checks.RoundFailed
    )


@engines
def test_an_error_of_a_client_releases_nothing_and_one_of_the_learner_keeps_the_charge(
    run, shards, monkeypatch
):
    def of_client(*_: Any) -> Any:
        raise checks.ContributionRefused("a secret of a client")

    def of_learner(self: FedNewton, release: Release) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(TemperatureNewton, "sums", of_client)
        ledger = Ledger(None, 1.5)
        strategy = newton(ledger=ledger)
        line = "a secret" if run is run_inline else "a sampled client failed"
        refused(line, run, strategy, shards, error=checks.FedcalError)
        assert strategy.releases == []
        # Over messages answers are there before they are charged and added up; inline is one step.
        assert len(ledger.entries()) == (1 if run is run_inline else 0)
    monkeypatch.setattr(FedNewton, "update", of_learner)
    ledger = Ledger(None, 1.5)
    with pytest.raises(ZeroDivisionError):  # the release was made before it looked at it
        run(newton(ledger=ledger), shards)
    assert ledger.entries()[0].charged == (1,)


def test_the_ledger_is_charged_before_anything_is_added_up(shards, ledger, monkeypatch):
    order: list[str] = []
    charge, close = Ledger.charge, FederatedStrategy.close_round

    def charged(self: Ledger, run: str, number: int) -> None:
        order.append("charge")
        charge(self, run, number)

    def closed(self: FederatedStrategy, *args: Any) -> Any:
        order.append("close")
        return close(self, *args)

    monkeypatch.setattr(Ledger, "charge", charged)
    monkeypatch.setattr(FederatedStrategy, "close_round", closed)
    run_in_process(newton(ledger=ledger), shards)
    assert order == ["charge", "close"] * 3
