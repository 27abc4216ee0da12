"""Random splits of scored rows into calibration and test: what sets of a threshold come to there.

The score is 1 - p_y of the model's own probabilities, as in Angelopoulos et al., 2024. Their
program fits a temperature to all rows first, those of calibration and test included; here nothing
is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedcal import datasets
from fedcal.conformal import Conformity
from fedcal.conformal.angelopoulos import best_bins, best_gamma, inflated_level
from fedcal.core.numerics import Floats, Integers
from fedcal.experiments.report.figures.drawing import Panel, bars, curve, whiskers
from fedcal.experiments.report.figures.style import LINES
from fedcal.experiments.research.studies.angelopoulos.draws import private_thresholds
from fedcal.experiments.research.studies.rows import where
from fedcal.experiments.research.studies.spec import Record, Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALPHA = 0.1
STEP = 0.005
"""Width of a bar of coverage."""

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
    name
        of the data
    every
        (rows, c) score of each label
    own
        (rows,) score of the row's label
    accuracy
        of the model
    """

    name: str
    every: Floats
    own: Floats
    accuracy: float

    @classmethod
    def of(cls, name: str, logits: Floats, labels: Integers) -> Scored:
        """Score rows by their logits."""
        lac, accuracy = Conformity("lac"), float((logits.argmax(axis=1) == labels).mean())
        return cls(name, lac.of_all(logits), lac.of_labels(logits, labels), accuracy)


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
    return Scored.of(name, logits, labels)


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

    def judged(self, thresholds: Floats) -> SetEvaluation:
        """Evaluate the sets of (k,) thresholds on the test rows."""
        covered = (self.of.own[self.tests] <= thresholds[:, None]).mean(axis=1)
        most = self.of.every.shape[1]
        sizes = np.zeros(most + 1, np.int64)
        means = np.empty(len(thresholds))
        for k, (rows, threshold) in enumerate(zip(self.tests, thresholds, strict=True)):
            size = np.count_nonzero(self.of.every[rows] <= threshold, axis=1)
            sizes += np.bincount(size, minlength=most + 1)
            means[k] = size.mean()
        return SetEvaluation(covered, means, sizes, float((thresholds >= 1).mean()))


@dataclass(frozen=True, eq=False)
class SetEvaluation:
    """Sets of many splits.

    Attributes
    ----------
    coverage, mean_sizes
        (k,) of each split
    sizes
        (c + 1,) rows of all splits with a set of 0 to c labels
    all_labels
        share of splits whose sets hold all labels
    """

    coverage: Floats
    mean_sizes: Floats
    sizes: Integers
    all_labels: float

    @property
    def record(self) -> Record:
        """Coverage and size, as numbers of a row."""
        splits = len(self.coverage)
        return {
            "splits": splits,
            "coverage": float(self.coverage.mean()),
            "coverage_error": float(self.coverage.std() / math.sqrt(splits)),
            "coverage_median": float(np.median(self.coverage)),
            "coverage_low": float(np.quantile(self.coverage, 0.05)),
            "coverage_high": float(np.quantile(self.coverage, 0.95)),
            "set_size": float(self.mean_sizes.mean()),
            "set_size_error": float(self.mean_sizes.std() / math.sqrt(splits)),
            "empty": float(self.sizes[0] / self.sizes.sum()),
            "all_labels": self.all_labels,
        }


def joined(each: Sequence[SetEvaluation]) -> SetEvaluation:
    """Join splits of several networks, as many of each."""
    return SetEvaluation(
        np.concatenate([one.coverage for one in each]),
        np.concatenate([one.mean_sizes for one in each]),
        np.sum([one.sizes for one in each], axis=0),
        float(np.mean([one.all_labels for one in each])),
    )


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


def level_of(n: int, epsilon: float, bins: int | None = None) -> Record:
    """Parameters of the private rule: `epsilon`, `bins`, `gamma` = gamma*, `level` = q~.

    Parameters
    ----------
    bins
        None = m* of Algorithm 5
    """
    m = best_bins(n, epsilon, ALPHA) if bins is None else bins
    gamma = best_gamma(n, m, epsilon, ALPHA)
    level = inflated_level(n, m, epsilon, ALPHA, gamma)
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
    exact = splits.judged(exact_thresholds(scores, ALPHA))
    return {EXACT: (dict.fromkeys(mine), exact), PRIVATE: (mine, splits.judged(drawn))}


def setting(place: Record, rule: Record, found: SetEvaluation) -> Record:
    """Return a row of what = "setting": its identity, the rule's parameters and the result."""
    return {"what": "setting", **place, **rule, **found.record}


