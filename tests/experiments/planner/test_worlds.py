"""Made-up worlds are what they say; errors against known truth are the usual metrics."""

import numpy as np
import pytest

from fedcal import datasets, metrics
from fedcal.core.numerics import softmax
from fedcal.experiments.planner.worlds import errors, made_up, of_public


def test_errors_against_a_known_truth():
    rng = np.random.default_rng(0)
    for classes in (2, 7):
        probs = softmax(2.0 * rng.standard_normal((500, classes)))
        labels = rng.integers(0, classes, 500)
        found = errors(probs, np.eye(classes)[labels])
        assert found.ece == pytest.approx(metrics.ece(probs, labels), abs=1e-12)
        classwise = metrics.classwise_ece(probs, labels)
        assert found.classwise_ece == pytest.approx(classwise, abs=1e-12)
        assert found.accuracy == pytest.approx(metrics.accuracy(probs, labels))
        itself = errors(probs, probs)
        assert max(itself.ece, itself.classwise_ece) < 1e-12


@pytest.mark.parametrize("classes", [2, 10, 60])
def test_labels_of_fresh_rows_agree_with_the_truth(classes):
    """What is measured on many fresh labelled rows is what the known truth says."""
    for world in made_up(classes):
        logits, labels = world.draw(20_000, np.random.default_rng(1))
        known, _ = world.judge(None)
        probs = softmax(logits)
        assert metrics.accuracy(probs, labels) == pytest.approx(known.accuracy, abs=0.02)
        assert metrics.ece(probs, labels) == pytest.approx(known.ece, abs=0.02)


def test_public_data_are_drawn_from_the_fit_rows_and_judged_on_test_rows():
    data = datasets.load("resnet110-cifar10")
    world = of_public(data)
    logits, labels = world.draw(300, np.random.default_rng(0))
    there = {row.tobytes() for row in data.logits}
    assert world.public
    assert all(row.tobytes() in there for row in logits)
    assert labels.shape == (300,)
    assert world.judge(None)[0].ece == pytest.approx(
        metrics.ece(data.test_probs, data.test_labels), abs=1e-6
    )
