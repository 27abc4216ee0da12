"""Figures from reliability data: `compute` happens elsewhere, here is only `plot`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcal.metrics import Reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR, GAP, LINE = "#0072B2", "#E69F00", "#000000"
"""Okabe and Ito's palette: told apart also with any common colour blindness."""


def reliability_figure(panels: Mapping[str, Reliability], title: str) -> Figure:
    """Top-label reliability diagrams side by side, each over its confidence histogram.

    Parameters
    ----------
    panels : heading -> reliability data of the same test rows
    title : above all of them
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.3 * len(panels) + 0.6, 4.9), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(2, len(panels), squeeze=False, height_ratios=(3, 1), sharex=True)
    for column, (heading, data) in enumerate(panels.items()):
        _diagram(axes[0, column], heading, data, first=column == 0)
        _histogram(axes[1, column], data, first=column == 0)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG at 150 dots per inch (or what the suffix says)."""
    figure.savefig(path, dpi=150)


def _diagram(axis: Axes, heading: str, data: Reliability, *, first: bool) -> None:
    bins = len(data.count)
    left, width = np.arange(bins) / bins, 1.0 / bins
    there = data.count > 0
    count = np.maximum(data.count, 1)
    accuracy = np.where(there, data.sum_correct / count, 0.0)
    confidence = np.where(there, data.sum_confidence / count, 0.0)
    edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.6, "align": "edge"}
    axis.bar(left, accuracy, width, color=BAR, label="share correct", **edge)
    axis.bar(
        left[there],
        (confidence - accuracy)[there],
        width,
        bottom=accuracy[there],
        color=GAP,
        alpha=0.75,
        hatch="//",
        label="gap to mean confidence",
        **edge,
    )
    axis.plot([0, 1], [0, 1], color=LINE, linestyle="--", linewidth=1, label="perfect calibration")
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title=heading)
    axis.text(0.04, 0.94, f"ECE {100 * data.ece:.2f} %", transform=axis.transAxes, va="top")
    if first:
        axis.set_ylabel("share correct")


def _histogram(axis: Axes, data: Reliability, *, first: bool) -> None:
    bins = len(data.count)
    share = 100 * data.count / max(data.rows, 1)
    axis.bar(
        np.arange(bins) / bins,
        share,
        1.0 / bins,
        align="edge",
        color=BAR,
        edgecolor="white",
        linewidth=0.6,
    )
    axis.set(xlim=(0, 1), ylim=(0, 100), xlabel="confidence of the top label")
    if first:
        axis.set_ylabel("% of rows")
