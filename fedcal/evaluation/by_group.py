"""Calibration of each site or group: slope, ECE and curve, and what a calibrator does to its gap.

Tables are made from what `result.json` holds, so that terminal and report agree.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcal.core.pages import Part, Table
from fedcal.evaluation.estimators.calibration import ECES, FAR_TAIL
from fedcal.evaluation.findings import KEYS, Findings, Key
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals import Estimate
from fedcal.evaluation.page import WIDEST, names_of, p_shown, reliability_part
from fedcal.metrics.gap_change import ERROR, LEAST

MOST_CURVES = 12
"""Groups whose curve is drawn: those whose test has the smallest p-values."""

MOST_ROWS = 20
"""Groups in a table of changes: those that got worse most surely."""

UNMEASURED = "could not be measured"


# -- calibration of each group -------------------------------------------------------------------


def group_parts(findings: Findings, histograms: Mapping[Key, Histogram]) -> list[Part]:
    """Return slope, intercept and ECE of each group, with a test, changes of gaps, and curves."""
    names = names_of(findings.cox)
    if not names:
        return []
    made = findings.to_json()
    shown: list[Part | None] = [_calibration_table(findings, made["groups_calibration"])]
    if "groups_change" in made:
        shown.append(change_table(made["groups_change"], "group", tuple(names.values())))
    first = findings.cox[next(iter(names))]
    for group in sorted(first, key=lambda group: first[group].p_value)[:MOST_CURVES]:
        series = {name: histograms[view, group, ""] for view, name in names.items()}
        title = f"Reliability, {group}"
        shown.append(reliability_part(title, series, findings.score, findings.level))
    return [part for part in shown if part is not None]


def _calibration_table(findings: Findings, made: Mapping[str, Any]) -> Table:
    names = names_of(findings.cox)
    rows: list[tuple[str, ...]] = []
    for group, own in findings.groups.items():
        if not own:
            rows.append((group, "too few", "", "", "", ""))
        for view, metrics in own.items():
            name = group if len(names) == 1 else f"{group}, {names[view]}"
            shape = (_measured(*_first(metrics, *either)) for either in _SHAPE)
            p = p_shown(findings.cox[view][group].p_value, FAR_TAIL)
            bad = group in made[KEYS[view]]["not_calibrated"]
            rows.append((name, *shape, p, "not calibrated" * bad))
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


_SLOPE = ("calibration_slope", "calibration_slope_cut")
_SHAPE = (_SLOPE, ("calibration_intercept", "calibration_intercept_cut"), ECES)
"""Metrics of the table, of which a group has the one or the other."""


def _first(metrics: Mapping[str, Any], *names: str) -> tuple[str, Any]:
    return next((name, metrics[name]) for name in names if name in metrics)


def _measured(metric: str, e: Estimate) -> str:
    known = all(map(math.isfinite, (e.value, e.low, e.high)))
    if e.drowned or not known or (metric in ECES and e.high - e.low > WIDEST):
        return UNMEASURED
    if metric in ECES and e.low <= 0:
        return f"at most {100 * e.high:.1f}"
    scale, digits = (100, 1) if metric in ECES else (1, 2)
    value, low, high = (f"{scale * x:z.{digits}f}" for x in (e.value, e.low, e.high))
    return f"{value} ({low} to {high})"


# -- what a calibrator does to each group's gap --------------------------------------------------


_OF = {"positive": "positive class", "confidence": "predicted class"}


def change_table(
    change: Mapping[str, Any], noun: str, names: Sequence[str] = ("before", "after")
) -> Table:
    """Return the table of gaps before and after, from `gap_change.changes_record`."""
    sites = change["sites"]
    selected = sorted(sites, key=lambda s: (sites[s]["p_worse"], -abs(sites[s]["after"])))
    verdicts = dict.fromkeys(change["worse"], "worse") | dict.fromkeys(change["better"], "better")
    rows = [
        (name, *(f"{100 * site[k]:z.1f}" for k in ("before", "after")), verdicts.get(name, ""))
        for name, site in sites.items()
        if name in selected[:MOST_ROWS]
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
