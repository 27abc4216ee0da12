"""The card of a trained model: what it says of test rows."""

import numpy as np
import pytest

from fedcal.core.numerics import softmax
from fedcal.metrics import ece
from fedcal.queries import Gradients
from fedcal.storage.artifact import Holdout
from fedcal.training.model_card import card_parts, clipped_share, clipping_part, scored

RNG = np.random.default_rng(0)
Z, Y = RNG.normal(size=(400, 3)), RNG.integers(0, 3, 400)


def test_the_scores_of_a_model():
    probs = softmax(2 * Z)
    drawn = (probs.cumsum(axis=1) > RNG.random((400, 1))).argmax(axis=1)
    found = scored(probs, drawn)
    assert found["ece"] == pytest.approx(ece(probs, drawn))
    assert scored(probs, Y)["gap"] == pytest.approx(
        probs.max(axis=1).mean() - (probs.argmax(axis=1) == Y).mean()
    )


@pytest.mark.parametrize("clipping", ["row", "global"])
def test_the_share_of_clipped_gradients_is_that_of_their_norms(clipping):
    x, w = RNG.normal(size=(400, 2)), RNG.normal(size=9)
    query = Gradients("linear", "2", w, 0.7, 3, clipping, 1.1)
    by_class = w.reshape(3, 3)
    residual = softmax(x @ by_class[:, :2].T + by_class[:, 2]) - np.eye(3)[Y]
    norms = np.linalg.norm(residual, axis=1) * np.sqrt(1 + (x**2).sum(axis=1))
    limit = 0.7 if clipping == "row" else 1.1
    share = clipped_share(query, x, Y)
    assert share == (norms > limit).mean()
    assert 0 < share < 1
    assert clipping_part([(1, share)], query).series == {"clipped": ((1.0, 100 * share),)}


def test_parts_before_and_after():
    group = np.arange(400) % 2
    test = Holdout(Z, softmax(Z), Y, group=group, group_names=("a", "b"))
    parts = card_parts({"model": softmax(Z), "recalibrated": softmax(Z / 2)}, test)
    titles = [part.title for part in parts]
    assert titles[:3] == ["Test rows", "Reliability", "How confident the model is"]
    assert titles[3:] == ["ECE by class", "By group"]
    confidence = parts[2]
    steps = [y for _, y in confidence.series["model"]][::2]
    assert sum(steps) == pytest.approx(100)
