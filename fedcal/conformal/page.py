"""Released counts of rows by conformity score, which give thresholds for every alpha.

Guarantee and evaluation of prediction sets, as sentences, tables and figures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcal.conformal.coverage import ALL, FEW_CLASSES, Covered, SetEvaluation, interval, percent
from fedcal.conformal.levels import CountNoise, SumNoise, after_last, centred_level, marginal_level
from fedcal.core.checks import fraction
from fedcal.core.naming import called
from fedcal.core.numerics import Floats, Purpose, key_of, stream
from fedcal.core.pages import Curve, Intervals, Part, Table
from fedcal.mechanisms import NoiseDistribution
from fedcal.storage.artifact import Holdout

if TYPE_CHECKING:
    from fedcal.conformal.sets import PredictionSets


ANY_ROW = "for a row that is exchangeable with all clients' rows taken together."
"""Rows that the guarantee is for, where rows are pooled: the end of a sentence."""

FAILS = 0.001
"""Fraction of alpha with which the bounds of the number of rows may fail."""


_ARRAYS = ("thresholds", "counts", "decoder")


@dataclass(frozen=True, eq=False)
class SetRelease:
    """Noisy counts of rows in buckets of their conformity score.

    Attributes
    ----------
    thresholds
        (m,) upper ends of the buckets, the last one 1
    counts
        (parts, m) unbiased estimates
    decoder
        (m, numbers): the noise of each part's counts is `decoder @ z`, of independent z
    noise
        distribution of z
    rows
        of the one part, where their number is public; None = it is private
    whose
        rows that the guarantee is for: the end of a sentence
    """

    thresholds: Floats
    counts: Floats
    decoder: Floats
    noise: CountNoise
    rows: int | None = None
    whose: str = ANY_ROW

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the release as arrays, for files."""
        plain = {"std": self.noise.std, **self.noise.distribution.to_json(), "rows": self.rows}
        arrays = {f"release_{name}": getattr(self, name) for name in _ARRAYS}
        return {**arrays, "release": np.array(json.dumps({**plain, "whose": self.whose}))}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self | None:
        """Return the release of `arrays`, or None if they hold none."""
        if "release" not in arrays:
            return None
        plain = json.loads(str(arrays["release"]))
        noise = CountNoise(float(plain["std"]), NoiseDistribution.of_json(plain))
        numbers: Any = {name: np.array(arrays[f"release_{name}"], np.float64) for name in _ARRAYS}
        rows = None if plain["rows"] is None else int(plain["rows"])
        return cls(**numbers, noise=noise, rows=rows, whose=str(plain["whose"]))

    @cached_property
    def below(self) -> Floats:
        """Noisy numbers of rows with a score of at most each threshold, (parts, m)."""
        return np.cumsum(self.counts, axis=1)

    @cached_property
    def prefix(self) -> Floats:
        """Noise of `below`, as coefficients of z, (m, numbers)."""
        return np.cumsum(self.decoder, axis=0)

    def found(self, alpha: float) -> Floats:
        """Return a threshold for each part with mean coverage >= 1 - alpha; 1 = all labels.

        It is the threshold after the last one whose noisy count is below the level. A private
        number of rows has a noisy bound, which may fail: alpha is lowered by as much.

        Parameters
        ----------
        alpha
            fraction of rows whose label may be missing

        Returns
        -------
        Floats
            (parts,)
        """
        fraction("alpha", alpha)
        if self.rows is None and self.noise.std:
            alpha *= 1.0 - FAILS
        if len(self.thresholds) == 1:
            return np.ones(len(self.counts))
        weights, counts = self.prefix[:-1], self.below[:, :-1]
        if self.rows is None:
            weights = weights - (1.0 - alpha) * self.prefix[-1]
            counts = counts - (1.0 - alpha) * self.below[:, -1:]
        noise, more = self.noise.of_sums(weights)
        if more.any():
            draw = stream(0, Purpose.BOOTSTRAP, 2, key_of(self.counts, alpha))
            counts = counts + more * draw.standard_normal(counts.shape)
        chosen = [
            after_last(self.thresholds, sums < self._level(part, alpha, noise))
            for part, sums in enumerate(counts)
        ]
        return np.array(chosen)

    def _level(self, part: int, alpha: float, noise: SumNoise) -> float:
        if self.rows is not None:
            return marginal_level(self.rows, alpha, noise)
        off = self.noise.bound(self.prefix[-1], 1.0 - FAILS * alpha / 2)
        return centred_level(float(self.below[part, -1]) - off, alpha, noise)


MOST_LINES = 40
"""Lines of a figure or table of classes, sites, groups or thresholds."""

_EXACT = "Exact numbers on test rows, for the researcher only: not a private release."

_BY = {"class": "class", "site": "site", "group": "group", "size": "set size"}


def of_whom(alpha: float, by: str, whose: str) -> str:
    """Return the guarantee as a sentence that ends with the rows it is for."""
    share = f"at least {1 - alpha:.4g}"
    each = {"none": "", "class": ", for each label by itself", "group": ", in each group by itself"}
    return f"The label of a new row is in its set with probability {share}{each[by]}, {whose}"


def if_not_clipped(guarantee: str, sure: float | None, rows: float | None) -> str:
    """Return a guarantee that clipping may break, with its condition and the worst case.

    Parameters
    ----------
    guarantee
        the sentence
    sure
        coverage that holds for any rows, where no client has more than `rows`; None = unknown
    """
    worst = "nothing is guaranteed"
    if sure is not None:
        least = math.floor(1000 * sure) / 1000
        worst = f"{least:g} is guaranteed if no client has more than {rows:g}"
    condition = "as long as clipping cuts off no misses; whatever the rows are"
    return f"{guarantee.removesuffix('.')}, {condition}, {worst}."


