"""What prediction sets promise and what they are worth, as tables and figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedcal.conformal.aims import Aim
from fedcal.conformal.judged import ALL, Covered, Judged
from fedcal.conformal.pages.reported import Reported
from fedcal.core.classes import called, class_names
from fedcal.core.pages import Curve, Intervals, Part, Table
from fedcal.core.types import Floats, Integers

MOST_LINES = 40
"""Of a figure or table of classes, sites, groups or thresholds."""

EXAMPLES = 8
"""Test rows whose sets are shown."""

FEW_CLASSES = 10
"""Up to so many classes each has a line of its own, also on the terminal."""

_MOST_LABELS = 8  # of an example

_ENDS = ("coverage", "low", "high")

_EXACT = "Exact numbers on test rows, for the researcher's eyes: no private release."

_BY = {"class": "class", "site": "site", "group": "group", "size": "set size"}


def promise(
    alpha: float,
    score: str,
    thresholds: Mapping[str, float],
    guarantee: Sequence[str],
    aim: Aim | None = None,
    why_all: Mapping[str, str] | None = None,
    by_class: bool = False,
) -> Table:
    """The thresholds, and what is proven of them.

    Parameters
    ----------
    why_all
        name -> why its threshold lets all labels in
    by_class
        whether each label has its own
    """

    def held(name: str, t: float) -> str:
        if t >= 1:
            why = (why_all or {}).get(name, "")
            every = f"{name} is in every set" if by_class else "all labels"
            return f"{every}: {why}" if why else every
        if by_class:
            return f"{name} is in a set if its score is at most {t:.4g}"
        return f"labels whose score is at most {t:.4g}"

    first = list(thresholds.items())[:MOST_LINES]
    rows = tuple((name, f"{t:.6g}", held(name, t)) for name, t in first)
    note = " ".join(guarantee)
    if len(first) < len(thresholds):
        note = f"The first {len(first)} of {len(thresholds)}. {note}"
    goal = f"{percent(1 - alpha)} coverage"
    if aim is not None:
        name, bound, share = aim.wanted(alpha)
        goal = f"{name} {bound} {percent(share)}"
    title = f"Prediction sets for {goal} by the score '{score}'"
    meaning = "in words" if by_class else "a set holds"
    return Table(title, ("of", "threshold", meaning), rows, note.strip())


def reported_parts(reported: Reported, alpha: float) -> list[Part]:
    """Coverage of groups of the clients' rows, as released: a figure, and all of it as a table."""
    lines = reported.lines
    table = tuple(
        (
            name,
            "drowned by noise" if line["coverage"] is None else percent(line["coverage"]),
            f"{percent(line['low'] or 0.0)} to {percent(line['high'] or 0.0)}",
            f"{line['rows']:,.0f}",
        )
        for name, line in lines.items()
    )
    title = "Coverage by group, as released"
    note = "Of the clients' own rows; intervals are of sampling and noise."
    seen = [name for name, line in lines.items() if line["coverage"] is not None]
    seen = sorted(seen, key=lambda name: lines[name]["coverage"] or 0.0)[:MOST_LINES]
    points = tuple((name, *(100 * (lines[name][end] or 0.0) for end in _ENDS)) for name in seen)
    return [
        Intervals(
            title,
            "coverage, %",
            {"clients' rows": points},  # type: ignore[dict-item]
            {"1 - alpha": 100 * (1 - alpha)},
            "With 95 % intervals; the least first.",
        ),
        Table(title, ("group", "coverage", "95 % interval", "rows, about"), table, note),
    ]


def judged_parts(
    found: Judged,
    alpha: float,
    sets: NDArray[np.bool_],
    labels: Integers,
    probs: Floats,
    promised: Collection[str] = (),
    aim: Aim | None = None,
    names: Sequence[str] | None = None,
) -> list[Part]:
    """What test rows tell, from top to bottom.

    Parameters
    ----------
    found
        their coverage
    alpha
        the share of rows whose label may be missing
    sets, probs
        (n, c) of these rows
    labels
        (n,)
    promised
        the parts ("class", "site", "group") that coverage was promised to each of
    aim
        what is promised where rows count by their label
    names
        of the classes
    """
    return [
        _summary(found, alpha, aim, labels),
        *([class_table(found, names)] if found.classes <= FEW_CLASSES else []),
        *(
            _forest(found.by[by], by, alpha, by in promised, names)
            for by in _BY
            if len(found.by.get(by, ())) > 1
        ),
        _sizes(found),
        _examples(found, sets, labels, probs, names),
    ]


