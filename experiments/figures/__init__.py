"""Figures: what is drawn (`diagrams`, `curves`), how (`drawing`, `inline`).

A figure is first described as data: panels with axes and marks (`panel`). Matplotlib draws it for
a paper (PNG, SVG, PDF), and each panel as an SVG in a page, where the colours become those of the
reader's light or dark scheme. Matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

from fedcal.experiments.figures.drawing import draw, reliability_figure, save_figure, save_sheets

NAMES = tuple(
    f"{name}.{suffix}" for name in ("reliability", "classes", "rounds") for suffix in ("png", "svg")
)
"""Files of figures that a calibrator's report may leave in its folder."""

CURVE_NAMES = ("curve-[0-9]*.png", "curve-[0-9]*.svg")
"""Patterns of those of another artifact's report."""

COMPARISON_NAMES = tuple(
    f"{name}.{suffix}"
    for name in ("epsilon", "epsilon-[0-9]*", "trust", "trust-[0-9]*", "bytes", "bytes-[0-9]*")
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
