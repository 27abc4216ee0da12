"""Panels on a page: the figure's SVG cut into its axes, letters and colours the page's own."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedcal.experiments.report.figures.drawing import BOTTOM, TOP, WIDTH, Sheet, sample, svg_of
from fedcal.experiments.report.figures.style import FONT_SIZE, HUES, settings

Palette = Callable[[str], str]
"""One of `HUES` -> a CSS colour."""

_KEY = (0.47, 0.19)  # inches: size of a legend's sample
_CHANGES = (
    (r"\s+", " "),
    (r' xmlns(:\w+)?="[^"]*"|xlink:(?=href)|font[\w-]*: [^;"]*(; )?', ""),
    (r"(\.\d\d)\d+", r"\1"),
    (r' fill="([^"]*)"', r' style="fill: \1"'),  # an attribute cannot hold a variable
)
"""What is changed in each tag."""


def variable(name: str) -> str:
    """Return a CSS custom property of the report's palette."""
    return f"var(--{name})"


def fixed(name: str) -> str:
    """Return a colour for use without a style sheet: text inherits, series have mid tones."""
    return "currentColor" if name == "ink" else HUES[name][0]


def panel_svgs(sheet: Sheet, name: str, palette: Palette = variable) -> list[str]:
    """Every panel of a sheet, without its title, with all labels of its axes.

    They belong together: what several of them need is in the first.

    Parameters
    ----------
    sheet
        what to draw
    name
        prefix of the ids in it, unique on the page
    palette
        where colours come from
    """
    root = _own(sheet.svg, name, palette)
    width, height = sheet.figure.get_size_inches()
    svgs = []
    for k, (panel, ax) in enumerate(zip(sheet.panels, sheet.figure.axes, strict=True), 1):
        box = ax.get_position()
        corner = (box.x0 * width - panel.left, (1 - box.y1) * height - TOP)
        size = (panel.cell, TOP + WIDTH * panel.aspect + BOTTOM)
        look = {"role": "img", "aria-label": panel.said}
        shared = root.findall("defs") if k == 1 else []
        groups = root.findall(f".//g[@id='{name}-axes_{k}']")
        svgs.append(_svg("panel", (*corner, *size), look, [*shared, *groups]))
    return svgs


def key_svg(series: str, name: str, palette: Palette = variable) -> str:
    """Return the sample of a series for a legend."""
    from matplotlib.figure import Figure

    look: dict[str, Any] = {"loc": "center", "handlelength": 3.6, "handleheight": 1.3}
    with settings():
        figure = Figure(figsize=_KEY, facecolor="none")
        figure.legend([sample(series)], [""], frameon=False, markerscale=1.7, **look)
    root = _own(svg_of(figure), name, palette)
    size = {"width": "34", "height": "14", "aria-hidden": "true"}
    return _svg("key", (0, 0, *_KEY), size, root)


def _svg(
    css: str, box: Iterable[float], look: Mapping[str, str], content: Iterable[ET.Element]
) -> str:
    """Return an element of a page that shows a box (in inches) of a figure."""
    svg = ET.Element("svg", {"class": css, "viewBox": " ".join(f"{72 * v:.2f}" for v in box)})
    svg.attrib |= {**look, "font-size": str(FONT_SIZE), "style": "stroke-linejoin:round"}
    svg.extend(content)
    return ET.tostring(svg, "unicode")


def _own(svg: str, name: str, palette: Palette) -> ET.Element:
    """Matplotlib's SVG with ids and colours of the page, without fonts; its words as they are."""
    colours = {light: palette(hue) for hue, (light, _) in HUES.items()}

    def tag(match: re.Match[str]) -> str:
        text = re.sub(r"#(\w+)", lambda m: colours.get(m[0], f"#{name}-{m[1]}"), match[0])
        for pattern, instead in _CHANGES:
            text = re.sub(pattern, instead, text)
        return text.replace(' id="', f' id="{name}-')

    return ET.fromstring(re.sub(r"<[^<>]*>", tag, re.sub(r"(?s)<style.*?</style>", "", svg)))
