"""A release as tables and figures, the report for validators: metrics, curves, groups.

Tables are made from what `result.json` holds, so that terminal and report agree.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from fedcal.core.naming import called
from fedcal.core.pages import MORE, Curve, Intervals, Part, Point, Table
from fedcal.evaluation.estimators import calibration
from fedcal.evaluation.estimators.calibration import ECES, FAR_TAIL
from fedcal.evaluation.findings import KEYS, Findings, Key, Metrics, counted
from fedcal.evaluation.intervals import HIDES, Estimate, beyond
from fedcal.metrics.bootstrap import ERROR
from fedcal.metrics.histogram import Histogram
from fedcal.metrics.names import ON_DEMAND, decimals, heading, named, scaled, shown


def names_of(views: Iterable[str]) -> dict[str, str]:
    """Return view -> its name in figures and tables."""
    known = {"other": "other model"}
    if "calibrated" in (names := list(views)):
        known = {"model": "before", "calibrated": "after"}
    return {view: known.get(view, view) for view in names}


MOST_CLASSES = 10
"""Classes in a figure: the first ones."""

LEAST_BENEFIT = -0.1
"""Net benefits below it are not drawn: towards a threshold of 1 they have no lower end."""

WIDEST = 0.5
"""Bins of a reliability diagram with a wider interval are uninformative and left out."""

Lines = tuple[tuple[Point, ...], tuple[Point, ...]]
"""Points, and the ends of the interval at each."""


_DIAGONAL: tuple[Point, ...] = ((0.0, 0.0), (1.0, 1.0))


def curve_parts(
    findings: Findings, histograms: Mapping[Key, Histogram], names: Sequence[str] | None = None
) -> list[Part]:
    """Return the curves of a score over all rows; with several classes each is a series."""
    views, level = names_of(findings.metrics), findings.level
    overall = {(view, part): h for (view, group, part), h in histograms.items() if group == ""}
    series = {views.get(view, view): h for (view, _), h in overall.items()}
    if findings.score == "classes":
        first = [(part, h) for (view, part), h in overall.items() if view == next(iter(overall))[0]]
        series = {called(names, int(part)): h for part, h in first[:MOST_CLASSES]}
    parts: list[Part | None] = []
    if findings.score != "confidence":
        lines = {name: _lines(calibration.roc_curve(h, level=level)) for name, h in series.items()}
        axes = "false positive rate", "true positive rate"
        parts.append(_part("ROC", axes, lines, {"chance": _DIAGONAL}))
        parts.append(_precision(series, findings.score, level))
    parts.append(reliability_part("Reliability", series, findings.score, level))
    if findings.score == "positive":
        parts.append(_decisions(series, level))
    return [part for part in parts if part is not None]


def reliability_part(
    title: str, series: Mapping[str, Histogram], score: str, level: float
) -> Curve | None:
    """Return reliability diagrams with intervals; None if every bin is too uncertain."""
    named = "confidence" if score == "confidence" else "score"
    outcome = {"confidence": "share correct"}.get(score, "share of the outcome")
    diagrams = {name: calibration.reliability(h, level=level) for name, h in series.items()}
    return _part(
        title,
        (f"mean {named}", outcome),
        {name: _lines(c, c.high - c.low <= WIDEST) for name, c in diagrams.items()},
        {"perfect": _DIAGONAL},
        f"Bins of the {named}, each with its {100 * level:g} % interval. A bin whose interval "
        f"is wider than {WIDEST:g} is left out.",
    )


def _part(
    title: str,
    axes: tuple[str, str],
    lines: Mapping[str, Lines],
    references: Mapping[str, tuple[Point, ...]],
    note: str = "",
) -> Curve | None:
    """Return a curve of the series that have points; None without any."""
    there = {name: line for name, line in lines.items() if line[0]}
    series, bands = ({name: line[k] for name, line in there.items()} for k in (0, 1))
    return Curve(title, *axes, series, bands, references, note) if there else None


def _lines(c: calibration.EvaluationCurve, keep: Any = True) -> Lines:
    """Return finite points to keep, each once, and intervals that contain them."""
    ends = np.stack([c.x, c.y, np.minimum(c.low, c.y), np.maximum(c.high, c.y)])
    each = np.round(ends[:, np.isfinite(ends).all(axis=0) & keep], 6).T.tolist()
    each = [row for k, row in enumerate(each) if k == 0 or row != each[k - 1]]
    return tuple((x, y) for x, y, _, _ in each), tuple((a, b) for _, _, a, b in each)


def _precision(series: Mapping[str, Histogram], score: str, level: float) -> Curve | None:
    """Return precision over recall; of one outcome beside its share, the precision of chance."""
    each = {name: calibration.pr_curve(h, level=level) for name, h in series.items()}
    lines = {name: _lines(c, c.high - c.low <= WIDEST) for name, c in each.items()}
    share = round(float(next(iter(each.values())).y[0]), 6)
    known = score == "positive" and math.isfinite(share)
    chance = {"chance": ((0.0, share), (1.0, share))} if known else {}
    note = f"Thresholds at which the interval of precision is wider than {WIDEST:g} are left out."
    return _part("Precision and recall", ("recall", "precision"), lines, chance, note)


def _decisions(series: Mapping[str, Histogram], level: float) -> Curve | None:
    """Return the net benefit of each model, against treating all rows and none."""

    def line(c: calibration.EvaluationCurve) -> Lines:
        return _lines(replace(c, low=np.maximum(c.low, LEAST_BENEFIT)), c.y >= LEAST_BENEFIT)

    each = {name: calibration.decision_curve(h, level=level) for name, h in series.items()}
    name = next(iter(series))
    everybody, _ = line(
        calibration.EvaluationCurve(each[name].x, *[calibration.treat_all(series[name])] * 3)
    )
    references = {"treat all": everybody, "treat none": ((0.0, 0.0), (1.0, 0.0))}
    return _part(
        "Decision curve",
        ("threshold", "net benefit"),
        {name: line(c) for name, c in each.items()},
        {name: points for name, points in references.items() if points},
        "True positives minus false positives at the odds of the threshold, per row: the gain of "
        "treating rows with a risk above the threshold, compared with treating none.",
    )


MOST_CURVES = 12
"""Groups whose curve is drawn: those whose test has the smallest p-values."""

MOST_GROUPS = 60
"""Groups in a figure; of more, those whose score and outcome differ most."""


def p_shown(p_value: float, floor: float) -> str:
    """Return a p-value as text: "" for NaN, "< 0.001" at the smallest that draws can resolve."""
    if math.isnan(p_value):
        return ""
    digits = max(3, round(-math.log10(floor)))
    return f"< {floor:.{digits}f}" if p_value <= floor else f"{p_value:.{digits}f}"


def parts(
    findings: Findings, histograms: Mapping[Key, Histogram], names: Sequence[str] | None = None
) -> list[Part]:
    """Return the report's parts for a release, from top to bottom.

    Parameters
    ----------
    findings
        its metrics
    histograms
        their source
    names
        names of the classes; None = their numbers
    """
    views = list(findings.metrics)
    tables = _both(findings, views) if len(views) == 2 else []
    for view in views:
        tables += _summary(findings, view, views, names)
    shown_parts: list[Part] = sorted(tables, key=lambda table: table.title.startswith(MORE))
    shown_parts += [_tests(findings, views)] if findings.tests else []
    shown_parts += curve_parts(findings, histograms, names)
    rows = {group: counted(histograms, views[0], group)[0] for group in findings.groups}
    return shown_parts + (_groups(findings, histograms, rows) if rows else [])


def _of(view: str, views: Sequence[str]) -> str:
    return f", {names_of(views)[view]}" if len(views) > 1 else ""


def _unknown(estimate: Estimate) -> bool:
    """Return whether nothing is known of a metric: the interval has no end, or is all there is."""
    low, high = estimate.low, estimate.high
    return not math.isfinite(high - low) or (estimate.drowned and low <= 0 and high >= 1)


def texts(metric: str, estimate: Estimate, sign: bool = False) -> tuple[str, str]:
    """Return value and interval, to the digits that the interval deserves, with its warning."""
    digits = decimals(metric, estimate.low, estimate.high)
    numbers = (estimate.value, estimate.low, estimate.high)
    value, low, high = (shown(metric, number, sign, digits) for number in numbers)
    interval = f"{low} to {high}"
    if estimate.drowned and metric in ECES and estimate.low == 0:
        interval = f"at most {high}"
    warning = f"; {estimate.warning}" if estimate.warning else ""
    return HIDES if estimate.drowned else value, interval + warning


def in_integers(metric: str, estimate: Estimate, sign: bool = False) -> str:
    """Return value and interval; where noise hides the value, its upper bound, or "unknown"."""
    if _unknown(estimate):
        return "unknown"
    value, interval = texts(metric, estimate, sign)
    return f"{value}: {interval}" if estimate.drowned else f"{value} ({interval})"


_ABOUT = {
    "positive": "The positive class is {}: all metrics use its probability. ",
    "confidence": "All metrics are of the top label: its probability and its correctness. ",
}
"""Score -> what its metrics are of."""


def _summary(
    findings: Findings, view: str, views: Sequence[str], names: Sequence[str] | None
) -> list[Table]:
    """Return each metric with its interval, and the sources of the interval's width."""
    z = NormalDist().inv_cdf(0.5 + findings.level / 2)
    rows, unknown = dict[str, tuple[str, ...]](), []
    for metric, estimate in findings.metrics[view].items():
        if _unknown(estimate):
            unknown.append(named(metric, findings.score).title)
            continue
        digits = decimals(metric, estimate.low, estimate.high)
        halves = (z * estimate.sampling, z * estimate.noise, estimate.binning)
        widths = ("" if math.isnan(half) else shown(metric, half, digits=digits) for half in halves)
        rows[metric] = (heading(metric, findings.score), *texts(metric, estimate), *widths)
    of_rows, noise = findings.rows
    of = findings.weighting
    counted_rows = "No client was contacted in a round, so nothing is known"
    if not math.isnan(of_rows):
        std = f" (noise of std {noise:,.1f})" if noise else ""
        counted_rows = f"{of_rows:,.0f} {of.counted}{std}"
    note = (
        (f"Hidden by noise: {'; '.join(unknown)}. " if unknown else "")
        + _ABOUT.get(findings.score, "").format(called(names, 1))
        + f"{of.words.capitalize()}. Intervals are for {of.intervals}. "
        f"{counted_rows}. Half-widths of an interval by cause: sampling of {of.counted}, the noise "
        "of the release, and buckets of the score; the first two add in quadrature, the last "
        f"linearly.{beyond(findings.excluded)}"
    )
    interval = f"{100 * findings.level:g} % interval"
    columns = ("metric", "value", interval, "sampling ±", "noise ±", "buckets ±")
    whose = _of(view, views)
    return _first_and_more(f"Metrics{whose}: {of.head}", whose, columns, rows, note)


