"""Where a noisy falling curve crosses zero: what is believed, with much noise and with little."""

import numpy as np
import pytest

from fedcal.strategies.methods.search import root_posterior

ROOTS = np.linspace(-1.4, 2.1, 141)
ASKED = np.linspace(-1.4, 2.1, 8)
every_law = pytest.mark.parametrize("laplace", [False, True])


@every_law
def test_more_noise_is_more_doubt_and_units_do_not_matter(laplace):
    values = 100 * np.tanh(0.9 - ASKED)
    spreads = []
    for std in (1.0, 10.0, 40.0, 200.0):
        belief = root_posterior(ASKED, values, std, ROOTS, laplace)
        scaled = root_posterior(ASKED, 1e6 * values, 1e6 * std, ROOTS, laplace)
        np.testing.assert_allclose(belief, scaled, rtol=1e-6, atol=1e-12)
        mean = (belief * ROOTS).sum()
        spreads.append((belief * (ROOTS - mean) ** 2).sum())
    assert spreads == sorted(spreads)
    belief = root_posterior(ASKED, 0 * values, 100.0, ROOTS, laplace)
    assert belief.sum() == pytest.approx(1.0)
    assert belief.max() < 2.5 * belief.min()  # what was believed before


def test_what_is_believed_is_right_as_often_as_it_says():
    """Noise of the std that is told: the truth lies within the central 80 % about as often."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(100):
        root = rng.uniform(-1.0, 1.7)
        values = 100 * np.tanh((root - ASKED) / 0.8) + rng.normal(0, 30, 8)
        cumulative = np.cumsum(root_posterior(ASKED, values, 30.0, ROOTS, False))
        inside.append(0.1 < float(np.interp(root, ROOTS, cumulative)) < 0.9)
    assert 0.7 < np.mean(inside) < 0.97
