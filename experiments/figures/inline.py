"""Panels on a page: the figure's SVG cut into its axes, letters and colours the page's own."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedcal.experiments.figures.drawing import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Sheet,
    sample,
    svg_of,
)
from fedcal.experiments.figures.style import FONT_SIZE, HUES, settings

Palette = Callable[[str], str]
"""One of `HUES` -> a CSS colour."""

_KEY = (0.47, 0.19)  # inches: size of a legend's sample
_REFERENCE = re.compile(r"""(?:url\(|href=")#(\w+)""")


def variable(name: str) -> str:
    """The palette of the report: a CSS custom property for each name."""
    return f"var(--{name})"


def fixed(name: str) -> str:
    """The palette where no style sheet is at hand: text as around it, series in mid tones."""
    return "currentColor" if name == "ink" else HUES[name][0]


def panel_svgs(sheet: Sheet, name: str, palette: Palette = variable) -> list[str]:
    """Every panel of a sheet, without its title, with all labels of its axes.

    They belong together: what several of them need is in the first.

    Parameters
    ----------
    sheet : what to draw
    name : prefix of the ids in it, unique on the page
    palette : where colours come from
    """
    figure, inner = sheet.drawn
    for text in inner:
        text.set_visible(True)
    root = ET.fromstring(svg_of(figure))
    for text in inner:
        text.set_visible(False)
    groups = [e for e in root.iter() if str(e.get("id")).startswith("axes_")]
    _tidy(root, name, palette)
    groups[0].extend(root.findall("defs"))
    width, height = figure.get_size_inches()
    found = []
    for panel, ax, group in zip(sheet.panels, figure.axes, groups, strict=True):
        box = ax.get_position()
        corner = (box.x0 * width - LEFT, (1 - box.y1) * height - TOP)
        size = (LEFT + WIDTH + RIGHT, TOP + WIDTH * panel.aspect + BOTTOM)
        svg = _svg("panel", (*corner, *size), {"role": "img", "aria-label": panel.said}, [group])
        found.append(svg)
    return found


def key_svg(series: str, name: str, palette: Palette = variable) -> str:
    """The sample of a series for a legend."""
    from matplotlib.figure import Figure

    look: dict[str, Any] = {"loc": "center", "handlelength": 3.6, "handleheight": 1.3}
    with settings():
        figure = Figure(figsize=_KEY, facecolor="none")
        figure.legend([sample(series)], [""], frameon=False, markerscale=1.7, **look)
    root = ET.fromstring(svg_of(figure))
    _tidy(root, name, palette)
    size = {"width": "34", "height": "14", "aria-hidden": "true"}
    return _svg("key", (0, 0, *_KEY), size, root)


def _svg(
    css: str, box: Iterable[float], look: Mapping[str, str], content: Iterable[ET.Element]
) -> str:
    """An element of a page that shows a box (in inches) of a figure."""
    svg = ET.Element("svg", {"class": css, "viewBox": " ".join(f"{72 * v:.2f}" for v in box)})
    svg.attrib |= {**look, "font-size": str(FONT_SIZE), "style": "stroke-linejoin:round"}
    svg.extend(content)
    return ET.tostring(svg, "unicode")


def _tidy(root: ET.Element, name: str, palette: Palette) -> None:
    """Take off what a page has no use for: fonts, names, long numbers; its words as they are."""
    referred = set(_REFERENCE.findall(ET.tostring(root, "unicode")))
    colours = {light: palette(hue) for hue, (light, _) in HUES.items()}

    def own(found: re.Match[str]) -> str:
        return colours.get(found[0], f"#{name}-{found[0][1:]}")

    for element in root.iter():
        attributes = dict(element.attrib)
        element.attrib.clear()
        element.tag, element.tail = element.tag.rpartition("}")[2], None
        if element.tag != "text":
            element.text = None  # line breaks
        for long, given in attributes.items():
            key, value = long.rpartition("}")[2], re.sub(r"#\w+", own, " ".join(given.split()))
            value = re.sub(r"(\.\d\d)\d+", r"\1", value)
            if key == "style":
                parts = value.replace(": ", ":").split("; ")
                value = ";".join(part for part in parts if not part.startswith("font"))
            elif key == "fill":  # an attribute cannot hold a variable
                key, value = "style", f"fill:{value}"
            if key != "id":
                element.set(key, value)
            elif given in referred:
                element.set(key, f"{name}-{given}")
