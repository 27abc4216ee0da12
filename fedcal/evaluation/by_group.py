"""Calibration of each site or group: slope, ECE and curve, and what a calibrator does to its gap.

Sentences and tables are made from what `result.json` holds, so that terminal and report agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcal.core.pages import Part, Table
from fedcal.core.printable import listed
from fedcal.evaluation.estimators.calibration import FAR_TAIL
from fedcal.evaluation.findings import KEYS, Findings, Key
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals import HIDES, Estimate
from fedcal.evaluation.page import WIDEST, names_of, p_shown, reliability_part
from fedcal.evaluation.sites import effects
from fedcal.metrics.gap_change import ERROR, LEAST

MOST_CURVES = 12
"""Groups whose curve is drawn: those whose test has the smallest p-values."""

MOST_ROWS = 20
"""Groups in a table of changes: those that got worse most surely."""

UNMEASURED = "could not be measured"


# -- calibration of each group -------------------------------------------------------------------


def group_parts(findings: Findings, histograms: Mapping[Key, Histogram]) -> list[Part]:
    """Return slope, intercept and ECE of each group, with a test, changes of gaps, and curves."""
    views = list(findings.cox)
    if not views:
        return []
    made = findings.to_json()
    shown: list[Part] = [_calibration_table(findings, made["groups_calibration"])]
    if "groups_change" in made:
        shown.append(change_table(made["groups_change"], "group", tuple(names_of(views).values())))
    first = findings.cox[views[0]]
    worst = sorted(first, key=lambda group: first[group].p_value)[:MOST_CURVES]
    for group in worst:
        series = {names_of(views)[v]: histograms[v, group, ""] for v in views}
        curve = reliability_part(f"Reliability, {group}", series, findings.score, findings.level)
        if curve is not None:
            shown.append(curve)
    return shown


def _calibration_table(findings: Findings, made: Mapping[str, Any]) -> Table:
    names = names_of(findings.cox)
    rows: list[tuple[str, ...]] = []
    for group, own in findings.groups.items():
        if not own:
            rows.append((group, "too few", "", "", "", ""))
        for view, metrics in own.items():
            p = findings.cox[view][group].p_value
            bad = group in made[KEYS[view]]["not_calibrated"]
            rows.append(
                (
                    group if len(names) == 1 else f"{group}, {names[view]}",
                    *(_measured(m, _either(metrics, m)) for m in _SHAPE),
                    p_shown(p, FAR_TAIL),
                    "not calibrated" if bad else "",
                )
            )
    return Table(
        "Calibration of each group",
        ("group", "slope", "intercept", "ECE, %", "p-value", ""),
        tuple(rows),
        "A slope below 1 says that scores are too extreme, above 1 that they are too moderate; 1 "
        "and an intercept of 0 are perfect. The p-value is that of Cox's joint test, which detects "
        'a wrong slope even if the mean gap is 0; "not calibrated" are groups that it rejects, '
        f"with a probability of {100 * ERROR:g} % that any group is named by chance (Holm). Where "
        "noise hides what lies beyond, slope and intercept are of scores cut at 1e-4.",
    )


_SHAPE = ("calibration_slope", "calibration_intercept", "ece")


def _either(metrics: Mapping[str, Any], name: str) -> Any:
    return metrics[name] if name in metrics else metrics[f"{name}_cut"]


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


_OF = {"positive": "positive class", "confidence": "predicted class"}


def change_table(
    change: Mapping[str, Any], noun: str, names: Sequence[str] = ("before", "after")
) -> Table:
    """Return the table of gaps before and after, from `gap_change.changes_record`."""
    sites = change["sites"]
    selected = sorted(sites, key=lambda s: (sites[s]["p_worse"], -abs(sites[s]["after"] or 0)))
    selected = selected[:MOST_ROWS]
    verdicts = dict.fromkeys(change["worse"], "worse") | dict.fromkeys(change["better"], "better")
    rows = [
        (name, *(_points(sites[name][key]) for key in ("before", "after")), verdict)
        for name in sites
        if name in selected
        for verdict in [verdicts.get(name, "")]
    ]
    note = (
        f"Mean score minus mean outcome, for the {_OF[change['score']]}. A gap is worse or better "
        f"if its size changed by at least {100 * LEAST:g} points and by more than chance "
        f"({100 * ERROR:g} % over all {noun}s together, Holm)."
    )
    if len(rows) < len(sites):
        note += f" Shown are the {len(rows)} of {len(sites)} {noun}s with the clearest growth."
    columns = (noun, *(f"gap {name}, points" for name in names), "")
    return Table(f"Gap of each {noun}, {' and '.join(names)}", columns, tuple(rows), note)


def _points(gap: float | None) -> str:
    return HIDES if gap is None else f"{100 * gap:z.1f}"


# -- in sentences --------------------------------------------------------------------------------


def sentences(result: Mapping[str, Any]) -> list[str]:
    """Return sentences on sites or groups that are not calibrated or harmed by a calibrator.

    Parameters
    ----------
    result
        keys of `result.json`, or of a saved release
    """
    lines = []
    for key, calibration in result.get("groups_calibration", {}).items():
        if sentence := _not_calibrated(calibration, result, key):
            lines.append(sentence)
    for key, noun in (("groups_change", "group"), ("clients_change", "client")):
        sites = result.get(key, {}).get("sites", {})
        if any(site["hidden"] or site["before"] != site["after"] for site in sites.values()):
            lines.append(_harm(result[key], len(sites), noun))
    if "next_site" in result:
        lines.append(effects.next_site_sentence(result["next_site"]))
    return lines


_WHICH = {"metrics": "", "metrics_after": "After calibration ", "metrics_other": "Other model: "}


def _not_calibrated(calibration: Mapping[str, Any], result: Mapping[str, Any], key: str) -> str:
    """Return the sentence on miscalibrated groups, less those that their gaps already name."""
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
    """Return what the intervals of gap and slope show, in brackets; "" if they show nothing."""
    why = []
    gap, slope = metrics["gap"], _either(metrics, "calibration_slope")
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
            f"At none of {of} {noun}s did the gap between mean score and outcome grow by more "
            f"than chance{end}."
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
        f"The gap between mean score and outcome grew by more than chance at {len(worse)} of "
        f"{of} {noun}s ({named}); {rest}."
    )
