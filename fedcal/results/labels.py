"""What numbers are called and mean, in plain words."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fedcal.core import pages
from fedcal.core.numerics import FLOOR
from fedcal.metrics.bootstrap import GAPS
from fedcal.metrics.names import TEST_ROWS, about, decimals, heading, named, shown

APP, STUDY = "app", "study"
"""Engines of runs with real sites: in a Flower app of somebody else's, which only that app can
start, and over the sites of a study (`fedcal study run`)."""

SIMULATED = (
    *("engine", "ray_address", "partition", "dropout", "noise_source"),
    *("secure_aggregation", "committee", "positive"),
)
"""Options of simulations alone."""


def signed(metric: str, value: float, digits: int | None = None) -> str:
    """Format a difference with its sign; zero has none."""
    text = shown(metric, abs(value), digits=digits)
    sign = "−" if value < 0 else "+"
    return sign + text if float(text) else text


def metric_table(result: dict[str, Any]) -> pages.Table:
    """Metrics before and after, and what changed, each above its interval if a result has any."""
    parts = ("before", "after", "difference")
    rows: list[tuple[pages.Entry, ...]] = [
        (heading(metric, *about(result)), *(entry(result, part, metric) for part in parts))
        for metric in TEST_ROWS
    ]
    return pages.Table("", ("metric", "before", "after", "change"), rows, left=(0,))


def entry(result: Mapping[str, Any], part: str, metric: str) -> pages.Marked:
    """Return a number above its interval, and what makes it better, worse or inflated.

    Parameters
    ----------
    part
        "before", "after" or "difference"
    """
    before, after = (float(result[of][metric]) for of in ("before", "after"))
    value = {"before": before, "after": after, "difference": after - before}[part]
    ends = (result.get("intervals") or {}).get(part, {}).get(metric)
    digits = decimals(metric, *ends) if ends else None
    show = partial(signed if part == "difference" else shown, metric, digits=digits)
    text, interval = show(value), " to ".join(map(show, ends or ()))
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


def of_clients(engine: str | None) -> str:
    """Name the clients that keep their rows, in the plural."""
    return "clients of a Flower app" if engine == APP else "real sites"
