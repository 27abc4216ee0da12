"""Colours and looks of series, as keywords of Matplotlib's artists, and the settings of a figure.

Colours are "C0", "C1" and so on: places in the colour cycle, which `settings` fills for white
paper or for a dark screen.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
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
"""That of `fedcal.mplstyle`."""

_INKED = ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color")


def settings(dark: bool = False) -> AbstractContextManager[None]:
    """Matplotlib's settings while a figure is drawn and saved; `dark` = for a dark screen."""
    from matplotlib import rc_context, rc_params_from_file

    style = Path(__file__).with_name("fedcal.mplstyle")
    hues = {name: pair[dark] for name, pair in HUES.items()}
    coloured: Any = {
        **dict.fromkeys(_INKED, hues["ink"]),
        "axes.prop_cycle": f"cycler(color={list(hues.values())})",
        "figure.facecolor": hues["paper"],
        "grid.color": hues["grey"],
    }
    return rc_context({**rc_params_from_file(style, use_default_template=False), **coloured})


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


_EDGE = {"edgecolor": colour("paper"), "linewidth": 0.4}
BOXES: dict[str, dict[str, Any]] = {
    "correct": {"facecolor": colour("blue"), **_EDGE},
    "over": {"facecolor": colour("orange"), **_EDGE, "hatch": "////"},
    "under": {"fill": False, **_EDGE, "edgecolor": colour("purple"), "hatch": "xxxx"},
}
"""Series -> look of its bars."""

_HUES = ("blue", "red", "green", "ink", "purple", "olive", "sky", "orange")
_DASHES = ((), (6, 2), (2, 2), (7, 2, 2, 2), (9, 3), (4, 2, 1, 2), (3, 3), (1, 2))
_MARKERS = "os^DvPX*os^DvPX*<>phdH8."
_BASELINES = {"grey": (2, 2), "ink": (8, 3), "green": (1, 2), "purple": (6, 2, 1, 2)}

METHOD_STYLES = [f"m{k}" for k in range(len(_MARKERS))]
"""Of the methods of a comparison: all hues with filled, with open and with other markers."""

BASELINE_STYLES = [f"b{k}" for k in range(len(_BASELINES))]

LINES = {
    "perfect": _line("grey", dash=(5, 3)),
    "whisker": _line("ink"),
    "before": _line("red", dash=(4, 2), marker="o", filled=False),
    "after": _line("blue", marker="s"),
    "reference": _line("grey", dash=(2, 2)),
}
"""Series -> look of its line. Colours are told apart with the common colour blindnesses; looks
besides.
"""

for k, series in enumerate(METHOD_STYLES):
    again, j = divmod(k, len(_HUES))
    LINES[series] = _line(_HUES[j], _DASHES[(j + 3 * again) % 8], _MARKERS[k], filled=again != 1)
for series, (hue, dash) in zip(BASELINE_STYLES, _BASELINES.items(), strict=True):
    LINES[series] = _line(hue, dash)


def look(series: str) -> dict[str, Any]:
    """Return the look of a line in the colours of the settings at this moment.

    An artist would look its place in the cycle up when it is drawn: under the settings of others.
    """
    from matplotlib.colors import to_hex

    fixed = {key: to_hex(LINES[series][key]) for key in ("color", "markerfacecolor")}
    return {**LINES[series], **fixed}
