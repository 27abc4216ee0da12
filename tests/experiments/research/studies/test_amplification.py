"""The paper's noise against its lemmas written out anew, and the order of the four accounts."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from fedcal.accounting.gaussian import (
    gaussian_delta,
    gaussian_multiplier,
    zcdp_multiplier,
    zcdp_rho,
)
from fedcal.experiments.research.studies.maddock import amplification
from fedcal.experiments.research.studies.maddock.amplification import (
    rdp_epsilon,
    rdp_multiplier,
    zcdp_rho_simple,
)


def lemma_b3_log_delta(rho: float, epsilon: float) -> float:
    """The lemma's minimum over a fine grid of alpha."""
    alpha = 1 + np.geomspace(1e-2, 1e4, 20_001)
    log = (alpha - 1) * (alpha * rho - epsilon) - np.log(alpha - 1) + alpha * np.log1p(-1 / alpha)
    return float(log.min())


def lemma_b3_rho(epsilon: float, delta: float) -> float:
    return brentq(lambda rho: lemma_b3_log_delta(rho, epsilon) - math.log(delta), 1e-7, 10.0)


def test_noise_is_that_of_the_lemmas():
    for epsilon in (0.1, 1.0, 8.0):
        rho, more = zcdp_rho(epsilon, 1e-5), zcdp_rho_simple(epsilon, 1e-5)
        assert rho == pytest.approx(lemma_b3_rho(epsilon, 1e-5), rel=1e-4)
        assert more + 2 * math.sqrt(more * math.log(1e5)) == pytest.approx(epsilon, rel=1e-12)
        assert more < rho  # the standard conversion asks for more noise
    rho = lemma_b3_rho(1.0, 1e-5)
    assert rho == pytest.approx(0.030557, rel=1e-4)
    scaling = amplification.paper_std(1.0, 1e-5, 12, 0.5)
    assert scaling == pytest.approx(0.5 * math.sqrt(12 / (2 * rho)), rel=1e-4)
    binning = amplification.paper_std(1.0, 1e-5, 12, 0.5, histograms=2 * 10)
    assert binning == pytest.approx(0.5 * math.sqrt(2 * 10 * 12 / (2 * rho)), rel=1e-4)


def test_renyi_is_the_papers_zcdp_and_with_sampling_above_the_tight_one():
    for epsilon, rounds in ((0.1, 1), (1.0, 12), (8.0, 4)):
        found = rdp_multiplier(epsilon, 1e-5, rounds, 1.0)
        paper = zcdp_multiplier(epsilon, 1e-5, rounds)
        assert paper * (1 - 1e-9) <= found <= paper * 1.002  # a grid of orders instead of all
        assert gaussian_delta(epsilon, found, rounds) < 1e-5
    found = rdp_multiplier(1.0, 1e-5, 12, 0.1)
    assert rdp_epsilon(1e-5, found, 12, 0.1) <= 1.0 < rdp_epsilon(1e-5, found * 0.999, 12, 0.1)
    assert gaussian_multiplier(1.0, 1e-5, 12, 0.1) < found < zcdp_multiplier(1.0, 1e-5, 12)
