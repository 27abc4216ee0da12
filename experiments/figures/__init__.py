"""Figures: what is drawn (`diagrams`, `curves`), and two ways to draw it (`svg`, `paper`).

A figure is first described as data: panels with axes and marks (`panel`). The same description
becomes an inline SVG for the report, whose colours follow the reader's light or dark scheme, and
a Matplotlib figure for a paper (PNG, SVG). Matplotlib is imported only by who draws for paper.
"""

from __future__ import annotations

from fedcal.experiments.figures.paper import draw, reliability_figure, save_figure, save_sheets

NAMES = tuple(
    f"{name}.{suffix}"
    for name in ("reliability", "classes", "rounds", "curve-[0-9]*")
    for suffix in ("png", "svg")
)
"""Patterns of the files of figures that a run may leave in its folder."""

COMPARISON_NAMES = tuple(
    f"{name}.{suffix}"
    for name in ("epsilon", "epsilon-[0-9]*", "bytes", "bytes-[0-9]*")
    for suffix in ("png", "svg")
)
"""Patterns of the files of figures that a comparison may leave: one pair for each data set."""

__all__ = ["COMPARISON_NAMES", "NAMES", "draw", "reliability_figure", "save_figure", "save_sheets"]
