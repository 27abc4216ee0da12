"""Every mechanism, attacked: what a run releases must not tell neighbours apart beyond epsilon.

The audit: one client contributes all that its bound allows, or nothing. An attacker sees all
releases of the run and guesses by the optimal threshold. From the rates of its right and wrong
guesses follows a lower bound on epsilon (Clopper-Pearson; Jagielski et al. 2020), which must not
pass the claim, and which does pass it if the noise is half of what it should be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from fedcal.privacy import Bound, Federation, make_plan, mechanisms
from fedcal.privacy.bounding import encode_bounded
from fedcal.query import Ask
from fedcal.release import Curator
from fedcal.streams import Purpose, stream

TRIALS = 200_000
FAILURE = 1e-3  # probability that one of the confidence bounds is wrong
THRESHOLDS = (-1.0, 0.0, 1.0, 1.5, 2.0, 2.5, 3.0)  # of the attacker, in stds of the statistic


@dataclass(frozen=True)
class Claim:
    epsilon: float
    delta: float
    rounds: int


claims = pytest.mark.parametrize(
    "claim", [Claim(1.0, 1e-5, 1), Claim(1.0, 1e-5, 4), Claim(3.0, 1e-3, 12)], ids=str
)


def epsilon_at_least(without: np.ndarray, with_it: np.ndarray, delta: float) -> float:
    """Lower confidence bound on epsilon from an attacker's statistic in the two worlds."""
    level = FAILURE / (2 * len(THRESHOLDS))
    best = 0.0
    for t in THRESHOLDS:
        right, wrong = int((with_it > t).sum()), int((without > t).sum())
        if right == 0 or wrong == len(without):
            continue
        hit = stats.beta.ppf(level, right, len(with_it) - right + 1)
        false_alarm = stats.beta.isf(level, wrong + 1, len(without) - wrong)
        if hit > delta:
            best = max(best, math.log((hit - delta) / false_alarm))
    return best


def attacked_run(claim: Claim, contribution: float, seed: int) -> np.ndarray:
    """The attacker's statistic, in stds, of `TRIALS` runs of one number each.

    Noise of a joint bound is the same and independent in each coordinate, whatever the sum, so
    one run of many coordinates stands for many runs of one.
    """
    clip = 2.5
    federation = Federation(
        clients=3, classes=2, epsilon=claim.epsilon, delta=claim.delta, seed=seed
    )
    plan = make_plan(federation, rounds=claim.rounds, bound=Bound((TRIALS,), (clip,)))
    word = encode_bounded(np.array([[contribution]]), Bound((1,), (clip,)), plan.ring)[0, 0]
    curator = Curator(plan)
    seen = np.zeros(TRIALS)
    for r in range(1, claim.rounds + 1):
        asked = curator.open(r, Ask("attack", (TRIALS,)))
        seen += curator.close(asked, np.full(TRIALS, word), 3).values
    return seen / (plan.multiplier * clip * math.sqrt(claim.rounds))


@claims
def test_gaussian_runs_keep_their_claim(claim: Claim) -> None:
    seen = attacked_run(claim, 1e9, 1)  # far beyond the bound: clipped to exactly the bound
    found = epsilon_at_least(attacked_run(claim, 0.0, 2), seen, claim.delta)
    assert 0.25 * claim.epsilon < found <= claim.epsilon


