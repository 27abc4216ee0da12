"""Panels of the figures: histograms of confidences, and ECE against a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedcal.experiments.report.figures.drawing import Panel, bars, curve
from fedcal.experiments.research.studies.spec import Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOKS = ("correct", "under")
"""Of histograms that share a panel: filled, and hatched on top."""


def histogram(title: str, note: str, axis: str, series: Mapping[str, Rows]) -> Panel:
    """Shares of rows, of `at` and `share`.

    Parameters
    ----------
    axis
        what is counted by
    series
        of `LOOKS` -> bars from 0 to 1
    """

    def plot(ax: Axes) -> None:
        ax.set(xlabel=axis, ylabel="share of rows", xlim=(0, 1), ylim=(0, 1))
        for look, rows in series.items():
            left = np.array([r["at"] for r in rows])
            share = np.array([r["share"] for r in rows])
            bars(ax, look, left, left + 1 / len(rows), np.zeros(len(rows)), share)

    said = "; ".join(
        f"{look}: " + ", ".join(f"from {r['at']:g} {100 * r['share']:.1f} %" for r in rows)
        for look, rows in series.items()
    )
    return Panel(title, plot, f"{title}, {note}. {said}.", aspect=0.75, note=note)


def against(title: str, axis: str, series: Mapping[str, Rows], key: str) -> Panel:
    """ECE by a number of the rows, one line for each series.

    Parameters
    ----------
    axis, key
        what the number is called; of rows
    series
        of `style.LINES` -> rows
    """

    def plot(ax: Axes) -> None:
        ax.set(xlabel=axis, ylabel="ECE")
        for look, rows in series.items():
            mine = sorted(rows, key=lambda r: float(r[key]))
            curve(ax, look, [float(r[key]) for r in mine], [r["ece"] for r in mine])
        ax.set_ylim(bottom=0)

    said = "; ".join(
        f"{look}: " + ", ".join(f"{float(r[key]):.4g}: {r['ece']:.4f}" for r in rows)
        for look, rows in series.items()
    )
    return Panel(title, plot, f"{title}: ECE by {axis}. {said}.", aspect=0.75)