def histograms(place: Record, found: SetEvaluation) -> Rows:
    """Rows of what = "coverage" (of a split) and "size": `at` and `share` of each bar.

    Parameters
    ----------
    place
        what tells the setting apart

    Returns
    -------
    list of dict
        `at` is the lower end of a bar of coverage, and the labels in a set
    """
    lines: Rows = []
    bar = np.floor(found.coverage / STEP + 1e-9).astype(int)
    for what, at, counts in (
        ("coverage", np.unique(bar) * STEP, np.unique(bar, return_counts=True)[1]),
        ("size", np.flatnonzero(found.sizes), found.sizes[found.sizes > 0]),
    ):
        shares = counts / counts.sum()
        lines += (
            {"what": what, **place, "at": float(round(x, 6)), "share": float(s)}
            for x, s in zip(at, shares, strict=True)
        )
    return lines


# -- figures -------------------------------------------------------------------------------------

BARS = ("correct", "under")
"""Series of histograms: filled, and hatched on top."""

BOTH = tuple(zip(BARS, (f"{EXACT} sets", f"{PRIVATE} sets"), strict=True))
"""Their legend, where one is of exact and one of private sets."""

AXES = {"coverage": ("coverage, %", 100.0), "set_size": ("mean set size", 1.0)}
"""What is drawn of a row -> label of the axis, and factor."""


def by_sets(found: Rows, note: str, titles: Sequence[str]) -> list[Panel]:
    """Histograms of coverage and of set size, of exact and of private sets in one panel.

    Parameters
    ----------
    found
        rows of `histograms` of one setting
    titles
        of the two panels
    """
    series = {
        look: where(found, sets=sets) for look, sets in zip(BARS, (EXACT, PRIVATE), strict=True)
    }
    both = zip(titles, ("coverage", "size"), strict=True)
    return [_histogram(title, note, what, series) for title, what in both]


def _histogram(title: str, note: str, what: str, series: Mapping[str, Rows]) -> Panel:
    of_splits = what == "coverage"
    step = STEP if of_splits else 1.0
    mine = {look: where(rows, what=what) for look, rows in series.items()}
    every = [r for rows in mine.values() for r in rows]
    low, high = (pick(r["at"] for r in every) for pick in (min, max))

    def plot(ax: Axes) -> None:
        ax.set(xlabel="coverage" if of_splits else "labels in a set", ylabel="share")
        for look, rows in mine.items():
            left = np.array([r["at"] for r in rows]) - (0.0 if of_splits else 0.5)
            shares = np.array([r["share"] for r in rows])
            bars(ax, look, left, left + step, np.zeros(len(shares)), shares)
        ax.set_ylim(0, 1.05 * max(r["share"] for r in every))
        if of_splits:
            ax.axvline(1 - ALPHA, label="reference", **LINES["reference"])
        ax.set_xlim(low - step, high + (2 * step if of_splits else step))

    said = "; ".join(
        f"{look}: " + ", ".join(f"{r['at']:g} {100 * r['share']:.1f} %" for r in rows)
        for look, rows in mine.items()
    )
    return Panel(title, plot, f"{title}, {note}. {said}.", aspect=0.75, note=note)


def by_number(
    y: str, note: str, axis: str, key: str, lines: Mapping[str, Rows], exact: Record
) -> Panel:
    """Return a panel with mean coverage (and 5 to 95 % of the splits) or mean set size by a number.

    Parameters
    ----------
    y
        of `AXES`
    axis, key
        what the number is called; of rows
    lines
        look, of `LINES` -> rows of what = "setting"
    exact
        the row without privacy, a line across
    """
    title, (label, factor) = y.capitalize().replace("_", " "), AXES[y]

    def plot(ax: Axes) -> None:
        ax.set(xlabel=axis, ylabel=label)
        ax.set_xscale("log")
        ax.axhline(factor * exact[y], **LINES["b1"])
        for look, rows in lines.items():
            x = [r[key] for r in rows]
            curve(ax, look, x, [factor * r[y] for r in rows])
            if y == "coverage":
                ends = ("coverage_low", "coverage_high")
                whiskers(ax, look, x, *([factor * r[end] for r in rows] for end in ends))
        if y == "coverage":
            ax.axhline(100 * (1 - ALPHA), **LINES["reference"])

    said = "; ".join(
        ", ".join(f"{key} {r[key]:g}: {factor * r[y]:.4g}" for r in rows) for rows in lines.values()
    )
    return Panel(title, plot, f"{title}, {note}. {said}.", aspect=0.75, note=note)
