"""The law of unary encoding: by simulation."""

import numpy as np
import pytest

from fedcal.conformal.levels.encoded import most_misses
from fedcal.conformal.set_release import Goal
from fedcal.mechanisms.unary import unary_flip


@pytest.mark.parametrize(
    ("clients", "cells", "epsilon"), [(200, 3, 4.0), (3000, 7, 1.0), (3000, 7, 4.0)]
)
@pytest.mark.parametrize("promise", ["marginal", "pac"])
def test_the_most_misses_keep_the_goal_and_hardly_more(clients, cells, epsilon, promise):
    flip, goal = unary_flip(epsilon), Goal(0.1, promise)
    most = most_misses(clients, cells, flip, goal)
    rng = np.random.default_rng(7)
    runs = 100_000
    if promise == "marginal":  # of n exchangeable clients any number is as likely
        missed, wanted = rng.integers(0, clients + 1, runs), 0.9
    else:
        missed, wanted = rng.binomial(clients, 0.1, runs), goal.confidence
    bits = rng.binomial(missed, 0.5) + rng.binomial(cells * clients - missed, flip)
    error = 0.3 / np.sqrt(runs)
    assert np.mean(bits > most) >= wanted - 4 * error
    spare = max(2, round(0.5 * bits.std())) if promise == "pac" else max(2, clients // 50)
    assert np.mean(bits > most + spare) < wanted + 4 * error
