"""Guarantee and evaluation of prediction sets, as sentences, tables and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedcal.conformal.coverage import (
    ALL,
    FEW_CLASSES,
    Covered,
    SetEvaluation,
    interval,
    percent,
    shown,
)
from fedcal.conformal.set_release import SetRelease
from fedcal.core.naming import called, class_names, listed
from fedcal.core.numerics import Floats
from fedcal.core.pages import Curve, Intervals, Part, Table
from fedcal.storage.artifact import Holdout

if TYPE_CHECKING:
    from fedcal.conformal.sets import PredictionSets

MOST_LINES = 40
"""Lines of a figure or table of classes, sites, groups or thresholds."""

EXAMPLES = 8
"""Test rows whose sets are shown."""

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


def judged_parts(of: PredictionSets, test: Holdout) -> list[Part]:
    """Return the results on test rows, from top to bottom."""
    result, sets = of.judged(test)
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
        _examples(result, sets, test, class_names(names, result.classes)),
    ]


def class_table(result: SetEvaluation, names: Sequence[str] | None = None) -> Table:
    """Return the coverage of each class, and how often a set of its label alone is right."""
    rows, total = [], result.by["whole"][ALL].rows
    for j in range(result.classes):
        own, alone = (result.by[kind].get(str(j)) for kind in ("class", "alone"))
        coverage = ("", "") if own is None else (percent(own.coverage), interval(own))
        right = ("0 %", "") if alone is None else (percent(alone.rows / total), shown(alone))
        rows.append((called(names, j), own.rows if own else 0, *coverage, *right))
    first = ("label", "test rows", "coverage", "95 % interval")
    heads = (*first, "sets of it alone", "of these right")
    note = f"Percentages of all test rows, and of rows whose set is the label alone. {_EXACT}"
    return Table("Class by class", heads, tuple(rows), note, left=(0,))


def _summary(of: PredictionSets, result: SetEvaluation) -> Table:
    after, whole = result.after, result.by["whole"][ALL]
    one = result.by["size"].get("1")
    rows = (
        ("coverage", percent(after["coverage"]), interval(whole)),
        ("wanted at least", percent(1 - of.alpha), ""),
        ("mean labels in a set", f"{after['set_size']:.4g} of {result.classes}", ""),
        ("sets of one label", percent(after["singletons"]), ""),
        *([("of these right", percent(one.coverage), interval(one))] if one else []),
        ("empty sets", percent(after["empty"]), ""),
        ("sets of all labels", percent(after["all_labels"]), ""),
        ("coverage of the most probable label alone", percent(result.correct), ""),
    )
    note = f"{whole.rows:,} test rows; the interval is binomial and treats them as independent."
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


def _examples(
    result: SetEvaluation, sets: NDArray[np.bool_], test: Holdout, names: Sequence[str]
) -> Table:
    """Return example rows from the smallest set to the largest, evenly spaced."""
    order = np.argsort(result.sizes, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, EXAMPLES).round().astype(int))]
    rows = []
    for k in chosen.tolist():
        inside = "yes" if result.hit[k] else "no"
        words = _words(sets[k], test.probs[k], names)
        rows.append((str(k), names[test.labels[k]], inside, words))
    return Table(
        "Examples of sets",
        ("test row", "label", "in its set", "set, the most probable first"),
        tuple(rows),
        "From the smallest set to the largest, evenly spaced; numbers are from 0.",
    )


def _words(members: NDArray[np.bool_], probs: Floats, names: Sequence[str]) -> str:
    there = [names[k] for k in np.argsort(-probs, kind="stable").tolist() if members[k]]
    if len(there) == len(members) or not there:
        return "all labels" if there else "none"
    return listed(there, most=8)
