"""What prediction sets promise and what they are worth, as tables and figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedcal.conformal.aims import Aim
from fedcal.conformal.judged import ALL, Covered, Judged
from fedcal.conformal.reported import Reported
from fedcal.pages import Curve, Intervals, Part, Table
from fedcal.types import Floats, Integers

MOST_LINES = 40
"""Of a figure or table of classes, sites, groups or thresholds."""

EXAMPLES = 8
"""Test rows whose sets are shown."""

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
) -> Table:
    """The thresholds, and what is proven of them."""
    shown = list(thresholds.items())[:MOST_LINES]
    rows = tuple(
        (name, f"{t:.6g}", "all labels" if t >= 1 else f"labels whose score is at most {t:.4g}")
        for name, t in shown
    )
    note = " ".join(guarantee)
    if len(shown) < len(thresholds):
        note = f"The first {len(shown)} of {len(thresholds)}. {note}"
    goal = f"{percent(1 - alpha)} coverage"
    if aim is not None:
        name, bound, share = aim.wanted(alpha)
        goal = f"{name} {bound} {percent(share)}"
    title = f"Prediction sets for {goal} by the score '{score}'"
    return Table(title, ("of", "threshold", "a set holds"), rows, note.strip())


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
    """
    return [
        _summary(found, alpha, aim, labels),
        *(
            _forest(found.by[by], by, alpha, by in promised)
            for by in _BY
            if len(found.by.get(by, ())) > 1
        ),
        _sizes(found),
        _examples(found, sets, labels, probs),
    ]


def percent(share: float) -> str:
    """A share as people read it."""
    return f"{100 * share:.4g} %"


def _summary(found: Judged, alpha: float, aim: Aim | None, labels: Integers) -> Table:
    after, whole = found.after, found.by["whole"][ALL]
    interval = f"{percent(whole.low)} to {percent(whole.high)}"
    wanted = [("wanted at least", percent(1 - alpha), "")]
    if aim is not None:
        name, bound, share = aim.wanted(alpha)
        told = [(name, percent(v), "") for v in aim.judged(~found.hit, labels).values()]
        wanted = [*told, (f"wanted {bound}", percent(share), "")]
    rows = (
        ("coverage", percent(after["coverage"]), interval),
        *wanted,
        ("mean labels in a set", f"{after['set_size']:.4g} of {found.classes}", ""),
        ("sets of one label", percent(after["singletons"]), ""),
        ("empty sets", percent(after["empty"]), ""),
        ("sets of all labels", percent(after["all_labels"]), ""),
        ("coverage of the most probable label alone", percent(found.correct), ""),
    )
    note = f"{whole.rows:,} test rows; the interval is binomial and takes them as independent."
    return Table("Coverage", ("test rows", "value", "95 % interval"), rows, f"{note} {_EXACT}")


def _forest(parts: Mapping[str, Covered], by: str, alpha: float, promised: bool) -> Intervals:
    """Coverage of each part; of many those that are covered worst."""
    worst = sorted(parts, key=lambda name: parts[name].coverage)[:MOST_LINES]
    kept = [name for name in parts if name in set(worst)]
    title = f"Coverage by {_BY[by]}"
    note = "With 95 % binomial intervals; in brackets the rows."
    if not promised:
        note += " Coverage was not promised to each of these by itself."
    if len(kept) < len(parts):
        note = f"The {len(kept)} of {len(parts)} that are covered worst. {note}"
    prefix = "" if by in ("site", "group") else f"{_BY[by]} "
    lines = tuple(
        (f"{prefix}{name} ({p.rows:,})", 100 * p.coverage, 100 * p.low, 100 * p.high)
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


def _examples(found: Judged, sets: NDArray[np.bool_], labels: Integers, probs: Floats) -> Table:
    """Rows from the smallest set to the largest, evenly spaced."""
    order = np.argsort(found.sizes, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, EXAMPLES).round().astype(int))]
    rows = tuple(
        (str(k), str(labels[k]), "yes" if found.hit[k] else "no", _words(sets[k], probs[k]))
        for k in chosen.tolist()
    )
    return Table(
        "Examples of sets",
        ("test row", "label", "in its set", "set, the most probable first"),
        rows,
        "From the smallest set to the largest, evenly spaced; rows and labels from 0.",
    )


def _words(members: NDArray[np.bool_], probs: Floats) -> str:
    order = np.argsort(-probs, kind="stable")
    there = [str(k) for k in order.tolist() if members[k]]
    if not there:
        return "none"
    if len(there) == len(members):
        return "all labels"
    more = len(there) - _MOST_LABELS
    return ", ".join(there[:_MOST_LABELS]) + (f" and {more} more" if more > 0 else "")
