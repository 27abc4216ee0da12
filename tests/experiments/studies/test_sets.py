"""Studies of prediction sets: splits, and laws of scores."""

import numpy as np
import pytest

from experiments.studies.angelopoulos import figures
from experiments.studies.angelopoulos.splits import exact_thresholds, scored, split
from experiments.studies.rows import rng_of
from fedcal import datasets
from fedcal.conformal import Conformity, PredictionSets


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
