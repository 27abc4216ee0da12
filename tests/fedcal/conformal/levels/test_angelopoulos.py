"""Angelopoulos et al.: its formulas, what it spends, and what it covers."""

import math
from itertools import product

import numpy as np
import pytest

from experiments.studies.angelopoulos import splits as draws
from fedcal.conformal import levels as paper
from fedcal.core.checks import InputError


def test_level_is_equation_3_by_hand():
    level = paper.inflated_level(1000, 200, 1.0, 0.1, 0.02)
    assert level == pytest.approx(1001 * 0.9 / (1000 * 0.998) + 0.002 * math.log(100_000))
    with pytest.raises(InputError, match=r"gamma must be in"):
        paper.inflated_level(1000, 200, 1.0, 0.1, 1.0)


@pytest.mark.parametrize(("n", "epsilon"), [(30, 0.5), (1000, 1.0), (100_000, 8.0)])
def test_no_gamma_has_a_lower_level(n, epsilon):
    best, *others = (
        paper.inflated_level(n, 200, epsilon, 0.1, gamma)
        for gamma in (paper.best_gamma(n, 200, epsilon, 0.1), *np.geomspace(1e-6, 0.999, 300))
    )
    assert min(best, 1.0) <= min(others)  # from 1 on, the sets hold all labels


def _neighbours(most: int, m: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """All counts of m bins with up to `most` rows in each, and the same with one row more."""
    units = np.eye(m, dtype=np.int64)
    every = map(np.array, product(range(most + 1), repeat=m))
    return [(counts, counts + unit) for counts in every for unit in units]


def _log_probabilities(counts: np.ndarray, q: float, epsilon: float) -> np.ndarray:
    logs = -0.5 * epsilon * paper.quantile_costs(counts, q)
    return logs - np.logaddexp.reduce(logs)


def test_what_a_draw_spends():
    epsilon, q, added, replaced = 1.0, 0.9, 0.0, 0.0
    for less, more in _neighbours(4, 4):
        here = _log_probabilities(more, q, epsilon)
        added = max(added, np.abs(here - _log_probabilities(less, q, epsilon)).max())
        for unit in np.eye(4, dtype=np.int64):  # `less` + another row: the row is replaced
            there = _log_probabilities(less + unit, q, epsilon)
            replaced = max(replaced, np.abs(here - there).max())
    assert added <= epsilon / 2 + 1e-12
    assert replaced <= epsilon + 1e-12
    # a user with three rows, at epsilon / 3
    three = [np.array(rows) for rows in product(range(4), repeat=4) if sum(rows) == 3]
    for counts in map(np.array, product(range(0, 20, 4), repeat=4)):
        here = _log_probabilities(counts, q, epsilon / 3)
        for rows in three:
            there = _log_probabilities(counts + rows, q, epsilon / 3)
            assert np.abs(there - here).max() <= epsilon / 2 + 1e-12


def test_draws_follow_the_probabilities():
    counts = np.array([10, 3, 0, 4, 1])
    rng = np.random.default_rng(0)
    drawn = paper.private_quantile(np.tile(counts, (40_000, 1)), 0.8, 1.0, rng)
    found = np.bincount(drawn, minlength=5) / len(drawn)
    assert found == pytest.approx(np.exp(_log_probabilities(counts, 0.8, 1.0)), abs=0.01)


def _coverage(law: str, n: int, epsilon: float, printed: bool = False) -> tuple[float, float]:
    """Mean coverage of 2,000 calibrations of rows of a known law, and its standard error."""
    rng = np.random.default_rng(1)
    shape = (2000, n)
    masses = {"two masses": (0.85, 0.98), "edges": (0.5, 0.89, 0.9, 0.91)}
    if law == "uniform":
        scores = rng.random(shape)
    else:
        values = np.array(masses[law])
        scores = values[rng.integers(0, len(values), shape)]
    m = paper.best_bins(n, epsilon, 0.1)
    if printed:
        level = paper.inflated_level(n, m, epsilon, 0.1, paper.best_gamma(n, m, epsilon, 0.1))
        t = paper.thresholds(m)[draws.drawn_bins(scores, m, min(level, 1.0), epsilon, rng)]
    else:
        t = draws.private_thresholds(scores, m, epsilon, 0.1, rng)
    covered = t if law == "uniform" else (values <= t[:, None]).mean(axis=1)
    return float(covered.mean()), float(covered.std() / math.sqrt(len(covered)))


@pytest.mark.parametrize(
    ("law", "n", "epsilon"),
    [("uniform", 50, 1.0), ("two masses", 300, 1.0), ("edges", 1000, 1.0), ("edges", 1000, 8.0)],
)
def test_it_covers(law, n, epsilon):
    mean, error = _coverage(law, n, epsilon)
    assert mean >= 0.9 - 3.5 * error


def test_the_level_as_printed_loses_coverage_where_all_labels_are_needed():
    assert [_coverage("uniform", n, 0.1)[0] for n in (20, 50, 100)] == [1.0, 1.0, 1.0]
    found = [_coverage("uniform", n, 0.1, printed=True)[0] for n in (20, 50, 100)]
    assert found == pytest.approx([0.58, 0.69, 0.82], abs=0.02)


def test_the_number_of_bins_is_one_of_the_better():
    """By the mean threshold of uniform scores, which is lower the fewer labels sets hold."""
    rng, n = np.random.default_rng(2), 20_000  # with fewer rows one draw hardly tells
    scores = rng.random((60, n))

    def mean(m: int) -> float:
        return float(draws.private_thresholds(scores, m, 1.0, 0.1, rng).mean())

    found = [mean(m) for m in paper.CANDIDATES.tolist()[::6] if m <= paper.MOST * n]
    assert mean(paper.best_bins(n, 1.0, 0.1)) <= (min(found) + max(found)) / 2
