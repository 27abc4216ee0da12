"""Random splits of scored rows into calibration and test: what sets of a threshold come to there.

The score is 1 - p_y of the model's own probabilities, as in Angelopoulos et al., 2024. Their
program fits a temperature to all rows first, those of calibration and test included; here nothing
is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.studies.spec import Record
from fedcal import datasets
from fedcal.conformal import Conformity, levels
from fedcal.core.numerics import Floats, Integers

ALPHA = 0.1
LIFE_SCIENCES = (
    *("anatomy", "clinical_knowledge", "college_medicine"),
    *("high_school_biology", "professional_medicine"),
)
"""Subjects of questions of mmlu-llama."""

MEDICAL = "mmlu-llama, life sciences"

TEST_ROWS_ONLY = ("resnet110-cifar10",)
"""Data whose fit rows are of another kind: they validated the network's training."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Rows with the scores of their labels.

    Attributes
    ----------
    every
        (rows, c) score of each label
    own
        (rows,) score of the row's label
    accuracy
        of the model
    """

    every: Floats
    own: Floats
    accuracy: float

    @classmethod
    def of(cls, logits: Floats, labels: Integers) -> Scored:
        """Score rows by their logits."""
        lac, accuracy = Conformity("lac"), float((logits.argmax(axis=1) == labels).mean())
        return cls(lac.of_all(logits), lac.of_labels(logits, labels), accuracy)


@cache
def scored(name: str) -> Scored:
    """All rows of a shipped data set that are of one kind; or of `MEDICAL`."""
    data = datasets.load("mmlu-llama" if name == MEDICAL else name)
    logits, labels = data.logits, data.labels
    if name == MEDICAL:
        names, of = data.client_names, data.client
        if names is None or of is None:
            raise TypeError(f"{name} has no subjects")
        mine = np.isin(of, [names.index(subject) for subject in LIFE_SCIENCES])
        logits, labels = logits[mine], labels[mine]
    elif data.test_logits is not None and data.test_labels is not None:
        before = slice(0) if name in TEST_ROWS_ONLY else slice(None)
        logits = np.concatenate([logits[before], data.test_logits])
        labels = np.concatenate([labels[before], data.test_labels])
    return Scored.of(logits, labels)


@dataclass(frozen=True, eq=False)
class Splits:
    """Random divisions of rows.

    Attributes
    ----------
    calibration
        (k, n) scores of labels
    tests
        (k, tests) numbers of rows
    """

    of: Scored
    calibration: Floats
    tests: Integers

    def evaluate(self, at: Floats) -> SetEvaluation:
        """Evaluate the sets of (k,) thresholds `at` on the test rows."""
        covered = (self.of.own[self.tests] <= at[:, None]).mean(axis=1)
        sizes = np.stack(
            [
                np.count_nonzero(self.of.every[rows] <= threshold, axis=1)
                for rows, threshold in zip(self.tests, at, strict=True)
            ]
        )
        return SetEvaluation(covered, sizes.mean(axis=1), (sizes == 0).mean(axis=1), at >= 1)


class SetEvaluation(NamedTuple):
    """Sets of many splits.

    Attributes
    ----------
    coverage, mean_sizes, empty
        (k,) of each split
    all_labels
        (k,) whether the split's sets hold all labels
    """

    coverage: Floats
    mean_sizes: Floats
    empty: Floats
    all_labels: NDArray[np.bool_]

    @property
    def record(self) -> Record:
        """Coverage and size, as numbers of a row."""
        splits = len(self.coverage)
        return {
            "splits": splits,
            "coverage": float(self.coverage.mean()),
            "coverage_error": float(self.coverage.std() / math.sqrt(splits)),
            "coverage_median": float(np.median(self.coverage)),
            "set_size": float(self.mean_sizes.mean()),
            "empty": float(self.empty.mean()),
            "all_labels": float(self.all_labels.mean()),
        }


def joined(each: Sequence[SetEvaluation]) -> SetEvaluation:
    """Join splits of several networks, as many of each."""
    return SetEvaluation(*map(np.concatenate, zip(*each, strict=True)))


def split(of: Scored, n: int, tests: int, count: int, rng: np.random.Generator) -> Splits:
    """`count` random divisions of all rows: n to calibrate by, `tests` of the others."""
    rows = np.stack([rng.permutation(len(of.own))[: n + tests] for _ in range(count)])
    return Splits(of, of.own[rows[:, :n]], rows[:, n:])


def exact_thresholds(scores: Floats, alpha: float) -> Floats:
    """Return each line's ceil((n + 1) (1 - alpha))-th smallest, or 1, (k, n) -> (k,)."""
    n = scores.shape[1]
    rank = math.ceil(round((n + 1) * (1 - alpha), 9))
    if rank > n:
        return np.ones(len(scores))
    return np.asarray(np.partition(scores, rank - 1, axis=1)[:, rank - 1])


