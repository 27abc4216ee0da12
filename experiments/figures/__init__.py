"""Figures: what is drawn (`diagrams`, `curves`), and two ways to draw it (`svg`, `paper`).

A figure is first described as data: panels with axes and marks (`panel`). The same description
becomes an inline SVG for the report, whose colours follow the reader's light or dark scheme, and
a Matplotlib figure for a paper (PNG, SVG). Matplotlib is imported only by who draws for paper.
"""

from __future__ import annotations

from experiments.figures.paper import draw, reliability_figure, save_figure, save_sheets

__all__ = ["draw", "reliability_figure", "save_figure", "save_sheets"]