def _first_and_more(
    title: str, whose: str, columns: tuple[str, ...], rows: Mapping[str, tuple[str, ...]], note: str
) -> list[Table]:
    """Return a table of the metrics that are told first, and one of the others if there are any."""
    first = tuple(row for metric, row in rows.items() if metric not in ON_DEMAND)
    rest = tuple(row for metric, row in rows.items() if metric in ON_DEMAND)
    more = [Table(MORE + whose, columns, rest)] if rest else []
    return [Table(title, columns, first, note), *more]


def _both(findings: Findings, views: Sequence[str]) -> list[Table]:
    """Return two views of the same rows beside each other, and their difference."""
    names = names_of(views)
    rows = dict[str, tuple[str, ...]]()
    for metric, change in findings.difference.items():
        pair = [findings.metrics[view][metric] for view in views]
        values = [in_integers(metric, e) for e in pair]
        says = "" if change.low <= 0 <= change.high else "beyond chance"
        name = heading(metric, findings.score)
        rows[metric] = (name, *values, in_integers(metric, change, True), says)
    both = " and ".join(names.values())
    paired = findings.threshold == 0.5 or findings.score != "positive"
    which = "the interval of the difference in accuracy is paired, all other " if paired else ""
    return _first_and_more(
        both.capitalize(),
        f": {both}",
        ("metric", *names.values(), "difference", ""),
        rows,
        f"With {100 * findings.level:g} % intervals. Both are of the same rows: {which}intervals "
        "are as wide as if errors were independent.",
    )


