"""Studies of prediction sets: splits, and laws of scores."""

import math
from itertools import product

import numpy as np
import pytest

from experiments.studies.angelopoulos import figures
from experiments.studies.angelopoulos import quantile as paper
from experiments.studies.angelopoulos.splits import exact_thresholds, scored, split
from experiments.studies.rows import rng_of
from fedcal import datasets
from fedcal.conformal import Conformity, PredictionSets
from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats, Integers


def test_evaluated_as_the_sets_themselves():
    splits = split(scored("resnet110-cifar10"), 100, 300, 2, rng_of("test", 0))
    found = splits.evaluate(np.array([0.3, 1.0]))
    shipped = datasets.load("resnet110-cifar10")
    sets = PredictionSets(Conformity("lac"), np.array([0.3]), 10, 0.1)
    chosen = sets.of_logits(shipped.test_logits[splits.tests[0]])
    labels = shipped.test_labels[splits.tests[0]]
    assert found.coverage[0] == chosen[np.arange(300), labels].mean()
    assert found.mean_sizes == pytest.approx([chosen.sum(axis=1).mean(), 10.0])
    assert (found.sizes.sum(), found.all_labels) == (600, 0.5)
    assert [len(set(rows)) for rows in splits.tests] == [300, 300]
    scores = np.linspace(0.01, 0.99, 99)[None]
    assert exact_thresholds(scores, 0.1) == [scores[0, 89]]  # the 90th of 99, exactly
    assert exact_thresholds(scores[:, :8], 0.1) == [1.0]


@pytest.mark.parametrize("figure", [figures.figure4, figures.figure5, figures.figure6])
def test_a_figure_from_few_splits(figure, monkeypatch):
    monkeypatch.setattr(figures, "SEEDS", 2)
    rows = figure.rows(splits=2)
    assert all(output for _, _, output, *_ in figure.claims(rows))
    assert all(0.8 < r["coverage"] <= 1.0 for r in rows if r["what"] == "setting")


def test_levels_and_what_is_lost_at_one():
    rows = figures.figure2.rows(trials=50)
    verdicts = [holds for _, holds, *_ in figures.figure2.claims(rows)]
    assert verdicts == [True, True, False, False]


# -- Angelopoulos et al.: its formulas, what it spends, and what it covers ------------------------


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


def log_probabilities(counts: Integers, q: float, epsilon: float) -> Floats:
    logs = -0.5 * epsilon * paper.quantile_costs(counts, q)
    return np.asarray(logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True))


def test_what_a_draw_spends():
    """On all counts of 4 bins with up to 4 rows in each; a user has three rows, at epsilon / 3."""
    epsilon, q, units = 1.0, 0.9, np.eye(4, dtype=np.int64)
    every = np.array(list(product(range(5), repeat=4)))
    before = log_probabilities(every, q, epsilon)
    more = np.stack([log_probabilities(every + unit, q, epsilon) for unit in units])
    assert np.abs(more - before).max() <= epsilon / 2 + 1e-12  # a row is added
    assert np.abs(more[:, None] - more).max() <= epsilon + 1e-12  # a row is replaced
    three = every[every.sum(axis=1) == 3]
    before = log_probabilities(4 * every, q, epsilon / 3)
    for rows in three:
        after = log_probabilities(4 * every + rows, q, epsilon / 3)
        assert np.abs(after - before).max() <= epsilon / 2 + 1e-12


def test_draws_follow_the_probabilities():
    counts = np.array([10, 3, 0, 4, 1])
    rng = np.random.default_rng(0)
    drawn = paper.private_quantile(np.tile(counts, (40_000, 1)), 0.8, 1.0, rng)
    found = np.bincount(drawn, minlength=5) / len(drawn)
    assert found == pytest.approx(np.exp(log_probabilities(counts, 0.8, 1.0)), abs=0.01)


def drawn_thresholds(scores: Floats, m: int, epsilon: float, rng: np.random.Generator) -> Floats:
    """Thresholds of (k, n) scores, (k,)."""
    n = scores.shape[1]
    level = paper.inflated_level(n, m, epsilon, 0.1, paper.best_gamma(n, m, epsilon, 0.1))
    if level >= 1:
        return np.ones(len(scores))
    cells = paper.binned(scores, m) + m * np.arange(len(scores))[:, None]
    counts = np.bincount(cells.ravel(), minlength=m * len(scores)).reshape(-1, m)
    return np.asarray(paper.thresholds(m)[paper.private_quantile(counts, level, epsilon, rng)])


MASSES = {"two masses": (0.85, 0.98), "edges": (0.5, 0.89, 0.9, 0.91)}


@pytest.mark.parametrize(
    ("scores_of", "n", "epsilon"),
    [("uniform", 50, 1.0), ("two masses", 300, 1.0), ("edges", 1000, 1.0), ("edges", 1000, 8.0)],
)
def test_it_covers(scores_of, n, epsilon):
    rng = np.random.default_rng(1)
    values = np.array(MASSES.get(scores_of, ()))
    scores = rng.random((1000, n)) if scores_of == "uniform" else rng.choice(values, (1000, n))
    t = drawn_thresholds(scores, paper.best_bins(n, epsilon, 0.1), epsilon, rng)
    covered = t if scores_of == "uniform" else (values <= t[:, None]).mean(axis=1)
    assert covered.mean() >= 0.9 - 3.5 * covered.std() / math.sqrt(len(covered))


def test_the_number_of_bins_is_one_of_the_better():
    """By the mean threshold of uniform scores, which is lower the fewer labels sets hold."""
    rng, n = np.random.default_rng(2), 20_000  # with fewer rows one draw hardly tells
    scores = rng.random((30, n))

    def mean(m: int) -> float:
        return float(drawn_thresholds(scores, m, 1.0, rng).mean())

    found = [mean(m) for m in paper.CANDIDATES.tolist()[::8] if m <= paper.MOST * n]
    assert mean(paper.best_bins(n, 1.0, 0.1)) <= (min(found) + max(found)) / 2
