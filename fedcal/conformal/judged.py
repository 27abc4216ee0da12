"""Evaluation of prediction sets on labelled rows: exact numbers, with binomial intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from fedcal.core.types import Floats, Integers
from fedcal.metrics.gap_change import MOST_CLIENTS

LEVEL = 0.95
"""Confidence level of intervals."""

ALL = "all rows"

FEWEST_CLIENTS = 20
"""Clients with test rows that are needed to estimate whether rows of a client are alike."""


@dataclass(frozen=True)
class Covered:
    """Coverage of some rows.

    Attributes
    ----------
    rows
        number of rows
    coverage
        fraction of rows whose label is in their set
    low, high
        its Clopper-Pearson interval at 95 %, which treats rows as independent
    set_size
        mean number of labels in a set
    """

    rows: int
    coverage: float
    low: float
    high: float
    set_size: float


@dataclass(frozen=True)
class Judged:
    """Evaluation of prediction sets on labelled rows.

    Attributes
    ----------
    sizes
        (n,) labels in each set
    hit
        (n,) whether the label is in its set
    classes
        number of classes
    correct
        accuracy of the most probable label: coverage of sets of that label alone
    by
        "whole", "class", "size", and "site" and "group" where known -> name -> coverage; "alone" ->
        label -> how often the label is right in rows whose set is this label alone
    alike
        design effect: test rows that are worth one, as rows of a client are alike; 1 = independent
    """

    sizes: Integers
    hit: NDArray[np.bool_]
    classes: int
    correct: float
    by: Mapping[str, Mapping[str, Covered]]
    alike: float = 1.0

    @property
    def before(self) -> dict[str, float]:
        """Coverage and size of sets of the most probable label alone."""
        return {"coverage": self.correct, "set_size": 1.0}

    @property
    def after(self) -> dict[str, float]:
        """Coverage, mean set size, and fractions of rows with one label, none, and all of them."""
        sizes = self.sizes
        return {
            "coverage": float(self.hit.mean()),
            "set_size": float(sizes.mean()),
            "singletons": float((sizes == 1).mean()),
            "empty": float((sizes == 0).mean()),
            "all_labels": float((sizes == self.classes).mean()),
        }

    @property
    def coverage_by(self) -> dict[str, dict[str, dict[str, float]]]:
        """Values of `by` as plain dicts, for JSON."""
        return {
            kind: {name: asdict(covered) for name, covered in parts.items()}
            for kind, parts in self.by.items()
        }


Parts = tuple[Integers, Sequence[str]]
"""(n,) the part of each row, and the names of all parts."""


def judged(
    sets: NDArray[np.bool_],
    labels: Integers,
    predicted: Integers,
    parts: Mapping[str, Parts] | None = None,
) -> Judged:
    """Evaluate sets on at least one labelled row.

    Parameters
    ----------
    sets
        (n, c)
    labels, predicted
        (n,) true labels, and the model's most probable ones
    parts
        further partitions of the rows, such as "site"
    """
    n, c = sets.shape
    hit, sizes = sets[np.arange(n), labels], sets.sum(axis=1)
    ways: dict[str, Parts] = {
        "whole": (np.zeros(n, np.int64), (ALL,)),
        "class": (labels, list(map(str, range(c)))),
        "size": (sizes, list(map(str, range(c + 1)))),
        **(parts or {}),
    }
    by = {kind: _covered(hit, sizes, *way) for kind, way in ways.items()}
    one = sizes == 1
    by["alone"] = _covered(hit[one], sizes[one], sets[one].argmax(axis=1), ways["class"][1])
    alike = _alike(hit, ways["site"][0]) if "site" in ways else 1.0
    return Judged(sizes, hit, c, float((predicted == labels).mean()), by, alike)


def _alike(hit: NDArray[np.bool_], owner: Integers) -> float:
    """Return the design effect of clients: variance of coverage relative to independence.

    It is at least 1, and 1 for fewer than `FEWEST_CLIENTS`, whose variance is not known well
    enough.
    """
    off = hit - hit.mean()
    clients = np.count_nonzero(np.bincount(owner))
    if clients < FEWEST_CLIENTS or not off.any():
        return 1.0
    between = (np.bincount(owner, off) ** 2).sum() * clients / (clients - 1)
    return max(1.0, float(between / (off**2).sum()))


def _covered(
    hit: NDArray[np.bool_], sizes: Integers, part: Integers, names: Sequence[str]
) -> dict[str, Covered]:
    """Return the coverage of each part with rows, at most `MOST_CLIENTS` parts."""
    rows = np.bincount(part, minlength=len(names))
    hits: Floats = np.bincount(part, hit, len(names)).astype(np.float64)
    labels = np.bincount(part, sizes, len(names))
    there = np.flatnonzero(rows)[:MOST_CLIENTS]
    low, high = binomial_interval(hits[there], rows[there])
    coverage = {}
    for k, a, b in zip(there, low, high, strict=True):
        n = int(rows[k])
        coverage[names[k]] = Covered(
            n, float(hits[k] / n), float(a), float(b), float(labels[k] / n)
        )
    return coverage


def binomial_interval(hits: Floats, rows: Integers) -> tuple[Floats, Floats]:
    """Return Clopper-Pearson intervals of proportions, (k,), (k,) -> (k,), (k,); rows >= 1."""
    from scipy.special import betaincinv

    tail = (1.0 - LEVEL) / 2.0
    missed = rows - hits
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), missed + 1, tail), 0.0)
    high = np.where(missed > 0, betaincinv(hits + 1, np.maximum(missed, 1), 1.0 - tail), 1.0)
    return low, high
