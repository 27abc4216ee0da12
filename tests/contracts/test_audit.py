"""Every mechanism under attack: none tells more than it claims, and each mistake is caught.

The first half runs the audit on right mechanisms: no lower bound may pass its claim (all of them
together with probability 1e-3), and those that can come close must, or the attack is too weak to
mean anything. The second half breaks one thing at a time.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiments import audit as attacks
from experiments.audit import Finding, audit, epsilon_lower_bound
from experiments.studies.own import audits as benchmark
from experiments.studies.own.audits import CANDIDATES, Attacked, attacked
from fedcal.core.scores import rows_by_owner
from fedcal.privacy import Federation
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.histograms import DPHistogram
from fedcal.units import Bound

ERROR = 1e-3  # of all cells together, and of each broken mechanism
FAST = 60_000


def trials_of(cell: Attacked) -> int:
    """So many that the attack means something in a second."""
    if cell.mechanism == "exponential":
        return FAST  # of which a quarter is run
    if cell.mechanism == "unary":
        return FAST // 3
    if cell.mechanism == "laplace" and cell.trust == "distributed":
        return FAST // 3
    return FAST


CELLS = [cell for cell in benchmark.attacks() if cell.unit == "user" or not cell.row_sums]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_no_mechanism_spends_more_than_it_claims(cell):
    finding = attacked(cell, trials_of(cell), ERROR)
    assert not finding.refuted
    assert (finding.claimed, finding.error) == (1.0, ERROR / len(benchmark.attacks()))
    if cell.kind.pure and cell.noise_source == "seeded":  # others draw anew each time
        assert finding.lower_bound >= (0.4 if cell.mechanism == "exponential" else 0.6)


@pytest.mark.slow
@pytest.mark.parametrize(("trust", "unit"), [("central", "user"), ("distributed", "subject")])
def test_complete_runs_of_a_method_keep_their_claim(trust, unit):
    """Rows in, releases out, thousands of times with and without the rows of one unit.

    The attacker looks at the cell in which these rows are.
    """
    rng = np.random.default_rng(0)
    rows, clients, runs = 60, 4, 2500
    logits, labels = rng.normal(0, 1, (rows, 2)), rng.integers(0, 2, rows)
    owner = np.arange(rows) % clients
    logits[owner == 0], labels[owner == 0] = (3.0, 0.0), 0  # all of the unit's in one cell
    subjects = np.arange(rows) // (2 * clients)  # two rows of each client
    of_unit = (owner == 0) & ((subjects == 0) | (unit == "user"))

    def releases(keep: np.ndarray, present: bool) -> list[float]:
        own = rows_by_owner(
            logits[keep], labels[keep], owner[keep], clients, subjects=subjects[keep]
        )
        found = []
        for seed in range(runs):
            promise = {"epsilon": 1.0, "delta": 0.0, "unit": unit, "trust": trust, "quorum": 1.0}
            federation = Federation(clients, 2, seed=2 * seed + present, **promise)
            change: dict[str, Any] = {"clip": 3.0} if unit == "user" else {}
            method = DPHistogram(federation, bins=5, secure_aggregation="none", **change)
            run_inline(method, own)
            found.append(float(method.releases[0].values[4]))
        return found

    everything = np.ones(rows, bool)
    found = epsilon_lower_bound(
        releases(everything, True), releases(~of_unit, False), error=ERROR / 5
    )
    assert 0.4 < found <= 1.0


def test_the_bound_is_wrong_as_rarely_as_it_says():
    """Randomised response, whose epsilon is known, with an error that can be counted."""
    rng = np.random.default_rng(0)
    epsilon, error, repeats = 1.0, 0.2, 400
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    wrong = 0
    for _ in range(repeats):
        present, absent = rng.random(1000) < truth, rng.random(1000) >= truth
        wrong += epsilon_lower_bound(present * 1.0, absent * 1.0, error=error) > epsilon
    assert wrong <= repeats * error / 2 + 5 * math.sqrt(repeats * error / 2)


def test_worlds_that_differ_for_certain_are_bounded_by_the_trials_only():
    n = 2000
    found = epsilon_lower_bound(np.ones(n), np.zeros(n), error=0.02)
    # n / 2 hits, no alarm: log of error / 2 to the power of +- 2 / n
    rate = 0.01 ** (2 / n)
    assert found == pytest.approx(math.log(rate / (1 - rate)), rel=1e-9)
    assert epsilon_lower_bound(np.zeros(n), np.ones(n), error=0.02) == found  # either way round
    assert epsilon_lower_bound(np.ones(n), np.zeros(n), delta=0.999, error=0.02) == 0.0


def refuted(finding: Finding) -> bool:
    assert finding.claimed == 1.0
    return finding.refuted


@pytest.mark.parametrize(
    ("mechanism", "trust"),
    [("laplace", "central"), ("laplace", "distributed"), ("gaussian", "local")],
)
def test_half_of_the_sensitivity_is_caught(mechanism, trust, monkeypatch):
    cell = Attacked(mechanism, trust, "user")
    # A Gaussian's loss is far in its tails: it takes more trials to show half of the noise.
    trials = trials_of(cell) if "laplace" in mechanism else 6 * FAST
    plan = cell.plan()
    for name in ("sensitivity", "l1_sensitivity"):
        monkeypatch.setattr(Bound, name, _half(getattr(Bound, name).fget))
    assert refuted(audit(replace(plan), trials))  # the copy has no cached grid


def _half(right: Callable[[Bound], float]) -> property:
    return property(lambda bound: right(bound) / 2)


@pytest.mark.parametrize("mechanism", ["laplace", "exponential"])
def test_a_clipped_client_under_unit_example_is_caught(mechanism):
    """One row more turns a clipped sum from one end of the client's bound to the other."""
    numbers = CANDIDATES if mechanism == "exponential" else 1
    plan = Attacked(mechanism, "central", "example", numbers=numbers).plan()
    assert plan.diameter == 1
    wrong = Attacked(mechanism, "central", "example", numbers=numbers, row_sums=False).plan()
    assert wrong.diameter == 2
    before = attacks.worst_pair(wrong)[0] * 1e3
    pair = (before, before - 2 * before)  # the client's other rows, and with one row of -2 of them
    trials = FAST if mechanism == "laplace" else FAST // 4
    assert refuted(audit(plan, trials, pair=pair))
    assert not refuted(audit(wrong, FAST // 8, pair=pair))


def test_amplification_without_sampling_is_caught():
    plan = Attacked("laplace", "central", "user", sampling_rate=0.3).plan()
    wrong = replace(plan, federation=replace(plan.federation, sampling_rate=1.0))
    assert refuted(audit(wrong, FAST // 3))
