"""Panels as inline SVG: a few kilobytes each, text as text, colours given by a palette.

A panel is 300 units wide and its text 13.5 units high, so it is readable from about 270 pixels on:
four panels beside each other on a desk, one on a telephone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from fedcal.experiments.figures.panel import STYLES, Band, Bars, Level, Line, Panel, Whiskers

WIDTH = 300.0
RIGHT, TOP, BOTTOM = 16.0, 9.0, 48.0

Palette = Callable[[str], str]
"""Name of a series, "ink", "grid" or "paper" -> a CSS colour."""


def variable(name: str) -> str:
    """The palette of the report: a CSS custom property for each name."""
    return f"var(--{name})"


def fixed(name: str) -> str:
    """The palette where no style sheet is at hand: text as around it, series in mid tones."""
    if name in STYLES:
        return STYLES[name].colour if name != "whisker" else "currentColor"
    return {"paper": "#ffffff"}.get(name, "currentColor")


def panel_svg(panel: Panel, name: str, palette: Palette = variable) -> str:
    """One panel.

    Parameters
    ----------
    panel : what to draw
    name : prefix of the ids in it, unique on the page
    palette : where colours come from
    """
    left = left_of(panel)
    inner = WIDTH - left - RIGHT
    tall = inner * panel.aspect
    height = TOP + tall + BOTTOM

    def x_of(value: float) -> float:
        return left + inner * panel.x.place(value)

    def y_of(value: float) -> float:
        return TOP + tall * (1 - panel.y.place(value))

    body = [
        f'<svg class="panel" viewBox="0 0 {WIDTH:g} {height:.4g}" role="img" '
        f'aria-label="{escape(panel.said)}" font-size="13.5" fill="none" '
        f'xmlns="http://www.w3.org/2000/svg">',
        _definitions(panel, name, palette),
        f'<clipPath id="{name}-c"><rect x="{left - 5:g}" y="{TOP - 5:g}" width="{inner + 10:.4g}" '
        f'height="{tall + 10:.4g}"/></clipPath>',
        _axes(panel, x_of, y_of, tall, palette),
        f'<g clip-path="url(#{name}-c)">',
    ]
    for mark in panel.marks:
        if isinstance(mark, Bars):
            body.append(_bars(mark, x_of, y_of, name, palette))
        elif isinstance(mark, Line):
            body.append(_line(mark, x_of, y_of, palette))
        elif isinstance(mark, Whiskers):
            body.append(_whiskers(mark, x_of, y_of, palette))
        elif isinstance(mark, Band):
            body.append(_band(mark, x_of, y_of, palette))
        else:
            body.append(_level(mark, y_of(mark.y), left, left + inner, palette))
    body.append("</g>")
    return "".join([*body, "</svg>"])


def left_of(panel: Panel) -> float:
    """Where the plotted area begins: right of the longest tick label, and of the axis's own."""
    return 27.0 + 7.8 * max(4, *(len(text) for _, text in panel.y.ticks), 0)


def swatch_svg(series: str, name: str, palette: Palette = variable, bars: bool = False) -> str:
    """The sample of a series for a legend."""
    style, colour = STYLES[series], palette(series)
    head = 'viewBox="0 0 34 14" width="34" height="14" aria-hidden="true" fill="none"'
    body = [f'<svg class="swatch" {head}>']
    if bars:
        body.append(_hatch(series, f"{name}-{series}", palette))
        body.append(_box(4, 1, 26, 12, series, name, palette))
    else:
        body.append(f'<path d="M1 7H33"{_stroke(style.dash, colour, 2)}/>')
        if style.marker:
            body.append(_marker(style.marker, 17, 7, colour, style.filled, palette, 4.2))
    return "".join([*body, "</svg>"])


def _axes(
    panel: Panel,
    x_of: Callable[[float], float],
    y_of: Callable[[float], float],
    tall: float,
    palette: Palette,
) -> str:
    ink, grid, left = palette("ink"), palette("grid"), left_of(panel)
    right, bottom, middle = WIDTH - RIGHT, TOP + tall, TOP + tall / 2
    lines, words = [], []

    def write(text: str, place: str, anchor: str = "middle") -> None:
        words.append(f'<text {place} text-anchor="{anchor}">{escape(text)}</text>')

    for value, text in panel.x.ticks:
        lines.append(f"M{x_of(value):.1f} {TOP:g}V{bottom:.1f}")
        write(text, f'x="{x_of(value):.1f}" y="{bottom + 20:.1f}"')
    for value, text in panel.y.ticks:
        lines.append(f"M{left:g} {y_of(value):.1f}H{right:g}")
        write(text, f'x="{left - 6:g}" y="{y_of(value) + 4.2:.1f}"', "end")
    write(panel.x.label, f'x="{(left + right) / 2:g}" y="{bottom + 40:.1f}"')
    write(panel.y.label, f'transform="translate(13 {middle:.1f})rotate(-90)"')
    return (
        f'<path d="{"".join(lines)}" style="stroke:{grid};stroke-opacity:.3"/>'
        f'<path d="M{left:g} {TOP:g}V{bottom:.1f}H{right:g}" style="stroke:{ink}"/>'
        f'<g style="fill:{ink}">{"".join(words)}</g>'
    )


def _definitions(panel: Panel, name: str, palette: Palette) -> str:
    hatched = {m.series for m in panel.marks if isinstance(m, Bars)}
    return "".join(_hatch(s, f"{name}-{s}", palette) for s in sorted(hatched))


