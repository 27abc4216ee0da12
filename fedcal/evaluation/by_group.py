"""Calibration of each site or group: slope, ECE and curve, and what a calibrator does to its gap.

Sentences and tables are made from what `result.json` holds, so that terminal and report agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from fedcal.calibrators.score_map import OfScore
from fedcal.calibrators.top_label import least_value
from fedcal.core.pages import Part, Table
from fedcal.core.printable import listed
from fedcal.core.types import Floats
from fedcal.evaluation.estimators.goodness import FAR_TAIL
from fedcal.evaluation.estimators.metrics import Gap
from fedcal.evaluation.estimators.monotone import monotone_counts
from fedcal.evaluation.findings import FEWEST, KEYS, Findings, Key, counted
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals.intervals import DROWNED, FIRM, HIDES, Estimate
from fedcal.evaluation.pages.figures import WIDEST, names_of, reliability_part
from fedcal.evaluation.pages.page import p_shown
from fedcal.evaluation.sites import next_site
from fedcal.metrics.gap_change import LEAST, GapChange, gap_change
from fedcal.metrics.holm import ERROR

MOST_CURVES = 12
"""Groups whose curve is drawn: those whose test has the smallest p-values."""

MOST_ROWS = 20
"""Groups in a table of changes: those that got worse most surely."""

_HIDDEN = DROWNED * Gap.scale
"""Half-width by noise alone from which on a gap is not for print, as in `intervals.estimate`."""

UNMEASURED = "could not be measured"


# -- calibration of each group -------------------------------------------------------------------


def group_parts(found: Findings, histograms: Mapping[Key, Histogram]) -> list[Part]:
    """Slope, intercept and ECE of each group, with a test, changes of gaps, and curves."""
    views = list(found.cox)
    if not views:
        return []
    made = found.to_json()
    shown: list[Part] = [_calibration_table(found, made["groups_calibration"])]
    if "groups_change" in made:
        shown.append(change_table(made["groups_change"], "group", tuple(names_of(views).values())))
    first = found.cox[views[0]]
    worst = sorted(first, key=lambda group: first[group].p_value)[:MOST_CURVES]
    for group in worst:
        series = {names_of(views)[v]: histograms[v, group, ""] for v in views}
        curve = reliability_part(f"Reliability, {group}", series, found.score, found.level)
        if curve is not None:
            shown.append(curve)
    return shown


def _calibration_table(found: Findings, made: Mapping[str, Any]) -> Table:
    names = names_of(found.cox)
    rows: list[tuple[str, ...]] = []
    for group, own in found.groups.items():
        if not own:
            rows.append((group, "too few", "", "", "", ""))
        for view, metrics in own.items():
            p = found.cox[view][group].p_value
            bad = group in made[KEYS[view]]["not_calibrated"]
            rows.append(
                (
                    group if len(names) == 1 else f"{group}, {names[view]}",
                    *(_measured(m, metrics[m]) for m in _SHAPE),
                    p_shown(p, FAR_TAIL),
                    "not calibrated" if bad else "",
                )
            )
    return Table(
        "Calibration of each group",
        ("group", "slope", "intercept", "ECE, %", "p-value", ""),
        tuple(rows),
        "A slope below 1 says that scores are too extreme, above 1 that they are too moderate; 1 "
        "and an intercept of 0 are perfect. The p-value is of Cox's test of both together, which "
        'sees a wrong slope where the mean gap is 0; "not calibrated" are those that it finds with '
        f"a chance of {100 * ERROR:g} % that any group is named by accident (Holm).",
    )


_SHAPE = ("calibration_slope", "calibration_intercept", "ece")


def _measured(metric: str, e: Estimate) -> str:
    known = all(map(math.isfinite, (e.value, e.low, e.high)))
    if e.drowned or not known or (metric == "ece" and e.high - e.low > WIDEST):
        return UNMEASURED
    if metric == "ece" and e.low <= 0:
        return f"at most {100 * e.high:.1f}"
    scale, digits = (100, 1) if metric == "ece" else (1, 2)
    value, low, high = (f"{scale * x:z.{digits}f}" for x in (e.value, e.low, e.high))
    return f"{value} ({low} to {high})"


# -- what a calibrator does to each group's gap --------------------------------------------------


def changes_by(histograms: Mapping[Key, Histogram], calibrator: OfScore) -> dict[str, GapChange]:
    """Gap of each group before and after a calibrator of the score that was counted.

    Both are read from the same counts, so the change is known better than either gap. Groups are
    left out as in `findings`.

    Parameters
    ----------
    histograms
        by (view, group, part), of one view
    calibrator
        of their score
    """
    found = {}
    for (view, group, _), h in histograms.items():
        rows, noise = counted(histograms, view, group)
        if group and rows >= max(FEWEST, FIRM * noise):
            found[group] = _change(h, *_values(h, calibrator))
    return found


def _values(h: Histogram, calibrator: OfScore) -> tuple[Floats, Floats]:
    """Calibrated score at the middle of each bucket, and how much it rises within, (buckets,)."""
    inside = np.diff(h.edges) * 1e-9
    at = (h.middles, h.edges[:-1] + inside, h.edges[1:] - inside)
    middle, low, high = map(calibrator.value, at)
    if calibrator.score == "confidence":
        middle = np.maximum(middle, least_value(calibrator.classes))
    return middle, np.abs(high - low)


def _change(h: Histogram, values: Floats, rises: Floats) -> GapChange:
    """Gap at the scores, and at the values that replace them."""
    rows, total = monotone_counts(h), float(h.counts.sum())

    def mean(weights: Floats) -> tuple[float, float, float]:
        """Mean of weights over rows, its variance by the choice of rows, and by noise."""
        value = float((weights * h.counts).sum()) / total
        off = (weights - value) / total
        return value, float((rows * off**2).sum()), float(h.noise_std(off)) ** 2

    outcome = np.array([[0.0], [1.0]])
    both = (h.middles + values) / 2
    before, after = (mean(scores - outcome)[0] for scores in (h.middles, values))
    _, by_rows, by_noise = mean(both - outcome)
    null = float(rows.sum(axis=0) @ (both * (1 - both))) / total**2
    _, move_rows, move_noise = mean(np.broadcast_to(values - h.middles, (2, h.buckets)))
    share, width = rows.sum(axis=0) / total, np.diff(h.edges)
    change = gap_change(
        before,
        after,
        math.sqrt(max(by_rows, null) + by_noise),
        math.sqrt(move_rows + move_noise),
        float(share @ (width + rises)) / 4,
        float(share @ (width + rises)) / 2,
    )
    return replace(change, hidden=NormalDist().inv_cdf(0.975) * math.sqrt(by_noise) > _HIDDEN)


_OF = {"positive": "positive class", "confidence": "predicted class"}


def change_table(
    told: Mapping[str, Any], noun: str, names: Sequence[str] = ("before", "after")
) -> Table:
    """Gaps before and after, from `fedcal.metrics.gap_change.told`."""
    sites = told["sites"]
    kept = sorted(sites, key=lambda s: (sites[s]["p_worse"], -abs(sites[s]["after"] or 0)))
    kept = kept[:MOST_ROWS]
    verdicts = dict.fromkeys(told["worse"], "worse") | dict.fromkeys(told["better"], "better")
    rows = [
        (name, *(_points(sites[name][key]) for key in ("before", "after")), verdict)
        for name in sites
        if name in kept
        for verdict in [verdicts.get(name, "")]
    ]
    note = (
        f"Mean score less mean outcome, of the {_OF[told['score']]}. A gap is worse or better "
        f"where its size changed by {100 * LEAST:g} points at least and by more than chance "
        f"({100 * ERROR:g} % over all {noun}s together, Holm)."
    )
    if len(rows) < len(sites):
        note += f" The {len(rows)} of {len(sites)} {noun}s whose gap grew most surely."
    columns = (noun, *(f"gap {name}, %" for name in names), "")
    return Table(f"Gap of each {noun}, {' and '.join(names)}", columns, tuple(rows), note)


def _points(gap: float | None) -> str:
    return HIDES if gap is None else f"{100 * gap:z.1f}"


# -- in sentences --------------------------------------------------------------------------------


def sentences(result: Mapping[str, Any]) -> list[str]:
    """Which sites or groups are not calibrated, and where a calibrator did harm.

    Parameters
    ----------
    result
        keys of `result.json`, or what a release that is read again tells
    """
    said = []
    for key, calibration in result.get("groups_calibration", {}).items():
        if sentence := _not_calibrated(calibration, result, key):
            said.append(sentence)
    for key, noun in (("groups_change", "group"), ("clients_change", "client")):
        sites = result.get(key, {}).get("sites", {})
        if any(site["hidden"] or site["before"] != site["after"] for site in sites.values()):
            said.append(_harm(result[key], len(sites), noun))
    if "next_site" in result:
        said.append(next_site.sentence(result["next_site"]))
    return said


_WHICH = {"metrics": "", "metrics_after": "After calibration ", "metrics_other": "Other model: "}


def _not_calibrated(calibration: Mapping[str, Any], result: Mapping[str, Any], key: str) -> str:
    """Groups that are off and whose mean alone does not show it: those are named by their gaps."""
    gaps = result.get("tests", {}).get(key, {}).get("groups", {}).get("by_group", {})
    bad, of = calibration["not_calibrated"], len(calibration["p_values"])
    rest = [name for name in bad if gaps.get(name, 1.0) >= ERROR]
    start = _WHICH.get(key, "")
    if bad and not rest and not start:
        return ""
    if len(rest) < len(bad) and not start:
        why = [name + _reason(result["groups"][name][key], result["score"]) for name in rest]
        return f"Not calibrated either: {listed(why)}."
    if not bad:
        none = "none" if start else "None"
        return f"{start}{none} of {of} groups is shown to be miscalibrated."
    is_are = "is" if len(bad) == 1 else "are"
    why = [name + _reason(result["groups"][name][key], result["score"]) for name in bad]
    return f"{start}{len(bad)} of {of} groups {is_are} not calibrated: {listed(why)}."


def _reason(metrics: Mapping[str, Any], score: str) -> str:
    """What the intervals of gap and slope show, in brackets; "" where each alone shows nothing."""
    why = []
    gap, slope = metrics["gap"], metrics["calibration_slope"]
    if not gap["low"] <= 0 <= gap["high"]:
        sizes = sorted(abs(100 * gap[end]) for end in ("low", "high"))
        value = gap["value"]
        size = f"{abs(100 * value):.0f}" if value is not None else "{:.0f} to {:.0f}".format(*sizes)
        size += " points"
        if score == "positive":
            why.append(f"predicts {size} too {'low' if gap['high'] < 0 else 'high'}")
        else:
            why.append(f"{'under' if gap['high'] < 0 else 'over'}confident by {size}")
    ends = (slope["value"], slope["low"], slope["high"])
    if None not in ends and not ends[1] <= 1 <= ends[2]:
        why.append(f"scores too {'extreme' if ends[2] < 1 else 'moderate'}, slope {ends[0]:.2f}")
    return f" ({', '.join(why)})" if why else ""


def _harm(change: Mapping[str, Any], of: int, noun: str) -> str:
    worse, better, sites = change["worse"], change["better"], change["sites"]
    shrank = f"it shrank at {len(better)}" if better else "nor did it shrink at any"
    if not worse:
        end = f"; {shrank}" if better else f", {shrank}"
        return (
            f"At none of {of} {noun}s did the gap of mean score and outcome grow by more than "
            f"chance{end}."
        )
    named = listed(
        [
            f"{n}, {HIDES}"
            if sites[n]["hidden"]
            else f"{n}, {_points(sites[n]['before'])} to {_points(sites[n]['after'])} points"
            for n in worse
        ],
        "; ",
    )
    rest = shrank if better else "it shrank at none"
    return (
        f"The gap of mean score and outcome grew by more than chance at {len(worse)} of {of} "
        f"{noun}s ({named}); {rest}."
    )