@claims
def test_half_of_the_noise_is_caught(claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mechanisms.gaussian_std
    monkeypatch.setattr("fedcal.privacy.plan.gaussian_std", lambda b, m: real(b, m) / 2)
    without, with_it = (2 * attacked_run(claim, x, seed) for x, seed in ((0.0, 2), (1e9, 1)))
    assert epsilon_at_least(without, with_it, claim.delta) > claim.epsilon


@pytest.mark.parametrize(("weakened", "caught"), [(1.0, False), (0.5, True)])
@pytest.mark.parametrize("rule", ["per_block", "joint", "per_value"])
def test_several_blocks_at_once(rule: str, weakened: float, caught: bool) -> None:
    """The worst client fills every group of its bound; the attacker weighs each by its noise."""
    claim = Claim(1.0, 1e-5, 1)
    bound = Bound((2, 1, 3), (2.0, 0.1, 10.0), rule)  # type: ignore[arg-type]
    federation = Federation(clients=3, classes=2, epsilon=claim.epsilon, delta=claim.delta)
    plan = make_plan(federation, rounds=1, bound=bound)
    worst = encode_bounded(bound.scale[None] * 1e6, bound, plan.ring)
    std = mechanisms.gaussian_std(bound, plan.multiplier)
    shift = plan.ring.decode(worst)[0] / std
    direction = shift / np.linalg.norm(shift)

    def attacked(words: np.ndarray, seed: int) -> np.ndarray:
        scales = tuple((std * weakened / plan.grid).tolist() * TRIALS)
        noise = mechanisms.Noise("gaussian", (1,) * len(scales), scales)
        noisy = plan.ring.add(np.tile(words, TRIALS), noise.draw(stream(seed, Purpose.NOISE, 1)))
        seen = plan.ring.decode(noisy).reshape(TRIALS, -1) / (std * weakened)
        return np.asarray((seen * direction).sum(axis=1))

    found = epsilon_at_least(attacked(np.zeros(6, np.uint64), 1), attacked(worst[0], 2), 1e-5)
    assert (found > claim.epsilon) == caught
    assert found > 0.25 * claim.epsilon


# --- exponential: probabilities are known, so is the loss -------------------------------------


def law(scores: np.ndarray, epsilon: float, norm: float) -> np.ndarray:
    """Exact probabilities; that the code has them is tested with the mechanism."""
    weights = np.exp(-epsilon * np.abs(scores) / (2 * norm))
    return np.asarray(weights / weights.sum())


def loss(scores: np.ndarray, change: np.ndarray, epsilon: float, norm: float) -> float:
    """Largest privacy loss of any index, in nats, between two neighbouring sums."""
    ratio = np.log(law(scores, epsilon, norm) / law(scores + change, epsilon, norm))
    return float(np.abs(ratio).max())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_worst_neighbours_of_the_exponential_mechanism(epsilon: float) -> None:
    norm, many = 2.5, 20_000
    scores = np.zeros(many)
    scores[0] = norm
    change = np.full(many, norm)  # the one bad candidate becomes the only good one
    change[0] = -norm
    assert 0.98 * epsilon < loss(scores, change, epsilon, norm) <= epsilon * (1 + 1e-9)
    assert loss(scores, change, 1.5 * epsilon, norm) > epsilon  # so the bound says something


def test_no_neighbours_of_the_exponential_mechanism_pass_epsilon() -> None:
    rng = np.random.default_rng(4)
    epsilon, norm = 1.0, 2.5
    for _ in range(500):
        scores = rng.normal(scale=rng.choice([0.1, 2.0, 50.0]), size=rng.integers(2, 300))
        signs = rng.choice([-1.0, 0.3, 1.0], size=len(scores))
        assert loss(scores, norm * signs, epsilon, norm) <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(("spent", "caught"), [(1.0, False), (2.0, True)])
def test_draws_are_attacked_too(spent: float, caught: bool) -> None:
    """The attacker sees whether the one bad candidate of one world was drawn."""
    epsilon, norm, trials = 1.0, 2.0, 10_000
    scores = np.zeros(40)
    scores[0] = norm
    hits = []
    for seed, world in ((1, scores), (2, norm - scores)):
        rng = stream(seed, Purpose.NOISE, 1)
        drawn = [mechanisms.exponential(world, spent * epsilon, norm, rng) for _ in range(trials)]
        hits.append(drawn.count(0))
    false_alarm = stats.beta.isf(FAILURE, hits[0] + 1, trials - hits[0])
    hit = stats.beta.ppf(FAILURE, hits[1], trials - hits[1] + 1)
    assert (math.log(hit / false_alarm) > epsilon) == caught
    assert hit > false_alarm * 1.5