def class_table(found: Judged, names: Sequence[str] | None = None) -> Table:
    """Coverage of each class, and how often a set of its label alone is right."""
    rows, total = [], found.by["whole"][ALL].rows
    for j in range(found.classes):
        own, alone = (found.by[kind].get(str(j)) for kind in ("class", "alone"))
        coverage = ("", "") if own is None else (percent(own.coverage), interval(own))
        right = ("0 %", "") if alone is None else (percent(alone.rows / total), shown(alone))
        rows.append((called(names, j), own.rows if own else 0, *coverage, *right))
    heads = (
        "label",
        "test rows",
        "coverage",
        "95 % interval",
        "sets of it alone",
        "of these right",
    )
    note = f"Shares of all test rows, and of the rows whose set is the label alone. {_EXACT}"
    return Table("Class by class", heads, tuple(rows), note)


def interval(part: Covered) -> str:
    """Its ends as people read them."""
    return f"{percent(part.low)} to {percent(part.high)}"


def shown(part: Covered) -> str:
    """Its coverage and the ends."""
    return f"{percent(part.coverage)} ({interval(part)})"


def percent(share: float) -> str:
    """A share as people read it."""
    return f"{100 * share:.4g} %"


def _summary(found: Judged, alpha: float, aim: Aim | None, labels: Integers) -> Table:
    after, whole = found.after, found.by["whole"][ALL]
    one = found.by["size"].get("1")
    wanted = [("wanted at least", percent(1 - alpha), "")]
    if aim is not None:
        name, bound, share = aim.wanted(alpha)
        told = [(name, percent(v), "") for v in aim.judged(~found.hit, labels).values()]
        wanted = [*told, (f"wanted {bound}", percent(share), "")]
    rows = (
        ("coverage", percent(after["coverage"]), interval(whole)),
        *wanted,
        ("mean labels in a set", f"{after['set_size']:.4g} of {found.classes}", ""),
        ("sets of one label", percent(after["singletons"]), ""),
        *([("of these right", percent(one.coverage), interval(one))] if one else []),
        ("empty sets", percent(after["empty"]), ""),
        ("sets of all labels", percent(after["all_labels"]), ""),
        ("coverage of the most probable label alone", percent(found.correct), ""),
    )
    note = f"{whole.rows:,} test rows; the interval is binomial and takes them as independent."
    return Table("Coverage", ("test rows", "value", "95 % interval"), rows, f"{note} {_EXACT}")


def _forest(
    parts: Mapping[str, Covered], by: str, alpha: float, promised: bool, names: Sequence[str] | None
) -> Intervals:
    """Coverage of each part; of many those that are covered worst."""
    worst = sorted(parts, key=lambda name: parts[name].coverage)[:MOST_LINES]
    kept = [name for name in parts if name in set(worst)]
    title = f"Coverage by {_BY[by]}"
    note = "With 95 % binomial intervals; in brackets the rows."
    if not promised:
        note += " Coverage was not promised to each of these by itself."
    if len(kept) < len(parts):
        note = f"The {len(kept)} of {len(parts)} that are covered worst. {note}"

    def label(name: str) -> str:
        if by == "class":
            return called(names, int(name))
        return f"{_BY[by]} {name}" if by == "size" else name

    lines = tuple(
        (f"{label(name)} ({p.rows:,})", 100 * p.coverage, 100 * p.low, 100 * p.high)
        for name in kept
        for p in (parts[name],)
    )
    reference = {"1 - alpha": 100 * (1 - alpha)}
    return Intervals(title, "coverage, %", {"sets": lines}, reference, note)


def _sizes(found: Judged) -> Curve:
    """Share of rows by the size of their set."""
    share = 100 * np.bincount(found.sizes) / len(found.sizes)
    points = tuple((float(k), float(s)) for k, s in enumerate(share))
    return Curve("Set sizes", "labels in a set", "test rows, %", {"sets": points})


def _examples(
    found: Judged,
    sets: NDArray[np.bool_],
    labels: Integers,
    probs: Floats,
    names: Sequence[str] | None,
) -> Table:
    """Rows from the smallest set to the largest, evenly spaced."""
    order = np.argsort(found.sizes, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, EXAMPLES).round().astype(int))]
    names = class_names(names, found.classes)
    rows = tuple(
        (
            str(k),
            names[labels[k]],
            "yes" if found.hit[k] else "no",
            _words(sets[k], probs[k], names),
        )
        for k in chosen.tolist()
    )
    return Table(
        "Examples of sets",
        ("test row", "label", "in its set", "set, the most probable first"),
        rows,
        "From the smallest set to the largest, evenly spaced; numbers are from 0.",
    )


def _words(members: NDArray[np.bool_], probs: Floats, names: Sequence[str]) -> str:
    order = np.argsort(-probs, kind="stable")
    there = [names[k] for k in order.tolist() if members[k]]
    if not there:
        return "none"
    if len(there) == len(members):
        return "all labels"
    more = len(there) - _MOST_LABELS
    return ", ".join(there[:_MOST_LABELS]) + (f" and {more} more" if more > 0 else "")
