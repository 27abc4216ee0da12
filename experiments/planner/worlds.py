"""Models that a plan is tried on: made-up ones of known truth, or shipped public data.

A made-up world starts from logits z* that are exactly right, y ~ softmax(z*), and distorts them
into what a model would say. How (over- or underconfident, easy or hard, the same for all rows and
classes or not) differs from world to world, so that no advice hangs on one kind of model. Because
the truth is known, calibration errors are computed from softmax(z*) itself, without the noise of
labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedcal.calibrators import Calibrator
from fedcal.core.numerics import row_sum, softmax
from fedcal.core.streams import Purpose, stream
from fedcal.core.types import Floats, Integers
from fedcal.datasets import Dataset
from fedcal.metrics.binning import bin_index
from fedcal.metrics.standard import BINS

TEST_ROWS = 4_000
TEST_NUMBERS = 200_000
"""Test rows of a world, and their logits, at most."""


@dataclass(frozen=True)
class Errors:
    """Errors of a calibrator, as fractions."""

    accuracy: float
    ece: float
    classwise_ece: float


@dataclass(frozen=True)
class World:
    """A model and the truth about its test rows.

    Attributes
    ----------
    key
        of the random draws of its rows
    logits
        (n, c) what the model says of the test rows
    truth
        (n, c) probability of each class; one-hot where only labels are known
    draw
        rows, generator -> logits and labels of fresh rows to learn from
    public
        shipped data, not made up
    """

    name: str
    about: str
    key: str
    logits: Floats
    truth: Floats
    draw: Callable[[int, np.random.Generator], tuple[Floats, Integers]]
    public: bool = False

    @property
    def classes(self) -> int:
        """Number of classes c."""
        return int(self.logits.shape[1])

    def judge(self, calibrator: Calibrator | None) -> tuple[Errors, Floats]:
        """Errors on the test rows, and (n,) the probability of the class that the model chose.

        None stands for the model as it is.
        """
        p = softmax(self.logits) if calibrator is None else calibrator.calibrated(self.logits)
        chosen = np.take_along_axis(p, self.logits.argmax(axis=1)[:, None], axis=1)[:, 0]
        return errors(p, self.truth), chosen


def errors(probs: Floats, truth: Floats, bins: int = BINS) -> Errors:
    """ECE, classwise ECE and accuracy against known class probabilities, both (n, c).

    With one-hot `truth` these are the metrics of `fedcal.metrics`.
    """
    n, c = probs.shape
    rows, top = np.arange(n), probs.argmax(axis=1)
    confidence, right = probs[rows, top], truth[rows, top]
    gap = np.bincount(bin_index(confidence, bins), confidence - right, bins)
    cells = bin_index(probs, bins) + bins * np.arange(c)
    gaps = np.bincount(cells.ravel(), (probs - truth).ravel(), bins * c)
    ece, classwise = np.abs(gap).sum() / n, np.abs(gaps).sum() / (n * c)
    return Errors(float(right.mean()), float(ece), float(classwise))


@dataclass(frozen=True)
class _Kind:
    """Parameters of a made-up world.

    Attributes
    ----------
    key
        of its random draws; another key makes another world of the kind
    accuracy
        of many classes; of two as much better than chance
    temperature
        T of an ordinary row
    uneven
        by how much log T falls from certain rows (entropy 0) to uncertain ones (log c)
    offsets
        std of what is added to each class
    """

    name: str
    about: str
    key: str
    accuracy: float
    temperature: float
    uneven: float
    offsets: float


KINDS = (
    _Kind("overconfident", "accurate and far too confident", "sure", 0.93, 2.3, -0.2, 0.0),
    _Kind("inaccurate", "often wrong and too confident", "hard", 0.75, 1.9, 0.2, 0.1),
    _Kind("underconfident", "accurate, not confident enough", "timid", 0.93, 0.75, 0.5, 0.1),
    _Kind("uneven", "too confident, unevenly by row and class", "crooked", 0.88, 1.8, 0.8, 0.5),
)
_JITTER = 0.3
"""Std of log T from row to row: what no calibrator can learn."""


def made_up(classes: int, seed: int = 0) -> tuple[World, ...]:
    """One world of each kind, for this number of classes."""
    return tuple(_world(kind, classes, seed) for kind in KINDS)


def _world(kind: _Kind, classes: int, seed: int) -> World:
    rng = stream(seed, Purpose.SPLIT, what=f"planner world {kind.key} {classes}")
    offsets = kind.offsets * rng.standard_normal(classes)
    # Of two classes chance alone is right half of the time: as much better than that.
    accuracy = kind.accuracy if classes > 2 else 0.5 + 0.5 * (2 * kind.accuracy - 1) ** 0.75
    scale = _scale(accuracy, _raw(1000, classes, rng))
    n = min(TEST_ROWS, TEST_NUMBERS // classes)
    right = scale * _raw(n, classes, rng)

    def draw(rows: int, source: np.random.Generator) -> tuple[Floats, Integers]:
        z = scale * _raw(rows, classes, source)
        return _distorted(z, kind, offsets, source), _labels(softmax(z), source)

    logits = _distorted(right, kind, offsets, rng)
    return World(kind.name, kind.about, kind.key, logits, softmax(right), draw)


def _raw(rows: int, classes: int, rng: np.random.Generator) -> Floats:
    """Logits of rows that are easy or hard by a lognormal factor: most nets have many easy ones."""
    z = 0.45 * rng.standard_normal((rows, classes))
    z[np.arange(rows), rng.integers(0, classes, rows)] += 1.0 + 0.25 * math.log(classes)
    return np.asarray(z * np.exp(0.9 * rng.standard_normal(rows))[:, None])


def _scale(accuracy: float, raw: Floats) -> float:
    """Return the factor at which the best guess has the given accuracy."""
    low, high = -4.0, 8.0
    for _ in range(20):
        middle = 0.5 * (low + high)
        right = softmax(math.exp(middle) * raw).max(axis=1).mean()
        low, high = (middle, high) if right < accuracy else (low, middle)
    return math.exp(0.5 * (low + high))


def _distorted(right: Floats, kind: _Kind, offsets: Floats, rng: np.random.Generator) -> Floats:
    """Return the model's logits in place of `right`: temperature by entropy, and class offsets."""
    p = softmax(right)
    entropy = -row_sum(p * np.log(np.maximum(p, 1e-12))) / math.log(p.shape[1])
    jitter = _JITTER * rng.standard_normal(len(p))
    factor = kind.temperature * np.exp(kind.uneven * (0.3 - entropy) + jitter)
    return np.asarray(factor[:, None] * (right + offsets))


def _labels(p: Floats, rng: np.random.Generator) -> Integers:
    """One label for each row's probabilities, (n, c) -> (n,)."""
    cumulative = np.cumsum(p, axis=1)
    drawn = rng.random(len(p)) * cumulative[:, -1]
    return np.asarray(np.minimum((cumulative <= drawn[:, None]).sum(axis=1), p.shape[1] - 1))


def of_public(data: Dataset) -> World:
    """Return the world of a shipped data set; rows to learn from are drawn with replacement."""
    if data.test_logits is None or data.test_labels is None:
        data = data.split(0)
    logits, labels = data.logits, data.labels

    def draw(rows: int, source: np.random.Generator) -> tuple[Floats, Integers]:
        drawn = source.integers(0, len(labels), rows)
        return logits[drawn], labels[drawn]

    test: Floats = data.test_logits  # type: ignore[assignment]  # there since it is split
    truth = np.eye(data.classes)[data.test_labels]
    about = "public data, its test rows as the truth"
    return World(data.name, about, data.name, test, truth, draw, True)
