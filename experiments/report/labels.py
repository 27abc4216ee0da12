"""What numbers are called and mean, in plain words."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fedcal.conformal.coverage import FEW_CLASSES
from fedcal.core import pages
from fedcal.core.classes import called
from fedcal.core.numerics import FLOOR
from fedcal.datasets import is_shipped
from fedcal.evaluation import page
from fedcal.evaluation.estimators.calibration import ECES
from fedcal.evaluation.intervals import from_json
from fedcal.experiments.report import headline
from fedcal.experiments.runs.config import APP
from fedcal.metrics.bootstrap import FEWEST, GAPS
from fedcal.metrics.names import TEST_ROWS, about, decimals, heading, named, shown


def meanings(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return heading and meaning of each metric of the table of a run on test rows."""
    of = about(result)
    return [(heading(m, *of), named(m, *of).meaning) for m in TEST_ROWS]


def percent(fraction: float) -> str:
    """Format a fraction in per cent with two decimals, without a line break inside."""
    return f"{100 * fraction:.2f}\u00a0%"


def signed(metric: str, value: float, digits: int | None = None) -> str:
    """Format a difference with its sign; zero has none."""
    text = shown(metric, abs(value), digits=digits)
    sign = "−" if value < 0 else "+"
    return sign + text if float(text) else text


def with_interval(result: Mapping[str, Any], part: str, metric: str) -> tuple[str, str]:
    """Format a number of a part of the result and its interval, with the digits it supports.

    Parameters
    ----------
    part
        "before", "after" or "difference"
    """
    ends = (result.get("intervals") or {}).get(part, {}).get(metric)
    digits = decimals(metric, *ends) if ends else None
    show = partial(signed if part == "difference" else shown, metric, digits=digits)
    return show(_value(result, part, metric)), " to ".join(map(show, ends or ()))


def _value(result: Mapping[str, Any], part: str, metric: str) -> float:
    before, after = (float(result[of][metric]) for of in ("before", "after"))
    return {"before": before, "after": after, "difference": after - before}[part]


def metric_table(result: dict[str, Any]) -> pages.Table:
    """Metrics before and after, and what changed, each above its interval if a result has any."""
    parts = ("before", "after", "difference")
    rows: list[tuple[pages.Entry, ...]] = [
        (heading(metric, *about(result)), *(_entry(result, part, metric) for part in parts))
        for metric in TEST_ROWS
    ]
    return pages.Table("", ("metric", "before", "after", "change"), rows, left=(0,))


def _entry(result: Mapping[str, Any], part: str, metric: str) -> pages.Marked:
    """Return a number above its interval, and what makes it better, worse or inflated."""
    value, (text, interval) = _value(result, part, metric), with_interval(result, part, metric)
    ends = (result.get("intervals") or {}).get(part, {}).get(metric)
    if part == "difference":
        return pages.Marked(text, mark=_says(metric, value, ends), small=interval)
    few = result.get("rows_below_floor", {}).get(part, 0) if metric == "nll" else 0
    notes = {
        interval: ends,
        "noise inflates the number": ends and metric in GAPS and value >= ends[1],
        f"{few:,} row{'s' * (few != 1)} below the floor of {FLOOR:g}": few,
    }
    return pages.Marked(text, small="; ".join(note for note, holds in notes.items() if holds))


def _says(metric: str, change: float, ends: list[float] | None) -> str:
    """Better or worse, where the interval of the difference leaves no doubt."""
    if change == 0:
        return "unchanged"
    if not ends or ends[0] <= 0 <= ends[1]:
        return "" if not ends else "no clear change"
    return "better" if (change > 0) == named(metric).higher else "worse"


_TILES = ("accuracy", "roc_auc", *ECES, "gap")
"""Of an evaluation's metrics: what its report begins with, of those that there are."""


def metric_tiles(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return an evaluation's main metrics with intervals, after calibration if there is one."""
    metrics = result.get("metrics_after", result["metrics"])
    tiles = []
    for name in _TILES:
        if name not in metrics:
            continue
        estimate = page.whole(name, from_json(metrics[name]))
        if metrics[name]["value"] is not None:
            estimate = headline.measured(name, metrics[name])
        tiles.append((named(name, str(result.get("score", ""))).title, estimate))
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
        f"about {100 * noise[metric]:.2g} % of {named(metric, *about(result)).title}"
        for metric in ECES
    )
    return (
        f"On {intervals['rows']:,} test rows even perfectly calibrated probabilities would show "
        f"{shares}: noise makes absolute gaps, never "
        "negative ones. Intervals are for what infinitely many rows would show, so the number may "
        "be the upper end of its own."
    )