def of_release(release: SetRelease, alpha: float, by: str) -> tuple[str, ...]:
    """Return the guarantees for thresholds that are computed from a release of counts."""
    sentences = [of_whom(alpha, by, release.whose)]
    if by == "class":
        sentences.append("So it holds for any label shares, and under any label shift.")
    if release.rows is not None:
        sentences.append(
            f"The number of rows, {release.rows:,}, was treated as public and exact: with another "
            "number this does not hold."
        )
    return tuple(sentences)


def promise(of: PredictionSets) -> Table:
    """Return the thresholds and the guarantee as a table."""
    by_class, thresholds, why_all = of.by == "class", of.named, of.why_all

    def held(name: str, t: float) -> str:
        if t >= 1:
            every = f"{name} is in every set" if by_class else "all labels"
            return f"{every}: {why_all[name]}" if why_all.get(name) else every
        sets = f"{name} is in a set if its" if by_class else "labels whose"
        return f"{sets} score is at most {_outward(t, 4)}"

    first = list(thresholds.items())[:MOST_LINES]
    rows = tuple((name, _outward(t, 6), held(name, t)) for name, t in first)
    note = " ".join(of.guarantee)
    if len(first) < len(thresholds):
        note = f"The first {len(first)} of {len(thresholds)}. {note}"
    title = (
        f"Prediction sets for {percent(1 - of.alpha)} coverage by the score '{of.conformity.name}'"
    )
    meaning = "in words" if by_class else "a set holds"
    return Table(title, ("of", "threshold", meaning), rows, note.strip())


def _outward(threshold: float, digits: int) -> str:
    """Return the threshold with so many digits, rounded up: sets made with it lose no label."""
    context = Context(prec=digits, rounding=ROUND_CEILING)
    return f"{float(context.create_decimal_from_float(threshold)):.{digits}g}"


def evaluation_parts(of: PredictionSets, test: Holdout) -> list[Part]:
    """Return the results on test rows, from top to bottom."""
    result = of.evaluate(test)
    promised, names = of.promised(result), of.class_names
    share = 100 * np.bincount(result.sizes) / len(result.sizes)
    sizes = {"sets": tuple((float(k), float(s)) for k, s in enumerate(share))}
    return [
        _summary(of, result),
        *([class_table(result, names)] if result.classes <= FEW_CLASSES else []),
        *(
            _forest(result.by[by], by, of.alpha, by in promised, names)
            for by in _BY
            if len(result.by.get(by, ())) > 1
        ),
        Curve("Set sizes", "labels in a set", "test rows, %", sizes),
    ]


def class_table(result: SetEvaluation, names: Sequence[str] | None = None) -> Table:
    """Return the coverage of each class."""
    rows = []
    for j in range(result.classes):
        own = result.by["class"].get(str(j))
        coverage = ("", "") if own is None else (percent(own.coverage), interval(own))
        rows.append((called(names, j), own.rows if own else 0, *coverage))
    heads = ("label", "test rows", "coverage", "95 % interval")
    return Table("Class by class", heads, tuple(rows), _EXACT, left=(0,))


def _summary(of: PredictionSets, result: SetEvaluation) -> Table:
    after, overall = result.after, result.by["whole"][ALL]
    one = result.by["size"].get("1")
    rows = (
        ("coverage", percent(after["coverage"]), interval(overall)),
        ("wanted at least", percent(1 - of.alpha), ""),
        ("mean labels in a set", f"{after['set_size']:.4g} of {result.classes}", ""),
        ("sets of one label", percent(after["singletons"]), ""),
        *([("of these right", percent(one.coverage), interval(one))] if one else []),
        ("empty sets", percent(after["empty"]), ""),
        ("sets of all labels", percent(after["all_labels"]), ""),
        ("coverage of the most probable label alone", percent(result.correct), ""),
    )
    note = f"{overall.rows:,} test rows; the interval is binomial and treats them as independent."
    columns = ("test rows", "value", "95 % interval")
    return Table("Coverage", columns, rows, f"{note} {_EXACT}", left=(0,))


def _forest(
    parts: Mapping[str, Covered], by: str, alpha: float, promised: bool, names: Sequence[str] | None
) -> Intervals:
    """Return the coverage of each part; of more than `MOST_LINES` only the lowest."""
    lowest = sorted(parts, key=lambda name: parts[name].coverage)[:MOST_LINES]
    note = "With 95 % binomial intervals; in brackets the rows."
    if not promised:
        note += " Coverage is not guaranteed for each of these by itself."
    if len(lowest) < len(parts):
        note = f"The {len(lowest)} of {len(parts)} with the lowest coverage. {note}"

    def label(name: str) -> str:
        if by == "class":
            return called(names, int(name))
        return f"{_BY[by]} {name}" if by == "size" else name

    lines = tuple(
        (f"{label(name)} ({p.rows:,})", 100 * p.coverage, 100 * p.low, 100 * p.high)
        for name, p in parts.items()
        if name in {*lowest}
    )
    reference = {"1 - alpha": 100 * (1 - alpha)}
    return Intervals(f"Coverage by {_BY[by]}", "coverage, %", {"sets": lines}, reference, note)
