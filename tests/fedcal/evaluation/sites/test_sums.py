"""P-values of noisy sums are right where families of tests look: at 1 in 400 and beyond."""

import numpy as np
import pytest

from fedcal.evaluation.sites.site_tests import Law, p_value

WAYS = np.stack([np.ones(6), np.linspace(-3, 3, 6)])
SHARE = 1 / (1 + np.exp(3.5 - WAYS[1] / 3))  # rare outcomes: sums are skewed


def law(rows, noise, most=1.0):
    return Law(np.asarray(rows, float), SHARE, WAYS, noise * WAYS, np.zeros((2, 2)), most)


def drawn(of, draws, rng):
    """Sums, where rows of one subject have one outcome."""
    subjects = (of.rows / of.most).astype(int)
    rows = of.most * rng.binomial(subjects, of.share, (draws, 6)) - of.rows * of.share
    return rows @ of.weights.T + rng.laplace(0, 0.5**0.5, (draws, 6)) @ of.noise.T


def too_often(hits, chance):
    """How many std a number of hits is above what there should be."""
    wanted = chance * len(hits)
    return (hits.sum() - wanted) / wanted**0.5


@pytest.mark.parametrize(("rows", "noise"), [(50, 0.0), (50, 2.5), (0, 1.0), (3000, 1.0)])
@pytest.mark.parametrize("d", [1, 2])
def test_tails_are_honest_and_not_wasteful(rows, noise, d):
    of = law([rows] * 6, noise)
    of = Law(of.rows, of.share, WAYS[:d], of.noise[:d], of.power[:d, :d])
    p = p_value(of, drawn(of, 40_000, np.random.default_rng(0)))
    for chance in (0.05, 0.0025):
        hits = p <= 1.25 * chance if rows == 50 and not noise else p <= 1.1 * chance
        assert too_often(hits, 1.5 * chance) < 3
        assert hits.mean() > 0.6 * chance


def test_rows_of_one_subject_may_be_alike():
    rng = np.random.default_rng(1)
    sums = drawn(law([600] * 6, 1.0, 4.0), 20_000, rng)
    assert too_often(p_value(law([600] * 6, 1.0, 4.0), sums) <= 0.01, 0.015) < 3
    assert (p_value(law([600] * 6, 1.0), sums) <= 0.01).mean() > 0.1


def test_moments_are_derivatives():
    of = law([40, 0, 9, 100, 2, 30], 0.2, 3.0)
    t, step = np.array([0.2, -0.05]), 1e-5 * np.eye(2)
    _, first, second = of.log_moments(t)
    ends = [[of.log_moments(t + s * e) for s in (1, -1)] for e in step]
    assert [(a[0] - b[0]) / 2e-5 for a, b in ends] == pytest.approx(first, rel=1e-6)
    slopes = np.array([(a[1] - b[1]) / 2e-5 for a, b in ends])
    assert slopes == pytest.approx(second, rel=1e-6)


def test_nothing_known_is_nothing_rare():
    assert p_value(law([0] * 6, 0.0), np.zeros(2)) == 1.0
    assert p_value(law([50] * 6, 1.0), np.array([300.0, 900.0])) < 1e-30
