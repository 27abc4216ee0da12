"""What a figure is, before anybody draws it: sheets of panels with axes and marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcal.types import Floats

Points = Sequence[float] | Floats


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


@dataclass(frozen=True)
class Style:
    """How a series looks; shape, dashes and hatches tell series apart without colour.

    Attributes
    ----------
    hue : one of `HUES`
    dash : lengths of strokes and gaps in points; () = solid
    marker : Matplotlib's letter, or "" for none
    hatch : "", "/" or "x"
    filled : whether bars have a face and markers a filling
    joined : whether a line joins the points
    """

    hue: str
    dash: tuple[float, ...] = ()
    marker: str = ""
    hatch: str = ""
    filled: bool = True
    joined: bool = True

    @property
    def colour(self) -> str:
        """On white paper."""
        return HUES[self.hue][0]

    @property
    def dark(self) -> str:
        """On a dark screen."""
        return HUES[self.hue][1]


STYLES = {
    "correct": Style("blue"),
    "over": Style("orange", hatch="/"),
    "under": Style("purple", hatch="x", filled=False),
    "perfect": Style("grey", dash=(5, 3)),
    "whisker": Style("ink"),
    "before": Style("red", dash=(4, 2), marker="o", filled=False),
    "after": Style("blue", marker="s"),
    "reference": Style("grey", dash=(2, 2)),
    "class": Style("blue", marker="o", filled=False),
    # methods of a comparison, in order
    "m0": Style("blue", marker="o"),
    "m1": Style("red", dash=(6, 2), marker="s"),
    "m2": Style("green", dash=(2, 2), marker="^"),
    "m3": Style("ink", dash=(7, 2, 2, 2), marker="D"),
    "m4": Style("purple", dash=(9, 3), marker="v"),
    "m5": Style("olive", dash=(4, 2, 1, 2), marker="P"),
    "m6": Style("sky", dash=(3, 3), marker="X", filled=False),
    "m7": Style("orange", dash=(1, 2), marker="*"),
    "m8": Style("blue", dash=(8, 2), marker="o", filled=False),
    "m9": Style("red", dash=(2, 1), marker="s", filled=False),
    "m10": Style("green", dash=(5, 1), marker="^", filled=False),
    "m11": Style("ink", dash=(1, 1), marker="D", filled=False),
    "m12": Style("purple", dash=(3, 1), marker="v", filled=False),
    "m13": Style("olive", dash=(7, 1, 1, 1), marker="P", filled=False),
    "m14": Style("sky", dash=(10, 2), marker="X"),
    "m15": Style("orange", dash=(5, 2, 2, 2), marker="*", filled=False),
    # baselines of a comparison
    "b0": Style("grey", dash=(2, 2)),
    "b1": Style("ink", dash=(8, 3)),
    "b2": Style("green", dash=(1, 2)),
    "b3": Style("purple", dash=(6, 2, 1, 2)),
} | {
    f"shape{k}": Style("ink", marker=marker, joined=False)
    for k, marker in enumerate("os^DvPX*<>ph")
}
"""Series -> look. Colours are told apart with the common colour blindnesses; looks besides.

`shape0` and so on give marks of other series their marker: see `Line`.
"""


@dataclass(frozen=True)
class Bars:
    """Upright boxes, arrays of one length."""

    series: str
    left: Points
    right: Points
    low: Points
    high: Points


@dataclass(frozen=True)
class Line:
    """A line through points (markers if the style has one); `line=False`: only the points.

    shape : a series whose marker the points have instead; "" = their own
    """

    series: str
    x: Points
    y: Points
    line: bool = True
    shape: str = ""


@dataclass(frozen=True)
class Whiskers:
    """Upright intervals."""

    series: str
    x: Points
    low: Points
    high: Points


@dataclass(frozen=True)
class Band:
    """The area between two lines, pale; for many intervals beside each other."""

    series: str
    x: Points
    low: Points
    high: Points


@dataclass(frozen=True)
class Level:
    """A horizontal line across the panel."""

    series: str
    y: float


Mark = Bars | Line | Whiskers | Band | Level


@dataclass(frozen=True)
class Axis:
    """One axis. On a logarithmic one all values are > 0 and ticks lie where they are said to."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def places(self, values: Points | float) -> Floats:
        """Where values lie, 0 at the low end and 1 at the high one; far ones are cut."""
        v, low, high = np.asarray(values, np.float64), self.low, self.high
        if self.log:
            v, low, high = np.log(np.maximum(v, 1e-300)), math.log(low), math.log(high)
        return np.asarray(np.clip((v - low) / (high - low), -0.5, 1.5))

    def place(self, value: float) -> float:
        """Where one value lies."""
        return float(self.places(value))


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    title, note : short; shown above, one below the other
    said : the content in words and numbers, for who cannot see it
    aspect : height / width of the plotted area
    """

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    said: str
    aspect: float = 1.0
    note: str = ""


@dataclass(frozen=True)
class Sheet:
    """Panels that belong together, row by row, and what their series are called."""

    title: str
    columns: int
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...]


def unit_axis(label: str, percent: bool = False) -> Axis:
    """From 0 to 1, or to 100 %."""
    top = 100.0 if percent else 1.0
    ticks = [(top * k / 4, f"{top * k / 4:g}") for k in range(5)]
    return Axis(label, 0.0, top, tuple(ticks))


def linear_axis(label: str, values: Sequence[float], zero: bool = False) -> Axis:
    """Around the values, with three to six round ticks; from 0 if `zero`."""
    low, high = (min(values), max(values)) if len(values) else (0.0, 1.0)
    if zero:
        low = min(low, 0.0)
    room = 0.06 * (high - low) or 0.02 * abs(high) or 1.0
    low, high = (low if zero and low == 0 else low - room), high + room
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s for s in (power, 2 * power, 2.5 * power, 5 * power, 10 * power) if s >= raw)
    first = math.ceil(low / step - 1e-9)
    places = [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]
    digits = max(0, -math.floor(math.log10(step))) + (1 if f"{step:e}".startswith("2.5") else 0)
    return Axis(label, low, high, tuple((v, f"{v + 0.0:.{digits}f}") for v in places))


def log_axis(label: str, values: Sequence[float]) -> Axis:
    """Around positive values, with ticks at 1, 2, 5 times powers of ten, or at powers alone."""
    low, high = (min(values) / 1.25, max(values) * 1.25) if len(values) else (1.0, 10.0)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1, 1.5, 2, 3, 5, 7)):
        places = [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high]
        if len(places) >= 3:
            break
    while len(places) > 7:
        places = places[::2]
    return Axis(label, low, high, tuple((v, _short(v)) for v in places), log=True)


def _short(value: float) -> str:
    """A positive round number: 0.3, 2,000, 20k, 5M."""
    for least, unit, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= least:
            return f"{value / unit:.4g}{suffix}"
    return f"{value:,.12g}"


def spread_of(values: Sequence[float]) -> float:
    """max / min of positive values; 1 if there is none."""
    positive = np.asarray([v for v in values if v > 0])
    return float(positive.max() / positive.min()) if positive.size else 1.0
