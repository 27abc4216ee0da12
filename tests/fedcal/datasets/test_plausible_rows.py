"""Rows whose scores are turned round, or of one class, are found; weak or skewed models are not."""

import numpy as np
import pytest

from fedcal import datasets
from fedcal.core.checks import InputError
from fedcal.core.numerics import Floats, Integers
from fedcal.core.scores import check_scores
from fedcal.datasets.plausible_rows import check_rows

BINARY = ["heart-disease", "adult-income", "game-forecasts", "imdb-binary"]
MANY = ["resnet110-cifar10", "mnist-shift", "densenet-cifar100"]


def scores_of(name: str) -> tuple[Floats, Integers]:
    data = datasets.load(name).split(0)
    assert data.test_scores is not None
    assert data.test_labels is not None
    return data.test_scores, data.test_labels


@pytest.mark.parametrize("name", [*BINARY, *MANY, "mmlu-llama"])
def test_real_rows_are_not_doubted(name):
    scores, labels = scores_of(name)
    found = check_rows(scores, labels)
    assert found.accuracy == (scores.argmax(axis=1) == labels).mean()
    assert found.guessing == np.bincount(labels).max() / len(labels)
    assert (found.order, found.findings) == (None, ())
    rng = np.random.default_rng(0)
    for rows in (5, 20, 100, 300):
        drawn = rng.choice(len(labels), (20, rows))
        assert all(check_rows(scores[part], labels[part]).order is None for part in drawn)


@pytest.mark.parametrize("name", BINARY)
def test_two_classes_in_the_wrong_order(name):
    scores, labels = scores_of(name)
    found = check_rows(scores[:, ::-1], labels, ["well", "sick"])
    assert found.order == (1, 0)
    (finding,) = found.findings
    assert "rows of sick have lower scores for it" in finding
    assert finding.endswith("in the right order?")


@pytest.mark.parametrize("name", MANY)
def test_the_order_that_fits_is_found(name):
    """All columns moved by one, and two of them exchanged."""
    scores, labels = scores_of(name)
    c = scores.shape[1]
    for wrong in (np.roll(np.arange(c), 1), np.array([1, 0, *range(2, c)])):
        found = check_rows(scores[:, wrong], labels, [f"kind {j}" for j in range(c)])
        assert found.order is not None
        assert (wrong[list(found.order)] == np.arange(c)).all()
        assert found.findings[0].startswith("the scores name kind 1 for kind 0")


def test_what_knows_nothing_or_is_skewed_is_not_inverted():
    rng = np.random.default_rng(1)
    for _ in range(1000):
        c, n = int(rng.integers(2, 12)), int(rng.integers(5, 500))
        labels = rng.choice(c, n, p=rng.dirichlet(np.full(c, 0.3)))
        scores = rng.normal(size=(n, c)) + rng.normal(size=c)
        assert check_rows(scores, labels).order is None
    # a model that is tuned to find 1 % of sick: mostly wrong, in the right order
    labels = (np.arange(2000) % 100 == 0).astype(np.int64)
    risk = rng.normal(size=2000) + 2 * labels + 1
    found = check_rows(np.stack([np.zeros(2000), risk], axis=1), labels)
    assert found.accuracy < 0.3 < found.guessing
    assert not found.findings
    scores = rng.normal(size=(40, 3))  # of one class alone
    (finding,) = check_rows(scores, np.ones(40, np.int64), ["a", "b", "c"]).findings
    assert finding.startswith("all 40 rows have the same label, b")
    assert not check_rows(scores[:3], np.ones(3, np.int64)).findings


def test_percentages_are_refused_by_that_name():
    p = np.random.default_rng(0).dirichlet(np.ones(4), 50)
    for kind, said in (("probs", "percentages must be divided by 100"), ("logits", "percentages")):
        with pytest.raises(InputError, match=said):
            check_scores("scores", kind, 100 * p)
    check_scores("scores", "logits", 50 * p)
    with pytest.raises(InputError) as e:
        check_scores("scores", "probs", 1000 * p)
    assert "percentages" not in str(e.value)