def _tests(findings: Findings, views: Sequence[str]) -> Table:
    """Return the table of tests of perfect calibration."""
    rows = [
        (_TESTS[name] + _of(view, views), f"{t.statistic:.4g}", p_shown(t.p_value, t.floor))
        for view in views
        for name, t in findings.tests[view].items()
    ]
    return Table(
        "Tests of calibration",
        ("test", "statistic", "p-value"),
        tuple(rows),
        "A p-value is the probability that calibrated scores look as bad, through sampling and the "
        "noise of the release together; a value below 0.05 indicates miscalibration.",
    )


_TESTS = {"cox": "slope 1 and intercept 0", "groups_cox": "all groups at once"}


_OF_GROUPS = ("accuracy", "gap", "roc_auc", "confidence_auc", "calibration_slope")
"""Columns of the table of groups."""

_CHARTS = {"accuracy": "Accuracy by group", "gap": "Calibration in the large by group"}

_RATES = ("prevalence", "recall", "specificity", "precision")
"""Columns of a second table: errors of a model at the threshold."""


def _groups(
    findings: Findings, histograms: Mapping[Key, Histogram], rows: Mapping[str, float]
) -> list[Part]:
    """Return charts of accuracy and calibration in the large, tables, changes, and curves."""
    views = names_of(findings.metrics)
    first = next(iter(views))
    known = [
        {metric.removesuffix("_cut") for metric in own[first]}
        for own in findings.groups.values()
        if own
    ]
    there = set.intersection(*known) if known else set()
    missing = [group for group, own in findings.groups.items() if not own]
    note = f"Too few rows for any result: {', '.join(missing)}." if missing else ""
    charts: list[Part] = [
        _forest(findings, list(views), metric, title, note)
        for metric, title in _CHARTS.items()
        if metric in there
    ]
    sure = findings.to_json().get("groups_calibration", {})

    def test(view: str, group: str) -> str:
        if group not in findings.cox[view]:
            return ""
        bad = group in sure[KEYS[view]]["not_calibrated"]
        return p_shown(findings.cox[view][group].p_value, FAR_TAIL) + ": not calibrated" * bad

    def table(title: str, metrics: Sequence[str], tested: Sequence[str], about: str) -> Table:
        pairs = [(metric, view) for metric in metrics for view in views]
        lines = []
        for group, own in findings.groups.items():
            entries = [_entry(m, own[view]) if own else "" for m, view in pairs]
            size = f"{rows[group]:,.0f}" if own else "too few"
            lines.append((group, size, *entries, *(test(view, group) for view in tested)))
        columns = [heading(m, findings.score) + _of(view, list(views)) for m, view in pairs]
        columns += ["calibrated: p-value" + _of(view, list(views)) for view in tested]
        noun = findings.weighting.counted
        return Table(title, ("group", noun, *columns), tuple(lines), about.strip())

    main = [metric for metric in _OF_GROUPS if metric in there]
    about = f"{note} {_ABOUT_TEST * bool(findings.cox)}"
    tables: list[Part] = [table("Groups", main, list(findings.cox), about)]
    if set(_RATES) <= there:
        title = f"Groups: errors at threshold {findings.threshold:g}"
        tables.append(table(title, _RATES, (), note))
    tests = findings.cox.get(first, {})
    curved: list[Part | None] = []
    for group in sorted(tests, key=lambda group: tests[group].p_value)[:MOST_CURVES]:
        series = {name: histograms[view, group, ""] for view, name in views.items()}
        title = f"Reliability, {group}"
        curved.append(reliability_part(title, series, findings.score, findings.level))
    return [*charts, *tables, *(part for part in curved if part is not None)]


