"""Evaluation of prediction sets on labelled rows: exact numbers, with binomial intervals.

Number of rows that thresholds are based on, and warnings of too little coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcal.core.naming import called, listed
from fedcal.core.numerics import Floats, Integers
from fedcal.metrics.bootstrap import MOST_CLIENTS

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
class SetEvaluation:
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
        "whole", "class", "size", and "site" and "group" where known -> name -> coverage
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


def evaluate(
    sets: NDArray[np.bool_],
    labels: Integers,
    predicted: Integers,
    parts: Mapping[str, Parts] | None = None,
) -> SetEvaluation:
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
    partitions: dict[str, Parts] = {
        "whole": (np.zeros(n, np.int64), (ALL,)),
        "class": (labels, list(map(str, range(c)))),
        "size": (sizes, list(map(str, range(c + 1)))),
        **(parts or {}),
    }
    by = {kind: _covered(hit, sizes, *partition) for kind, partition in partitions.items()}
    alike = _alike(hit, partitions["site"][0]) if "site" in partitions else 1.0
    return SetEvaluation(sizes, hit, c, float((predicted == labels).mean()), by, alike)


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
        coverage[names[k]] = Covered(n, *map(float, (hits[k] / n, a, b, labels[k] / n)))
    return coverage


def binomial_interval(hits: Floats, rows: Integers) -> tuple[Floats, Floats]:
    """Return Clopper-Pearson intervals of proportions, (k,), (k,) -> (k,), (k,); rows >= 1."""
    from scipy.special import betaincinv

    tail = (1.0 - LEVEL) / 2.0
    missed = rows - hits
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), missed + 1, tail), 0.0)
    high = np.where(missed > 0, betaincinv(hits + 1, np.maximum(missed, 1), 1.0 - tail), 1.0)
    return low, high


FEW_CLASSES = 10
"""Up to this number of classes each has its own line, also on the terminal."""

NOISE_ENDS = 1.96

CHANCE = 0.025
"""Probability with which chance alone gives a warning of all rows, or of the parts."""

SHORT = "Sets cover"
"""Beginning of the sentence about all rows."""

_MOST = 5
"""Parts that a sentence names, the lowest coverage first."""


def interval(part: Covered) -> str:
    """Return the ends of the interval as text, in percent."""
    return f"{percent(part.low)} to {percent(part.high)}"


def shown(part: Covered) -> str:
    """Return coverage and interval as text, in percent."""
    return f"{percent(part.coverage)} ({interval(part)})"


def percent(share: float) -> str:
    """Return a fraction as a percentage with 4 significant digits."""
    return f"{100 * share:.4g} %"


@dataclass(frozen=True)
class Basis:
    """Number of rows that thresholds are based on, as far as a run may know it.

    Attributes
    ----------
    rows
        of each threshold: exact without privacy; else released with noise, or the public nominal
        number
    std
        of the noise of each
    exact
        whether `rows` are exact
    fewest
        rows that a threshold needs for any scores; None = unknown
    noun
        counted unit: "rows", or "subjects" where each counts once
    """

    rows: tuple[float, ...]
    std: float = 0.0
    exact: bool = False
    fewest: int | None = None
    noun: str = "rows"

    def ends(self, part: int) -> tuple[float, float]:
        """Return the 95 % interval of a threshold's number of rows."""
        off = NOISE_ENDS * self.std
        return max(0.0, self.rows[part] - off), max(0.0, self.rows[part] + off)

    def why_all(self, part: int) -> str:
        """Return why a threshold admits all labels, as a clause."""
        low, high = self.ends(part)
        number = f"{low:,.0f} to {high:,.0f} by a noisy count"
        if not self.std:
            number = f"{high:,.0f}" if self.exact else f"about {high:,.0f}"
        if self.fewest is not None and high < self.fewest:
            needed = f"which needs {self.fewest:,}"
            return f"its {self.noun}, {number}, are too few for a threshold, {needed}"
        if self.exact:
            return f"too many of its {number} {self.noun} have the largest possible score"
        noise = "too few relative to the noise, or have scores too close to 1"
        return f"its {self.noun}, {number}, are {noise}"

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Basis:
        """Return the basis of its values as JSON text holds them."""
        return cls(**{**values, "rows": tuple(map(float, values["rows"]))})