def _hatch(series: str, identity: str, palette: Palette) -> str:
    style, colour = STYLES[series], palette(series)
    if not style.hatch:
        return ""
    lines = "M-1 5L5 -1M3 9L9 3" if style.hatch == "/" else "M0 0L8 8M8 0L0 8"
    over = palette("paper") if style.filled else colour
    face = f'<rect width="8" height="8" style="fill:{colour}"/>' if style.filled else ""
    return (
        f'<pattern id="{identity}" width="8" height="8" patternUnits="userSpaceOnUse">{face}'
        f'<path d="{lines}" style="stroke:{over};stroke-width:1.3"/></pattern>'
    )


def _box(x: float, y: float, w: float, h: float, series: str, name: str, palette: Palette) -> str:
    style, colour = STYLES[series], palette(series)
    fill = f"url(#{name}-{series})" if style.hatch else colour
    edge = palette("paper") if style.filled else colour
    return (
        f'<rect x="{x:.1f}" y="{y:.2f}" width="{w:.1f}" height="{h:.2f}" '
        f'style="fill:{fill};stroke:{edge};stroke-width:{".6" if style.filled else "1"}"/>'
    )


def _bars(
    mark: Bars,
    x_of: Callable[[float], float],
    y_of: Callable[[float], float],
    name: str,
    palette: Palette,
) -> str:
    boxes = []
    for left, right, low, high in zip(mark.left, mark.right, mark.low, mark.high, strict=True):
        if high > low:
            x, y = x_of(left), y_of(high)
            boxes.append(_box(x, y, x_of(right) - x, y_of(low) - y, mark.series, name, palette))
    return "".join(boxes)


def _line(
    mark: Line, x_of: Callable[[float], float], y_of: Callable[[float], float], palette: Palette
) -> str:
    style, colour = STYLES[mark.series], palette(mark.series)
    points = [(x_of(x), y_of(y)) for x, y in zip(mark.x, mark.y, strict=True)]
    body = ""
    if mark.line and len(points) > 1:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        body = f'<path d="M{path}"{_stroke(style.dash, colour, 1.8)}/>'
    if style.marker:
        size = 3.4 if len(points) <= 60 else 2.4
        body += "".join(
            _marker(style.marker, x, y, colour, style.filled, palette, size) for x, y in points
        )
    return body


def _whiskers(
    mark: Whiskers, x_of: Callable[[float], float], y_of: Callable[[float], float], palette: Palette
) -> str:
    path = "".join(
        f"M{x_of(x) - 2.5:.1f} {y_of(low):.1f}h5m-2.5 0V{y_of(high):.1f}m-2.5 0h5"
        for x, low, high in zip(mark.x, mark.low, mark.high, strict=True)
    )
    return f'<path d="{path}"{_stroke((), palette(mark.series), 1.1)}/>' if path else ""


def _band(
    mark: Band, x_of: Callable[[float], float], y_of: Callable[[float], float], palette: Palette
) -> str:
    below = [(x_of(x), y_of(y)) for x, y in zip(mark.x, mark.low, strict=True)]
    above = [(x_of(x), y_of(y)) for x, y in zip(mark.x, mark.high, strict=True)]
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*below, *above[::-1]])
    return f'<polygon points="{corners}" fill="{palette(mark.series)}" fill-opacity="0.15"/>'


def _level(mark: Level, y: float, left: float, right: float, palette: Palette) -> str:
    style = STYLES[mark.series]
    line = _stroke(style.dash, palette(mark.series), 1.6)
    return f'<path d="M{left:g} {y:.1f}H{right:g}"{line}/>'


def _stroke(dash: Sequence[float], colour: str, width: float) -> str:
    dashes = f";stroke-dasharray:{' '.join(f'{d:g}' for d in dash)}" if dash else ""
    return f' style="stroke:{colour};stroke-width:{width:g}{dashes}"'


_SHAPES = {
    "s": "M-1-1H1V1H-1Z",
    "^": "M0-1.2L1.2 1H-1.2Z",
    "v": "M0 1.2L1.2-1H-1.2Z",
    "D": "M0-1.3L1.3 0L0 1.3L-1.3 0Z",
    "P": "M-.45-1.2H.45V-.45H1.2V.45H.45V1.2H-.45V.45H-1.2V-.45H-.45Z",
    "X": "M-1.1-.6L-.6-1.1L0-.5L.6-1.1L1.1-.6L.5 0L1.1 .6L.6 1.1L0 .5L-.6 1.1L-1.1 .6L-.5 0Z",
    "*": "M0-1.4L.4-.45L1.35-.4L.6.2L.85 1.15L0 .6L-.85 1.15L-.6.2L-1.35-.4L-.4-.45Z",
}


def _marker(
    marker: str, x: float, y: float, colour: str, filled: bool, palette: Palette, size: float
) -> str:
    fill = colour if filled else palette("paper")
    if marker == "o":
        look = f"fill:{fill};stroke:{colour};stroke-width:1.4"
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:g}" style="{look}"/>'
    look = f"fill:{fill};stroke:{colour};stroke-width:{1.4 / size:.2g}"
    return (
        f'<path transform="translate({x:.1f} {y:.1f})scale({size:g})" d="{_SHAPES[marker]}" '
        f'style="{look}"/>'
    )
