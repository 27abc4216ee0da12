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
from laws import prefer

from experiments import audit as attacks
from experiments.audit import Finding, audit, epsilon_lower_bound
from experiments.studies.own import audits as benchmark
from experiments.studies.own.audits import CANDIDATES, Attacked, attacked
from fedcal.clients.answers import contribute
from fedcal.core.numerics import Purpose, stream
from fedcal.core.shards import Shards
from fedcal.mechanisms import Laplace, choice
from fedcal.privacy import Federation, make_plan
from fedcal.run.engines.inline import run_inline
from fedcal.strategies.methods.histograms import DPHistogram
from fedcal.trust import NOISY
from fedcal.units import Bound

ERROR = 1e-3  # of all cells together, and of each broken mechanism
FAST = 60_000

every_cell = pytest.mark.parametrize("cell", benchmark.attacks(), ids=str)


def trials_of(cell: Attacked) -> int:
    """So many that the attack means something in a second."""
    if cell.mechanism == "exponential":
        return 2 * FAST  # of which a quarter is run
    if cell.mechanism == "unary":
        return FAST // 3 if cell.noise_source == "system" else FAST
    if cell.mechanism == "laplace" and cell.trust == "distributed":
        return FAST // 3
    return FAST


@every_cell
def test_no_mechanism_spends_more_than_it_claims(cell):
    finding = attacked(cell, trials_of(cell), ERROR)
    assert not finding.refuted
    assert (finding.claimed, finding.error) == (1.0, ERROR / len(benchmark.attacks()))
    if cell.law.pure and cell.noise_source == "seeded":  # others draw anew each time
        assert finding.lower_bound >= within_reach(cell) * finding.claimed


def within_reach(cell: Attacked) -> float:
    """Part of the claim that so few trials must find. A sampled index says less than a sum."""
    return 0.4 if cell.mechanism == "exponential" and cell.sampling_rate < 1 else 0.6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trust", "unit"),
    [(t, "user") for t in NOISY] + [("local", "example"), ("distributed", "subject")],
)
def test_whole_runs_of_a_method_keep_their_claim(trust, unit):
    """Rows in, releases out, thousands of times with and without one unit's rows.

    The attacker looks at the cell in which the unit's rows are: in the release, or under `local` in
    the message of the unit's client.
    """
    rng = np.random.default_rng(0)
    rows, clients, runs = 60, 4, 2500
    logits, labels = rng.normal(0, 1, (rows, 2)), rng.integers(0, 2, rows)
    owner = np.arange(rows) % clients
    logits[owner == 0], labels[owner == 0] = (3.0, 0.0), 0  # all of the unit's in one cell
    about = np.arange(rows) // (2 * clients)  # two rows of each client
    mine = {
        "user": owner == 0,
        "subject": (owner == 0) & (about == 0),
        "example": np.arange(rows) == 0,
    }[unit]
    worlds = {}
    for present in (True, False):
        keep = ~mine | present
        worlds[present] = Shards.from_owner(
            logits[keep], labels[keep], owner[keep], clients, subjects=about[keep]
        )

    def seen(present: bool) -> list[float]:
        found = []
        for seed in range(runs):
            promise = {"epsilon": 1.0, "delta": 0.0, "unit": unit, "trust": trust, "quorum": 1.0}
            federation = Federation(clients, 2, seed=2 * seed + present, **promise)
            change: dict[str, Any] = {"clip": 3.0} if unit == "user" else {}
            method = DPHistogram(federation, bins=5, secure_aggregation="none", **change)
            if trust == "local":
                asked = method.open_round(1)
                sent = contribute(worlds[present], asked.request, asked.clients)
                found.append(float(asked.request.ring.decode(sent[0])[4]))
            else:
                run_inline(method, worlds[present])
                found.append(float(method.releases[0].values[4]))
        return found

    found = epsilon_lower_bound(seen(True), seen(False), error=ERROR / 5)
    # Rows taken away are half of what the noise of replaced ones is for.
    assert (0.05 if (trust, unit) == ("local", "user") else 0.4) < found <= 1.0


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


def test_more_trials_come_closer_and_no_difference_tells_nothing():
    rng = np.random.default_rng(1)
    found = [
        epsilon_lower_bound(rng.laplace(1.0, 1.0, n), rng.laplace(0.0, 1.0, n))
        for n in (1000, 10_000, 300_000)
    ]
    assert found[0] < found[1] < found[2] <= 1.0
    assert found[2] > 0.95
    for n in (100, 100_000):
        assert epsilon_lower_bound(rng.laplace(size=n), rng.laplace(size=n)) == 0.0
        assert epsilon_lower_bound(np.zeros(n), np.zeros(n)) == 0.0


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
    [
        *(("laplace", trust) for trust in ("central", "distributed", "local")),
        *(("gaussian", trust) for trust in ("central", "distributed", "local")),
    ],
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


