"""One-step estimation of the AUC: what a coarse or noisy reference costs."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedcal.core.types import Floats, Integers
from fedcal.datasets import load
from fedcal.evaluation.estimators.influence import AucReference
from fedcal.evaluation.intervals.intervals import Estimate
from fedcal.evaluation.single import UNKNOWN, SingleMetric
from fedcal.mechanisms import NoiseLaw
from fedcal.metrics.buckets import arcsine_edges, bucket_of, scored
from fedcal.queries import MeanGaps

BINARY = ("imdb-binary", "game-forecasts", "heart-disease")


def histogram(score: Floats, outcome: Integers, buckets: int) -> Floats:
    cells = outcome * buckets + bucket_of(score, arcsine_edges(buckets))
    return np.bincount(cells, minlength=2 * buckets).reshape(2, -1).astype(float)


def one_step(reference: AucReference, score: Floats, outcome: Integers) -> float:
    question = MeanGaps(2, "positive", reference.values.ravel(), 0.5, 0.5)
    return float(question.value_of(score, outcome).mean())


@pytest.mark.parametrize("name", BINARY)
def test_one_step_from_few_buckets_is_near_the_exact_area(name):
    data = load(name)
    score, outcome = (x[:, 0] for x in scored(data.probs, data.labels, "positive"))
    exact = roc_auc_score(outcome, score)
    for buckets, near in ((8, 0.004), (16, 0.002), (240, 0.0003)):
        reference = AucReference.of(histogram(score, outcome, buckets))
        assert one_step(reference, score, outcome) == pytest.approx(exact, abs=near)
        plain = abs(reference.auc - exact)  # of the histogram alone
        assert buckets == 240 or abs(one_step(reference, score, outcome) - exact) < plain / 3
        assert reference.coarseness < 0.012


def test_noise_that_leaves_nothing_is_no_error():
    reference = AucReference.of(np.full((2, 8), -3.0))
    assert reference.auc == pytest.approx(0.5)
    assert np.isfinite(reference.values).all()
    assert reference.redrawn(1e6, NoiseLaw(True), np.random.default_rng(0))[0] < 1.0


@pytest.mark.parametrize("estimate", [UNKNOWN, Estimate(0.9, 0.8, 0.95, 0.01, 0.02, 0.0, False)])
def test_a_metric_comes_back_from_its_arrays(estimate):
    metric = SingleMetric("accuracy", estimate)
    again = SingleMetric.from_arrays(metric.arrays())
    np.testing.assert_array_equal(again.arrays()["numbers"], metric.arrays()["numbers"])
    assert (again.name, again.estimate.drowned) == ("accuracy", estimate.drowned)