def fewer_than_chance(hits: float, rows: float, alpha: float, made_of: float | None) -> float:
    """Return the probability of at most `hits`, if sets have the coverage 1 - alpha.

    If the threshold is an order statistic of n rows, the hits of m rows like them have a
    beta-binomial distribution: the coverage of such a threshold itself varies, by about
    sqrt(alpha (1 - alpha) / n). A noisy threshold varies more, around a mean that is higher.

    Parameters
    ----------
    hits, rows
        labels that are in their set; rows, rounded down where several count as one
    alpha
        fraction that may be missing
    made_of
        n; None = the threshold is taken to cover exactly 1 - alpha, and only test rows vary
    """
    from scipy.stats import betabinom, binom

    seen = min(round(hits), math.floor(rows))
    if made_of is None:
        return float(binom.cdf(seen, math.floor(rows), 1.0 - alpha))
    n = max(1, round(made_of))
    rank = math.ceil((n + 1) * (1.0 - alpha))
    return float(betabinom.cdf(seen, math.floor(rows), rank, n + 1 - rank)) if rank <= n else 1.0


def shortfalls(
    result: SetEvaluation,
    alpha: float,
    promised: Mapping[str, Sequence[str]],
    basis: Basis | None,
    names: Sequence[str] | None = None,
    fit_rows: int | None = None,
) -> list[str]:
    """Return a warning for each shortfall of coverage on test rows.

    Both the rows behind the threshold and the test rows vary by chance (see `fewer_than_chance`).
    Test rows are treated as independent, except that alike rows of many clients count as fewer
    (`Judged.alike`). Of several parts each is tested at a level divided by their number.

    Parameters
    ----------
    result
        coverage of test rows
    alpha
        fraction of rows whose label may be missing
    promised
        "class", "site", "group" -> names of the parts with their own threshold, in the order of the
        thresholds
    basis
        number of rows behind the thresholds; None = unknown
    names
        of the classes
    fit_rows
        number of rows of the run, where there is no basis; None = unknown
    """
    short, requested = [], percent(1.0 - alpha)
    if not promised:
        overall = result.by["whole"][ALL]
        made_of = basis.ends(-1)[0] if basis else fit_rows  # of all, or of no group
        if _falls_short(overall, alpha, made_of, CHANCE, result.alike):
            short.append(
                f"{SHORT} {shown(overall)} of the test rows, less than the requested {requested}, "
                "by more than chance: the guarantee is for rows like the clients', and these test "
                "rows are harder, or differ in another way."
            )
    for kind in dict.fromkeys(("class", *promised)):
        parts, own = result.by.get(kind, {}), promised.get(kind, ())
        if not own and result.classes > FEW_CLASSES:
            continue
        least = {name: basis.ends(k)[0] for k, name in enumerate(own)} if basis else {}
        level = CHANCE / max(1, len(parts))
        worst = {
            called(names, int(name)) if kind == "class" else name: part
            for name, part in sorted(parts.items(), key=lambda item: item[1].coverage)
            if _falls_short(part, alpha, least.get(name), level, result.alike)
        }
        if worst:
            each = listed([f"{name} {shown(part)}" for name, part in worst.items()], most=_MOST)
            why = _OWN if own else _POOLED + _ADVICE * (not promised)
            short.append(f"Covered less than {requested} of the time: {each}. {why}")
    return short


_OWN = "That is less than the guarantee for each by itself, by more than chance."
_POOLED = "The guarantee is for the rows of all classes together."
_ADVICE = " --set by=class covers each class by itself; it needs enough rows of each."


def _falls_short(
    part: Covered, alpha: float, made_of: float | None, level: float, alike: float
) -> bool:
    rows = part.rows / alike
    return fewer_than_chance(part.coverage * rows, rows, alpha, made_of) < level