_ABOUT_TEST = (
    "A slope below 1 says that scores are too extreme, above 1 that they are too moderate. The "
    "p-value is that of Cox's joint test, which detects a wrong slope even if the mean gap is 0; "
    '"not calibrated" are groups that it rejects, with a probability of '
    f"{100 * ERROR:g} % that any group is named by chance (Holm)."
)


def _entry(metric: str, own: Metrics) -> str:
    name = metric if metric in own else f"{metric}_cut"
    return in_integers(name, own[name])


def _forest(
    findings: Findings, views: Sequence[str], metric: str, title: str, note: str
) -> Intervals:
    """Return a metric of each group that has it, of at most `MOST_GROUPS`."""
    first, by_group = views[0], {group: own for group, own in findings.groups.items() if own}
    groups = list(by_group)
    if len(groups) > MOST_GROUPS:
        worst = np.argsort([-abs(by_group[g][first]["gap"].value) for g in groups], kind="stable")
        groups = [groups[k] for k in sorted(worst[:MOST_GROUPS])]
        note = f"The {MOST_GROUPS} of {len(by_group)} groups with the largest gaps. {note}"

    def line(group: str, e: Estimate) -> tuple[str, float, float, float]:
        middle = (e.low + e.high) / 2 if e.drowned else e.value
        value, low, high = (scaled(metric, x) for x in (middle, e.low, e.high))
        return group, value, low, high

    series = {
        name: tuple(line(group, by_group[group][view][metric]) for group in groups)
        for view, name in names_of(views).items()
    }
    overall = findings.metrics[first][metric]
    references = {} if overall.drowned else {"all rows": scaled(metric, overall.value)}
    if metric == "gap":
        references["perfect"] = 0.0
    axis, of, _ = heading(metric, findings.score).partition(" rate of the positive class")
    if of:  # all of it is too long for a telephone
        of = of.removeprefix(" rate")
        axis, note = f"{axis}, %", f"Predicted and observed rates are those{of}. {note}"
    return Intervals(title, axis, series, references, note.strip())
