"""Figures: what is drawn (`diagrams`, `curves`), and two ways to draw it (`svg`, `paper`).

A figure is first described as data: panels with axes and marks (`panel`). The same description
becomes an inline SVG for the report, whose colours follow the reader's light or dark scheme, and
a Matplotlib figure for a paper (PNG, SVG). Matplotlib is imported only by who draws for paper.
"""

from __future__ import annotations

from fedcal.experiments.figures.paper import draw, reliability_figure, save_figure, save_sheets

NAMES = tuple(
    f"{name}.{suffix}" for name in ("reliability", "classes", "rounds") for suffix in ("png", "svg")
)
"""Files of figures that a calibrator's report may leave in its folder."""

CURVE_NAMES = ("curve-[0-9]*.png", "curve-[0-9]*.svg")
"""Patterns of those of another artifact's report."""

COMPARISON_NAMES = tuple(
    f"{name}.{suffix}"
    for name in ("epsilon", "epsilon-[0-9]*", "bytes", "bytes-[0-9]*")
    for suffix in ("png", "svg")
)
"""Patterns of the files of figures that a comparison may leave: one pair for each data set."""

__all__ = [
    "COMPARISON_NAMES",
    "CURVE_NAMES",
    "NAMES",
    "draw",
    "reliability_figure",
    "save_figure",
    "save_sheets",
]