# -- the private quantile of the paper -----------------------------------------------------------

EXACT, PRIVATE = "non-private", "private"


def private_thresholds(
    scores: Floats,
    m: int,
    epsilon: float,
    alpha: float,
    rng: np.random.Generator,
    gamma: float | None = None,
) -> Floats:
    """Apply Algorithm 3 to many sets of rows.

    Parameters
    ----------
    scores
        (k, n) in [0, 1], n rows in each set
    m, epsilon, alpha
        as in `inflated_level`
    rng
        of the draws
    gamma
        None = `best_gamma`

    Returns
    -------
    Floats
        (k,) in (0, 1]; 1 = all labels.
    """
    n = scores.shape[1]
    gamma = levels.best_gamma(n, m, epsilon, alpha) if gamma is None else gamma
    level = levels.inflated_level(n, m, epsilon, alpha, gamma)
    if level >= 1:
        return np.ones(len(scores))
    return np.asarray(levels.thresholds(m)[drawn_bins(scores, m, level, epsilon, rng)])


def drawn_bins(
    scores: Floats, m: int, level: float, epsilon: float, rng: np.random.Generator
) -> Integers:
    """Apply Algorithm 2 to many sets of rows, in blocks that fit into memory, (k, n) -> (k,)."""
    step = max(1, 2_000_000 // m)
    blocks = [np.zeros(0, np.int64)]
    for start in range(0, len(scores), step):
        some = levels.binned(scores[start : start + step], m)
        place = some + m * np.arange(len(some))[:, None]
        counts = np.bincount(place.ravel(), minlength=m * len(some)).reshape(-1, m)
        blocks.append(levels.private_quantile(counts, level, epsilon, rng))
    return np.concatenate(blocks)


def level_of(n: int, epsilon: float, bins: int | None = None) -> Record:
    """Parameters of the private rule: `epsilon`, `bins`, `gamma` = gamma*, `level` = q~.

    Parameters
    ----------
    bins
        None = m* of Algorithm 5
    """
    m = levels.best_bins(n, epsilon, ALPHA) if bins is None else bins
    gamma = levels.best_gamma(n, m, epsilon, ALPHA)
    level = levels.inflated_level(n, m, epsilon, ALPHA, gamma)
    return {"epsilon": epsilon, "bins": m, "gamma": gamma, "level": level}


def by_both(
    splits: Splits, epsilon: float, rng: np.random.Generator, bins: int | None = None
) -> dict[str, tuple[Record, SetEvaluation]]:
    """Exact and private thresholds of the same splits: (the rule's parameters, what it comes to).

    Parameters
    ----------
    bins
        None = m* of Algorithm 5
    """
    scores = splits.calibration
    mine = level_of(scores.shape[1], epsilon, bins)
    drawn = private_thresholds(scores, mine["bins"], epsilon, ALPHA, rng, mine["gamma"])
    exact = splits.evaluate(exact_thresholds(scores, ALPHA))
    return {EXACT: (dict.fromkeys(mine), exact), PRIVATE: (mine, splits.evaluate(drawn))}


def setting(place: Record, rule: Record, found: SetEvaluation) -> Record:
    """Return a row of what = "setting": its identity, the rule's parameters and the result."""
    return {"what": "setting", **place, **rule, **found.record}
