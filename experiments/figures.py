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

CORRECT, OVER, UNDER, LINE = "#0072B2", "#E69F00", "#CC79A7", "#000000"
"""Okabe and Ito's palette: told apart also with any common colour blindness; hatched besides."""

EDGE: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.6, "align": "edge"}


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
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG at 150 dots per inch (or what the suffix says)."""
    figure.savefig(path, dpi=150)


def _diagram(axis: Axes, heading: str, data: Reliability, *, first: bool) -> None:
    bins = len(data.count)
    there = data.count > 0
    left, width = np.arange(bins)[there] / bins, 1.0 / bins
    correct = data.sum_correct[there] / data.count[there]
    confidence = data.sum_confidence[there] / data.count[there]
    axis.bar(left, correct, width, color=CORRECT, label="share correct", **EDGE)
    over, under = np.maximum(confidence - correct, 0.0), np.maximum(correct - confidence, 0.0)
    axis.bar(left, over, width, correct, color=OVER, hatch="//", label="overconfident", **EDGE)
    # part of the share correct: drawn through it
    outline: dict[str, Any] = {**EDGE, "edgecolor": UNDER, "facecolor": "none"}
    outline["linewidth"] = np.where(under > 0, EDGE["linewidth"], 0.0).tolist()
    axis.bar(left, under, width, confidence, hatch="xxxx", label="underconfident", **outline)
    axis.plot([0, 1], [0, 1], color=LINE, linestyle="--", linewidth=1, label="perfect calibration")
    axis.set(xlim=(0, 1), ylim=(0, 1), box_aspect=1, title=heading)
    axis.text(0.04, 0.95, f"ECE {100 * data.ece:.2f} %", transform=axis.transAxes, va="top")
    if first:
        axis.set_ylabel("share correct")


def _histogram(axis: Axes, data: Reliability, *, first: bool) -> None:
    bins = len(data.count)
    share = 100 * data.count / max(data.rows, 1)
    axis.bar(np.arange(bins) / bins, share, 1.0 / bins, color=CORRECT, **EDGE)
    axis.set(xlim=(0, 1), ylim=(0, 100), box_aspect=1 / 3, xlabel="confidence of the top label")
    if first:
        axis.set_ylabel("% of rows")
