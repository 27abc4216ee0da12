"""What numbers are called and mean, in plain words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcal.datasets import is_shipped
from fedcal.evaluation import page
from fedcal.experiments.figures.curves import NAMES
from fedcal.experiments.show.tables import Entry, Marked, TextTable
from fedcal.experiments.statement.sentences import guarantee
from fedcal.experiments.terminal import shown
from fedcal.metrics.bootstrap import FEWEST

Metrics = Mapping[str, float]

METRICS = {
    "ece": (
        NAMES["ece"],
        "Expected calibration error: how far the confidence of the predicted class is from the "
        "share of correct predictions, averaged over 15 bins of confidence. 0 is best.",
    ),
    "classwise_ece": (
        NAMES["classwise_ece"],
        "The same for the probability of each class against the rest, averaged over classes. It "
        "sees errors below the top label. 0 is best.",
    ),
    "nll": (
        NAMES["nll"],
        "Negative log-likelihood: minus the logarithm of the probability of what came true. It "
        "punishes confident errors. Lower is better.",
    ),
    "brier": (
        NAMES["brier"],
        "Squared distance between the probabilities and what came true, summed over classes, from "
        "0 to 2. Lower is better.",
    ),
    "accuracy": (
        NAMES["accuracy"],
        "Share of rows whose most probable class is right. Temperatures and order-preserving "
        "calibrators cannot change it. Higher is better.",
    ),
    "mce": (
        NAMES["mce"],
        "Maximum calibration error: the gap of the worst bin, however few rows it has, and so a "
        "noisy number. 0 is best.",
    ),
}
"""Metric -> heading and what it means, in the order of the table."""

HIGHER_IS_BETTER = ("accuracy",)


def percent(fraction: float) -> str:
    """A fraction in per cent, two decimals; its parts are not torn apart."""
    return f"{100 * fraction:.2f}\u00a0%"


def signed(metric: str, value: float) -> str:
    """A difference as people read it, with its sign; zero has none."""
    text = shown(metric, abs(value))
    if not float(text):
        return text
    return ("−" if value < 0 else "+") + text


def span(metric: str, ends: Sequence[float] | None, sign: bool = False) -> str:
    """An interval [low, high] as people read it; "" if there is none."""
    if not ends:
        return ""
    show = signed if sign else shown
    low, high = map(float, ends)
    return f"{show(metric, low)} to {show(metric, high)}"


def metric_table(result: dict[str, Any]) -> TextTable:
    """Metrics before and after, and what changed, each above its interval if a result has any."""
    intervals = result.get("intervals") or {}
    rows = []
    for metric, (heading, _) in METRICS.items():
        row: list[Entry] = [heading]
        values = [float(result[part][metric]) for part in ("before", "after")]
        for part, value in zip(("before", "after"), values, strict=True):
            ends = intervals.get(part, {}).get(metric)
            interval = span(metric, ends) + inflated(value, ends)
            row.append(Marked(shown(metric, value), small=interval))
        change, ends = values[1] - values[0], intervals.get("difference", {}).get(metric)
        says, interval = _says(metric, change, ends), span(metric, ends, sign=True)
        rows.append([*row, Marked(signed(metric, change), mark=says, small=interval)])
    return TextTable(("metric", "before", "after", "change"), rows)


def inflated(value: float, ends: Sequence[float] | None) -> str:
    """Why an interval excludes its own number; "" if it does not."""
    return "; noise inflates the number" if ends and value > ends[1] else ""


def _says(metric: str, change: float, ends: list[float] | None) -> str:
    """Better or worse, where the interval of the difference leaves no doubt."""
    if change == 0:
        return "unchanged"
    if not ends or ends[0] <= 0 <= ends[1]:
        return "" if not ends else "no clear change"
    return "better" if (change > 0) == (metric in HIGHER_IS_BETTER) else "worse"


def harm(before: Metrics, after: Metrics, intervals: Callable[[], Any]) -> str:
    """Say which metrics are worse after calibration by more than chance; "" if none is.

    Parameters
    ----------
    before, after
        metric -> value
    intervals
        makes the intervals of `result.json`; called only if something is worse at all
    """
    found = []
    metrics = [m for m in METRICS if m != "mce"]  # one bin's, and mostly chance
    if any(
        (after[m] > before[m]) != (m in HIGHER_IS_BETTER) for m in metrics if after[m] != before[m]
    ):
        between = (intervals() or {}).get("difference", {})
        for m in metrics:
            if _says(m, after[m] - before[m], between.get(m)) == "worse":
                values = f"{shown(m, before[m])} to {shown(m, after[m])}"
                found.append(f"{METRICS[m][0]} {values} (change {span(m, between[m], sign=True)})")
    return f"Worse than the model itself, by more than chance: {', '.join(found)}." if found else ""


def verdict(result: dict[str, Any]) -> str:
    """The result in one sentence."""
    before, after = result["before"], result["after"]
    ends = (result.get("intervals") or {}).get("after", {}).get("ece")
    within = ""
    if ends:
        why = inflated(after["ece"], ends)
        within = f" (95\u00a0% interval {100 * ends[0]:.2f} to {percent(ends[1])}{why})"
    if shown("accuracy", before["accuracy"]) == shown("accuracy", after["accuracy"]):
        accuracy = f"accuracy unchanged at {percent(after['accuracy'])}"
    else:
        accuracy = f"accuracy {percent(before['accuracy'])} → {percent(after['accuracy'])}"
    return (
        f"ECE {percent(before['ece'])} → {percent(after['ece'])}{within}; "
        f"{accuracy}; {guarantee(result['privacy'])}."
    )


HEADLINE = ("accuracy", "roc_auc", "ece", "gap")
"""Of an evaluation's metrics: what its report begins with, of those that there are."""


