"""The audit of noisy gradient sums: how rarely it is wrong, and what it sees."""

from dataclasses import replace

import numpy as np
import pytest

from fedcal.accounting import gaussian_multiplier
from fedcal.experiments.research.canaries import CanaryFinding, audit_canaries, canary_runs
from fedcal.experiments.research.stages import Stage, composed_delta, composed_epsilon

DELTA = 1e-5
AUDITS = 200
SAMPLED = Stage(gaussian_multiplier(8.0, DELTA, 100, 0.1), 100, 0.1)
WHOLE = Stage(gaussian_multiplier(1.0, DELTA, 10), 10)  # a small epsilon takes more canaries


def audits(
    stage: Stage, canaries: int, noise: float = 1.0, rate: float | None = None
) -> list[CanaryFinding]:
    runs = (canary_runs(stage, canaries, seed=s, noise=noise, rate=rate) for s in range(AUDITS))
    return [audit_canaries(*run, stage, DELTA) for run in runs]


@pytest.mark.parametrize(("stage", "canaries"), [(SAMPLED, 400), (WHOLE, 2500)], ids=str)
def test_the_right_noise_passes_and_half_of_it_is_caught(stage, canaries):
    right = audits(stage, canaries)
    assert sum(found.refuted for found in right) <= 0.05 * AUDITS
    # the attacker reaches the mechanism's own curve, so the test is not merely cautious
    reached = np.mean([found.correct / found.canaries for found in right])
    assert 2 * reached - 1 == pytest.approx(composed_delta([stage], 0.0), rel=0.05)
    assert sum(found.refuted for found in audits(stage, canaries, 0.5)) >= 0.95 * AUDITS


def test_rows_that_are_in_every_round_are_caught():
    """Amplification is claimed, and nothing is sampled."""
    found = audits(SAMPLED, 400, rate=1.0)
    assert sum(one.refuted for one in found) >= 0.95 * AUDITS


def test_bounds_lie_on_the_safe_side_and_say_what_the_noise_is():
    for noise in (1.0, 0.6):
        found = audit_canaries(*canary_runs(SAMPLED, 2000, noise=noise), SAMPLED, DELTA)
        spent = composed_epsilon([replace(SAMPLED, multiplier=noise * SAMPLED.multiplier)], DELTA)
        assert noise <= found.noise_at_most <= 1.2 * noise
        assert 0.7 * spent <= found.lower_bound <= spent
        assert found.refuted == (found.lower_bound > found.claimed) == (noise < 1)
    assert found.claimed == pytest.approx(8.0, rel=1e-3)


def test_guesses_that_know_nothing_show_nothing():
    rng = np.random.default_rng(0)
    blind = rng.normal(size=(WHOLE.rounds, 200))
    found = audit_canaries(rng.random(200) < 0.5, blind, WHOLE, DELTA)
    assert not found.refuted
    assert (found.lower_bound, found.noise_at_most) == (0.0, np.inf)
    none = replace(found, correct=0)
    assert (none.right, none.lower_bound) == (0.0, 0.0)
