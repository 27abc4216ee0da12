"""How numbers and progress look to people on a terminal."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SHOWN = {
    "accuracy": "accuracy %",
    "ece": "ECE %",
    "classwise_ece": "cwECE %",
    "nll": "NLL",
    "brier": "Brier",
    "mce": "MCE %",
}
"""Metric -> heading; percentages are for people, files hold fractions."""


def shown(metric: str, value: float) -> str:
    """A metric as people read it."""
    return f"{100 * value:.3f}" if SHOWN[metric].endswith("%") else f"{value:.4f}"


def progress_bar() -> Progress:
    """The one look of progress bars, on stderr; silent where stderr is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),  # otherwise it would leave a blank line
    )