def metric_tiles(result: dict[str, Any]) -> list[tuple[str, str]]:
    """An evaluation's most important metrics with their intervals; after, where there is one."""
    metrics = result.get("metrics_after", result["metrics"])
    found = []
    for name in HEADLINE:
        if name not in metrics:
            continue
        told, (called, _, unit) = metrics[name], page.heading(name).partition(", ")
        low, high = (page.shown(name, told[end]) for end in ("low", "high"))
        value = "drowned by noise" if told["value"] is None else page.shown(name, told["value"])
        found.append((called, f"{value} ({low} to {high})" + (f"\u00a0{unit}" if unit else "")))
    return found


def set_tiles(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Coverage and size of prediction sets; what is wanted alone, where nobody has test rows."""
    wanted = f"{100 * (1 - result['sets']['alpha']):.4g}\u00a0%"
    after = result["after"]
    if after is None:
        return [("coverage wanted", wanted)]
    return [
        ("coverage", f"{100 * after['coverage']:.4g}\u00a0% ({wanted} wanted)"),
        ("labels in a set", f"{after['set_size']:.4g}"),
        ("sets of one label", f"{100 * after['singletons']:.4g}\u00a0%"),
    ]


def handed_over(*names: str) -> list[str]:
    """Those of the data that no command can load: neither shipped nor the path of a file."""
    return [n for n in dict.fromkeys(names) if not is_shipped(n) and not Path(n).is_absolute()]


def few_rows(result: dict[str, Any], rows: int) -> str:
    """Why there are no intervals; "" where there are, or where an older result never had them."""
    if result.get("intervals", {}) is not None:
        return ""
    return (
        f"{rows} test row{'s' if rows != 1 else ''}: too few for intervals (they need {FEWEST}) "
        "and to tell better from worse."
    )


def noise_sentence(result: dict[str, Any]) -> str:
    """What the test set itself adds to calibration errors; "" without intervals."""
    intervals = result.get("intervals") or {}
    noise = intervals.get("noise", {}).get("after")
    if not noise:
        return ""
    return (
        f"On {intervals['rows']:,} test rows even perfectly calibrated probabilities would show an "
        f"ECE of about {shown('ece', noise['ece'])} % and a classwise ECE of about "
        f"{shown('classwise_ece', noise['classwise_ece'])} %: noise makes absolute gaps, never "
        "negative ones. Intervals are for what infinitely many rows would show, so they may lie "
        "below the number itself."
    )
