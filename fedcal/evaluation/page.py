"""What a release says, as tables and figures: the report that a validator asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np

from fedcal.evaluation.clusters import MEASURED
from fedcal.evaluation.figures import curve_parts, names_of
from fedcal.evaluation.findings import Findings, Key, Metrics, counted
from fedcal.evaluation.histogram import Histogram
from fedcal.evaluation.intervals import Estimate, beyond
from fedcal.pages import Entry, Intervals, Part, Table
from fedcal.types import Floats

HEADINGS = {
    "accuracy": "accuracy, %",
    "balanced_accuracy": "balanced accuracy, %",
    "precision": "precision, %",
    "recall": "recall (sensitivity), %",
    "specificity": "specificity, %",
    "f1": "F1",
    "mcc": "Matthews correlation",
    "prevalence": "prevalence, %",
    "net_benefit": "net benefit",
    "roc_auc": "ROC AUC",
    "confidence_auc": "ROC AUC of confidence",
    "average_precision": "average precision",
    "confidence": "mean confidence, %",
    "gap": "mean score less outcome, %",
    "ece": "ECE, %",
    "ece_debiased": "ECE, debiased, %",
    "ece_equal_mass": "ECE, bins of equal mass, %",
    "smooth_ece": "smooth ECE, %",
    "classwise_ece": "classwise ECE, %",
    "ks": "KS calibration error, %",
    "mce": "MCE, %",
    "macro_precision": "precision, macro, %",
    "macro_f1": "F1, macro",
    "macro_roc_auc": "ROC AUC, macro",
    "weighted_roc_auc": "ROC AUC, weighted",
    "macro_average_precision": "average precision, macro",
    "weighted_average_precision": "average precision, weighted",
    "brier": "Brier score",
    "brier_reliability": "Brier: reliability",
    "brier_resolution": "Brier: resolution",
    "brier_uncertainty": "Brier: uncertainty",
    "log_loss": "log loss",
    "calibration_slope": "calibration slope",
    "calibration_intercept": "calibration intercept",
}
"""Metric -> heading with its unit; others are called by their names."""

MOST_GROUPS = 60
"""Groups in a figure; of more, those whose score and outcome differ most."""


def heading(metric: str) -> str:
    """What tables call a metric, with its unit."""
    return HEADINGS.get(metric, metric.replace("_", " "))


def shown(metric: str, value: float, sign: bool = False) -> str:
    """A value of a metric as people read it."""
    mark = "+z" if sign else "z"  # z: no minus before a zero
    if heading(metric).endswith("%"):
        return f"{100 * value:{mark}.2f}"
    return f"{value:{mark}.4f}"


def parts(
    found: Findings,
    histograms: Mapping[Key, Histogram],
    confusion: Mapping[str, Floats] | None = None,
) -> list[Part]:
    """All that a report shows of a release, from top to bottom.

    Parameters
    ----------
    found
        its metrics
    histograms
        what they were read from
    confusion
        view -> rows by predicted class and label, (c, c)
    """
    views = list(found.metrics)
    shown_parts: list[Part] = []
    if len(views) == 2:
        shown_parts.append(_both(found, views))
    shown_parts += [_summary(found, view, views) for view in views]
    if found.tests:
        shown_parts.append(_tests(found, views))
    shown_parts += curve_parts(found, histograms)
    if found.groups:
        rows = {group: counted(histograms, views[0], group)[0] for group in found.groups}
        shown_parts += _groups(found, views, rows)
    for view, cells in (confusion or {}).items():
        shown_parts.append(_confusion(cells, _of(view, list(confusion or {}))))
    return shown_parts


def _of(view: str, views: Sequence[str]) -> str:
    return f", {names_of(views)[view]}" if len(views) > 1 else ""


def _interval(metric: str, estimate: Estimate, sign: bool = False) -> str:
    ends = (estimate.low, estimate.high)
    if not all(map(math.isfinite, ends)):
        return "anything"
    return " to ".join(shown(metric, end, sign) for end in ends)


def _value(metric: str, estimate: Estimate, sign: bool = False) -> str:
    return "drowned by noise" if estimate.drowned else shown(metric, estimate.value, sign)


def _whole(metric: str, estimate: Estimate, sign: bool = False) -> str:
    return f"{_value(metric, estimate, sign)} ({_interval(metric, estimate, sign)})"


def _summary(found: Findings, view: str, views: Sequence[str]) -> Table:
    """Each metric with its interval, and where its width comes from."""
    z = NormalDist().inv_cdf(0.5 + found.level / 2)
    rows = []
    for metric, estimate in found.metrics[view].items():
        halves = (z * estimate.sampling, z * estimate.noise, estimate.binning)
        told = (shown(metric, half) if half == half else "" for half in halves)
        rows.append((heading(metric), _value(metric, estimate), _interval(metric, estimate), *told))
    of_rows, noise = found.rows
    counted = found.weighting
    about = f"{counted.words.capitalize()}. "
    about += f"Intervals are for {counted.intervals(found.estimand)}. "
    if math.isnan(of_rows):
        about += "Nobody was asked in a round, so nothing is known"
    else:
        about += f"{of_rows:,.0f} {counted.noun}" + (
            f" (noise of std {noise:,.1f})" if noise else ""
        )
    note = (
        f"{about}. Half-widths of an interval by cause: which {counted.noun} there were, the noise "
        "of the release, and buckets of the score; the first two add up as squares, the last in "
        "full." + _beyond(found)
    )
    return Table(
        f"Metrics{_of(view, views)}: {counted.head}",
        (
            "metric",
            "value",
            f"{100 * found.level:g} % interval",
            "sampling ±",
            "noise ±",
            "buckets ±",
        ),
        tuple(rows),
        note,
    )


def _beyond(found: Findings) -> str:
    """What intervals do not contain, and what those for new clients rest on."""
    told = ""
    if found.estimand == "clients":
        measured = ", ".join(name.replace("_", " ") for name in MEASURED[found.score])
        told = (
            f" How much clients differ was measured for {measured}; intervals of other metrics are "
            "widened by the largest ratio found among these, which is an assumption. Bands of "
            "curves are for new rows."
        )
    return told + beyond(found.excluded)


def _both(found: Findings, views: Sequence[str]) -> Table:
    """Two views of the same rows beside each other, and their difference."""
    names = names_of(views)
    rows = []
    for metric, change in found.difference.items():
        pair = [found.metrics[view][metric] for view in views]
        values = [_whole(metric, e) for e in pair]
        says = "" if change.low <= 0 <= change.high else "beyond chance"
        rows.append((heading(metric), *values, _whole(metric, change, True), says))
    return Table(
        " and ".join(names.values()).capitalize(),
        ("metric", *names.values(), "difference", ""),
        tuple(rows),
        f"With {100 * found.level:g} % intervals. Both are of the same rows: the interval of the "
        "difference in accuracy is paired, the others are as wide as if the two erred "
        "independently.",
    )


def _p_value(p: float) -> str:
    return f"{p:.4f}" if p >= 1e-4 else "< 0.0001"


def _tests(found: Findings, views: Sequence[str]) -> Table:
    """Whether scores could be calibrated."""
    rows = [
        (_TESTS[name] + _of(view, views), f"{test.statistic:.4g}", _p_value(test.p_value))
        for view in views
        for name, test in found.tests[view].items()
    ]
    return Table(
        "Tests of calibration",
        ("test", "statistic", "p-value"),
        tuple(rows),
        "A p-value says how often calibrated scores would look as bad by the choice of rows and by "
        "the noise of the release together; below 0.05 is a sign that they are not calibrated.",
    )


_TESTS = {
    "hosmer_lemeshow": "Hosmer-Lemeshow",
    "ks": "Kolmogorov-Smirnov",
    "groups": "all groups at once",
}


_OF_GROUPS = ("accuracy", "gap", "roc_auc", "confidence_auc")
"""Columns of the table of groups."""

_RATES = ("prevalence", "recall", "specificity", "precision")
"""Of a second one: how a model errs at the threshold."""


def _groups(found: Findings, views: Sequence[str], rows: Mapping[str, float]) -> list[Part]:
    """Accuracy and calibration in the large of every group, and a table of both."""
    told = {group: metrics for group, metrics in found.groups.items() if metrics}
    there = set.intersection(*(set(own[views[0]]) for own in told.values())) if told else set()
    named = [m for m in _OF_GROUPS if m in there]
    missing = [group for group in found.groups if group not in told]
    note = ""
    if missing:
        note = f"Too few rows to say anything of: {', '.join(missing)}."
    charts: list[Part] = []
    for metric, title in (
        ("accuracy", "Accuracy by group"),
        ("gap", "Calibration in the large by group"),
    ):
        if metric in named and told:
            charts.append(_forest(found, told, views, metric, title, note))

    def table(title: str, metrics: Sequence[str]) -> Table:
        pairs = [(metric, view) for metric in metrics for view in views]
        lines = [
            (group, f"{rows[group]:,.0f}", *(_whole(m, own[view][m]) for m, view in pairs))
            if own
            else (group, "too few", *("" for _ in pairs))
            for group, own in found.groups.items()
        ]
        columns = [heading(m) + _of(view, views) for m, view in pairs]
        return Table(title, ("group", found.weighting.noun, *columns), tuple(lines), note)

    tables = [table("Groups", named)]
    if set(_RATES) <= there:
        tables.append(table(f"Groups: errors at threshold {found.threshold:g}", _RATES))
    return [*charts, *tables]


def _forest(
    found: Findings,
    told: Mapping[str, Mapping[str, Metrics]],
    views: Sequence[str],
    metric: str,
    title: str,
    note: str,
) -> Intervals:
    first = views[0]
    groups = list(told)
    if len(groups) > MOST_GROUPS:
        worst = np.argsort([-abs(told[g][first]["gap"].value) for g in groups], kind="stable")
        groups = [groups[k] for k in sorted(worst[:MOST_GROUPS])]
        note = f"The {MOST_GROUPS} of {len(told)} groups whose mean score is farthest off. {note}"
    scale = 100 if heading(metric).endswith("%") else 1

    def line(group: str, e: Estimate) -> tuple[str, float, float, float]:
        middle = (e.low + e.high) / 2 if e.drowned else e.value
        return group, scale * middle, scale * e.low, scale * e.high

    names = names_of(views)
    series = {names[v]: tuple(line(g, told[g][v][metric]) for g in groups) for v in views}
    overall = found.metrics[first][metric]
    references = {} if overall.drowned else {"all rows": scale * overall.value}
    if metric == "gap":
        references["perfect"] = 0.0
    return Intervals(title, heading(metric), series, references, note.strip())


def _confusion(cells: Floats, of: str) -> Table:
    """Rows by predicted class and label; noisy counts as they are."""
    names = [str(k) for k in range(len(cells))]
    rows: list[tuple[Entry, ...]] = [
        (name, *(round(float(n), 1) for n in row)) for name, row in zip(names, cells, strict=True)
    ]
    return Table(
        f"Confusion matrix{of}",
        ("predicted", *(f"label {name}" for name in names)),
        tuple(rows),
        "Counts of rows, with the noise of the release: they may be negative.",
    )
