"""Figures: what is drawn (`diagrams`, `curves`), how (`style`, `drawing`, `inline`).

A figure is a sheet of panels, each of which plots itself on Matplotlib's axes. It is drawn once,
for a paper (PNG, SVG, PDF) and for a page, where each panel is an SVG in the colours of the
reader's light or dark scheme. Matplotlib is imported only when something is drawn.
"""

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
