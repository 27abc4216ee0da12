"""What numbers are called and mean, in plain words."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fedcal.conformal.coverage import FEW_CLASSES
from fedcal.core import pages
from fedcal.core.classes import called
from fedcal.datasets import is_shipped
from fedcal.evaluation import page
from fedcal.evaluation.intervals import from_json
from fedcal.experiments.report import headline
from fedcal.experiments.report.figures.curves import NAMES
from fedcal.experiments.runs.config import APP
from fedcal.metrics.bootstrap import FEWEST

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


def meanings(result: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """`METRICS`; for a run on two classes it says which ECE is of what."""
    if result.get("score") != "positive":
        return METRICS
    name = called(result.get("class_names"), 1)
    of_one = (
        f"Distance between the probability of {name} and its observed rate, averaged over 15 bins "
        "of that probability. (The mean over both classes: theirs are equal, but for rows on the "
        "edge of a bin.) 0 is best."
    )
    of_two = {
        "ece": ("top-label ECE, %", METRICS["ece"][1]),
        "classwise_ece": (f"ECE of {name}, %", of_one),
    }
    return METRICS | of_two


def percent(fraction: float) -> str:
    """Format a fraction in per cent with two decimals, without a line break inside."""
    return f"{100 * fraction:.2f}\u00a0%"


def signed(metric: str, value: float, digits: int | None = None) -> str:
    """Format a difference with its sign; zero has none."""
    text = page.shown(metric, abs(value), digits=digits)
    if not float(text):
        return text
    return ("−" if value < 0 else "+") + text


def with_interval(result: Mapping[str, Any], part: str, metric: str) -> tuple[str, str]:
    """Format a number of a part of the result and its interval, with the digits it supports.

    Parameters
    ----------
    part
        "before", "after" or "difference"
    """
    ends = (result.get("intervals") or {}).get(part, {}).get(metric)
    digits = page.decimals(metric, *ends) if ends else None
    before, after = (float(result[of][metric]) for of in ("before", "after"))
    show = partial(signed if part == "difference" else page.shown, metric, digits=digits)
    value = {"before": before, "after": after, "difference": after - before}[part]
    return show(value), " to ".join(map(show, ends or ()))


def metric_table(result: dict[str, Any]) -> pages.Table:
    """Metrics before and after, and what changed, each above its interval if a result has any."""
    intervals = result.get("intervals") or {}
    rows = []
    for metric, (heading, _) in meanings(result).items():
        row: list[pages.Entry] = [heading]
        values = [float(result[part][metric]) for part in ("before", "after")]
        for part, value in zip(("before", "after"), values, strict=True):
            text, interval = with_interval(result, part, metric)
            ends = intervals.get(part, {}).get(metric)
            why = "; noise inflates the number" if ends and value > ends[1] else ""
            row.append(pages.Marked(text, small=interval + why))
        text, interval = with_interval(result, "difference", metric)
        ends = intervals.get("difference", {}).get(metric)
        mark = _says(metric, values[1] - values[0], ends)
        rows.append([*row, pages.Marked(text, mark=mark, small=interval)])
    return pages.Table("", ("metric", "before", "after", "change"), rows, left=(0,))


def _says(metric: str, change: float, ends: list[float] | None) -> str:
    """Better or worse, where the interval of the difference leaves no doubt."""
    if change == 0:
        return "unchanged"
    if not ends or ends[0] <= 0 <= ends[1]:
        return "" if not ends else "no clear change"
    return "better" if (change > 0) == (metric in headline.HIGHER_IS_BETTER) else "worse"


_TILES = ("accuracy", "roc_auc", "ece", "gap")
"""Of an evaluation's metrics: what its report begins with, of those that there are."""


def metric_tiles(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return an evaluation's main metrics with intervals, after calibration if there is one."""
    metrics = result.get("metrics_after", result["metrics"])
    tiles = []
    for name in _TILES:
        if name not in metrics:
            continue
        heading = page.heading(name, str(result.get("score", "")))
        estimate = page.whole(name, from_json(metrics[name]))
        if metrics[name]["value"] is not None:
            estimate = headline.measured(name, metrics[name])
        tiles.append((heading.removesuffix(", %"), estimate))
    return tiles


def set_tiles(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return coverage and size of prediction sets; without test rows, the released values."""
    wanted, after = _share(1 - result["sets"]["alpha"]), result["after"]
    if after is None:
        return [("coverage wanted", wanted)]
    by, alone = result["coverage_by"], _share(after["singletons"])
    if "1" in by["size"]:
        alone += f", {_share(by['size']['1']['coverage'])} of them right"
    names = result.get("class_names")
    classes = {called(names, int(k)): entry["coverage"] for k, entry in by["class"].items()}
    by_class = []
    if 1 < len(classes) <= FEW_CLASSES:
        ends = (pick(classes, key=classes.__getitem__) for pick in (min, max))
        least, most = (f"{_share(classes[name])} ({name})" for name in ends)
        by_class = [("coverage by class", f"{least} to {most}")]
    return [
        ("coverage", f"{_share(after['coverage'])} ({wanted} wanted)"),
        *by_class,
        ("sets of one label", alone),
        ("labels in a set", f"{after['set_size']:.4g}"),
    ]


def _share(share: float) -> str:
    return f"{100 * share:.4g}\u00a0%"


def of_clients(engine: str | None) -> str:
    """Name the clients that keep their rows, in the plural."""
    return "clients of a Flower app" if engine == APP else "real sites"


def handed_over(*names: str) -> list[str]:
    """Return the data sets that no command can load: neither shipped nor the path of a file."""
    return [n for n in dict.fromkeys(names) if not is_shipped(n) and not Path(n).is_absolute()]


def few_rows(result: dict[str, Any], rows: int) -> str:
    """Explain why there are no intervals; "" if there are, or if an older result never had them."""
    if result.get("intervals", {}) is not None:
        return ""
    return (
        f"{rows} test row{'s' if rows != 1 else ''}: too few for intervals (they need {FEWEST}) "
        "and to tell better from worse."
    )


def noise_sentence(result: dict[str, Any]) -> str:
    """State the share of calibration errors that the test set itself adds; "" without intervals."""
    intervals = result.get("intervals") or {}
    noise = intervals.get("noise", {}).get("after")
    if not noise:
        return ""
    shares = " and ".join(
        f"about {100 * noise[metric]:.2g} % of {heading.removesuffix(', %')}"
        for metric, (heading, _) in meanings(result).items()
        if metric in ("ece", "classwise_ece")
    )
    return (
        f"On {intervals['rows']:,} test rows even perfectly calibrated probabilities would show "
        f"{shares}: noise makes absolute gaps, never "
        "negative ones. Intervals are for what infinitely many rows would show, so they may lie "
        "below the number itself."
    )
