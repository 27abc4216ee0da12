"""Figures: what is drawn (`diagrams`, `curves`), how (`style`, `drawing`, `inline`).

A figure is a sheet of panels, each of which plots itself on Matplotlib's axes. It is drawn once,
for a paper (PNG, SVG, PDF) and for a page, where each panel is an SVG in the colours of the
reader's light or dark scheme. Matplotlib is imported only when something is drawn.
"""


def _files(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}.{suffix}" for name in names for suffix in ("png", "svg"))


NAMES = _files("reliability", "classes", "rounds")
"""Files of figures that a calibrator's report may leave in its folder."""

CURVE_NAMES = _files("curve-[0-9]*")
"""Patterns of those of another artifact's report."""

COLUMN_NAMES = ("column.pdf", "column.svg")

COMPARISON_NAMES = (*COLUMN_NAMES, *_files("epsilon", "epsilon-[0-9]*", "bytes", "bytes-[0-9]*"))
"""Patterns of the files of figures that a comparison may leave: one pair for each data set."""