@pytest.mark.parametrize("rounds", [2, 3])
def test_a_query_that_the_budget_forgot_is_caught(rounds):
    """Noise for `rounds` - 1 releases, and so many are made."""
    plan = Attacked("laplace", "central", "user", rounds=rounds - 1).plan()
    assert refuted(audit(replace(plan, rounds=rounds), 4 * FAST))


@pytest.mark.parametrize(("there", "caught"), [(4, False), (3, True)])
def test_three_quarters_of_the_shares_are_caught(there, caught):
    federation = Federation(
        clients=10, classes=2, epsilon=1.0, delta=0.0, trust="distributed", quorum=0.4
    )
    plan = make_plan(federation, rounds=1, bound=Bound((1,), (2.5,)), prefers=prefer("laplace"))
    assert plan.quorum == plan.noise.shares == 4
    wide = replace(plan.noise, lengths=(FAST // 2,))
    worst = attacks.worst_pair(plan)[0]
    seen = []
    for contribution in (worst[0], 0.0):
        source = stream(3, Purpose.SHARE, 0, f"{contribution}")
        noise = np.sum([wide.draw(source) for _ in range(there)], axis=0)
        seen.append(contribution + noise * plan.grid)
    assert (epsilon_lower_bound(*seen) > 1.0) == caught


def test_laplace_of_that_std_is_caught():
    """The scale is 1 / sqrt(2) of the std: whoever takes one for the other loses sqrt(2)."""
    plan = Attacked("laplace", "central", "user").plan()
    weak = replace(plan, mechanism=Laplace(plan.mechanism.epsilon * math.sqrt(2)))
    assert refuted(audit(weak, FAST))


def test_an_l2_bound_under_laplace_noise_is_caught(monkeypatch):
    """Nine numbers of L2 norm C have an L1 norm of up to 3 C."""
    plan = Attacked("laplace", "central", "user", numbers=9).plan()
    assert plan.bound is not None
    everywhere = (np.full(9, 1e3), np.zeros(9))
    assert not refuted(audit(plan, FAST // 2, pair=everywhere))
    monkeypatch.setattr(Bound, "l1_sensitivity", property(lambda bound: 1.0))
    loose = replace(plan, bound=replace(plan.bound, order=2))
    assert refuted(audit(loose, FAST // 2, pair=everywhere))


@pytest.mark.parametrize("factor", [0.5, 0.7])
def test_unary_encoding_with_a_wrong_flip_is_caught(factor, monkeypatch):
    right = choice.unary_flip
    monkeypatch.setattr(choice, "unary_flip", lambda epsilon: factor * right(epsilon))
    assert refuted(audit(Attacked("unary", "local", "user", numbers=4).plan(), FAST // 4))


def test_the_exponential_mechanism_without_its_factor_2_is_caught(monkeypatch):
    right = choice.draw_index
    monkeypatch.setattr(
        attacks,
        "draw_index",
        lambda scores, epsilon, norm, source: right(scores, 2 * epsilon, norm, source),
    )
    plan = Attacked("exponential", "central", "user", numbers=CANDIDATES).plan()
    assert refuted(audit(plan, FAST // 3))


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", "exponential"])
def test_a_clipped_client_under_unit_example_is_caught(mechanism):
    """One row more turns a clipped sum from one end of the client's bound to the other."""
    numbers = CANDIDATES if mechanism == "exponential" else 1
    plan = Attacked(mechanism, "central", "example", numbers=numbers).plan()
    assert plan.diameter == 1
    wrong = Attacked(mechanism, "central", "example", numbers=numbers, row_sums=False).plan()
    assert wrong.diameter == 2
    before = attacks.worst_pair(wrong)[0] * 1e3
    pair = (before, before - 2 * before)  # the client's other rows, and with one row of -2 of them
    trials = {"laplace": FAST, "gaussian": 6 * FAST, "exponential": FAST // 4}[mechanism]
    assert refuted(audit(plan, trials, pair=pair))
    assert not refuted(audit(wrong, FAST // 8, pair=pair))


@pytest.mark.parametrize(
    ("mechanism", "trust"),
    [("laplace", "central"), ("gaussian", "central"), ("laplace", "distributed")],
)
def test_amplification_without_sampling_is_caught(mechanism, trust):
    plan = Attacked(mechanism, trust, "user", sampling_rate=0.3).plan()
    trials = 2 * FAST if mechanism == "gaussian" else FAST // 3
    assert refuted(
        audit(replace(plan, federation=replace(plan.federation, sampling_rate=1.0)), trials)
    )
