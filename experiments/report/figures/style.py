"""Colours and looks of series, as keywords of Matplotlib's artists, and the settings of a figure.

Colours are "C0", "C1" and so on: places in the colour cycle, which `settings` fills for white
paper or for a dark screen.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

HUES = {
    "blue": ("#0072b2", "#4aa8e0"),
    "orange": ("#e69f00", "#e8a200"),
    "purple": ("#cc79a7", "#e08fbd"),
    "green": ("#005f45", "#8be8c4"),
    "red": ("#d55e00", "#f07f2e"),
    "sky": ("#3a8fc4", "#7cc6f2"),
    "olive": ("#8a7a00", "#f0e442"),
    "ink": ("#1b1f24", "#e8eaed"),
    "grey": ("#6b7280", "#9aa3af"),
    "paper": ("#ffffff", "#1d2128"),
}
"""Name -> on white paper (3:1 at least) and on a dark screen; Okabe and Ito's hues.

No colour stands twice among those for paper: a page finds them and puts its own in their place.
"""


FONT_SIZE = 8


def settings(dark: bool = False) -> AbstractContextManager[None]:
    """Matplotlib's settings while a figure is drawn and saved; `dark` = for a dark screen."""
    from matplotlib import rc_context

    colours = {name: pair[dark] for name, pair in HUES.items()}
    options: Any = {
        "axes.axisbelow": True,
        "axes.edgecolor": colours["ink"],
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.labelcolor": colours["ink"],
        "axes.labelpad": 3,
        "axes.linewidth": 0.7,
        "axes.prop_cycle": f"cycler(color={list(colours.values())})",
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.xmargin": 0.06,
        "axes.ymargin": 0.06,
        "figure.facecolor": colours["paper"],
        "font.family": "sans-serif",
        "font.size": FONT_SIZE,
        "grid.alpha": 0.25,
        "grid.color": colours["grey"],
        "grid.linewidth": 0.5,
        "hatch.linewidth": 0.6,
        "lines.linewidth": 1.1,
        "lines.markeredgewidth": 0.8,
        "lines.markersize": 3.2,
        "pdf.fonttype": 42,  # letters as letters (TrueType), as publishers ask
        "svg.fonttype": "none",
        "svg.hashsalt": "fedcal",
        "text.color": colours["ink"],
        "text.parse_math": False,  # names of data and methods are no formulas
        "xtick.color": colours["ink"],
        "xtick.major.size": 0,
        "ytick.color": colours["ink"],
        "ytick.major.size": 0,
    }
    return rc_context(options)


def colour(hue: str) -> str:
    """One of `HUES` as a place in the colour cycle."""
    return f"C{list(HUES).index(hue)}"


def _line(
    hue: str, dash: Sequence[float] = (), marker: str = "none", filled: bool = True
) -> dict[str, Any]:
    return {
        "color": colour(hue),
        "linestyle": (0, tuple(0.8 * d for d in dash)) if dash else "-",
        "marker": marker,
        "markerfacecolor": colour(hue if filled else "paper"),
    }


BOXES: dict[str, dict[str, Any]] = {
    "correct": {"facecolor": colour("blue"), "edgecolor": colour("paper"), "linewidth": 0.4},
    "over": {
        **{"facecolor": colour("orange"), "edgecolor": colour("paper"), "linewidth": 0.4},
        "hatch": "////",
    },
    "under": {"fill": False, "edgecolor": colour("purple"), "linewidth": 0.4, "hatch": "xxxx"},
}
"""Series -> look of its bars."""

LINES = {
    "perfect": _line("grey", dash=(5, 3)),
    "whisker": _line("ink"),
    "before": _line("red", dash=(4, 2), marker="o", filled=False),
    "after": _line("blue", marker="s"),
    "reference": _line("grey", dash=(2, 2)),
    "class": _line("blue", marker="o", filled=False) | {"linestyle": "none", "markersize": 2.2},
    # methods of a comparison, in order
    "m0": _line("blue", marker="o"),
    "m1": _line("red", dash=(6, 2), marker="s"),
    "m2": _line("green", dash=(2, 2), marker="^"),
    "m3": _line("ink", dash=(7, 2, 2, 2), marker="D"),
    "m4": _line("purple", dash=(9, 3), marker="v"),
    "m5": _line("olive", dash=(4, 2, 1, 2), marker="P"),
    "m6": _line("sky", dash=(3, 3), marker="X", filled=False),
    "m7": _line("orange", dash=(1, 2), marker="*"),
    "m8": _line("blue", dash=(8, 2), marker="o", filled=False),
    "m9": _line("red", dash=(2, 1), marker="s", filled=False),
    "m10": _line("green", dash=(5, 1), marker="^", filled=False),
    "m11": _line("ink", dash=(1, 1), marker="D", filled=False),
    "m12": _line("purple", dash=(3, 1), marker="v", filled=False),
    "m13": _line("olive", dash=(7, 1, 1, 1), marker="P", filled=False),
    "m14": _line("sky", dash=(10, 2), marker="X"),
    "m15": _line("orange", dash=(5, 2, 2, 2), marker="*", filled=False),
    # baselines of a comparison
    "b0": _line("grey", dash=(2, 2)),
    "b1": _line("ink", dash=(8, 3)),
    "b2": _line("green", dash=(1, 2)),
    "b3": _line("purple", dash=(6, 2, 1, 2)),
} | {
    f"shape{k}": _line("ink", marker=marker) | {"linestyle": "none"}
    for k, marker in enumerate("os^DvPX*<>ph")
}
"""Series -> look of its line. Colours are told apart with the common colour blindnesses; looks
besides. `shape0` and so on lend their marker to points of other series.
"""

METHOD_STYLES = [name for name in LINES if name[0] == "m"]
BASELINE_STYLES = [name for name in LINES if name[0] == "b" and name[1:].isdigit()]
SHAPES = [name for name in LINES if name.startswith("shape")]
