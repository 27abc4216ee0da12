"""Panels on a page: Matplotlib's SVG, small, its letters and colours the page's own."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping

from fedcal.experiments.figures.drawing import draw_key, draw_panel, svg_of
from fedcal.experiments.figures.panel import HUES, Panel

Palette = Callable[[str], str]
"""One of `HUES` -> a CSS colour."""

_FONT_SIZE = 7.6  # units of a panel, which is 158 of them wide


def variable(name: str) -> str:
    """The palette of the report: a CSS custom property for each name."""
    return f"var(--{name})"


def fixed(name: str) -> str:
    """The palette where no style sheet is at hand: text as around it, series in mid tones."""
    return "currentColor" if name == "ink" else HUES[name][0]


def panel_svg(panel: Panel, name: str, palette: Palette = variable) -> str:
    """One panel.

    Parameters
    ----------
    panel : what to draw
    name : prefix of the ids in it, unique on the page
    palette : where colours come from
    """
    look = {"class": "panel", "role": "img", "aria-label": panel.said}
    return _inline(svg_of(draw_panel(panel)), name, look, palette)


def key_svg(series: str, name: str, palette: Palette = variable, bars: bool = False) -> str:
    """The sample of a series for a legend."""
    look = {"class": "key", "width": "34", "height": "14", "aria-hidden": "true"}
    return _inline(svg_of(draw_key(series, bars)), name, look, palette)


def _inline(text: str, name: str, look: Mapping[str, str], palette: Palette) -> str:
    """Matplotlib's SVG as an element of a page."""
    referred = dict.fromkeys(re.findall(r"""(?:url\(|href=")#(\w+)""", text))
    swaps = {f"#{old}": f"#{name}-{k}" for k, old in enumerate(referred)}
    swaps |= {light: palette(hue) for hue, (light, _) in HUES.items()}
    root = ET.fromstring(text)
    svg = ET.Element("svg", {"viewBox": root.attrib["viewBox"], **look})
    svg.set("font-size", str(_FONT_SIZE))
    svg.set("style", f"fill:{palette('ink')};stroke-linejoin:round")
    svg.extend(child for element in root for child in _plain(element, swaps))
    return ET.tostring(svg, "unicode")


def _plain(element: ET.Element, swaps: Mapping[str, str]) -> list[ET.Element]:
    """An element without what a page has no use for: fonts, names, groups; its words as they are.

    Parameters
    ----------
    swaps : "#name" -> what stands there on the page
    """
    tag = element.tag.rpartition("}")[2]
    plain = ET.Element(tag)
    plain.text = element.text if tag == "text" else None  # others hold line breaks
    for long, given in element.attrib.items():
        key, value = long.rpartition("}")[2], " ".join(given.split())
        value = re.sub(r"#\w+", lambda found: swaps.get(found[0], found[0]), value)
        value = re.sub(r"(\.\d\d)\d+", r"\1", value)
        if key == "id":
            value = swaps.get(f"#{value}", "").removeprefix("#")
        elif key == "style":
            parts = [p for p in value.split("; ") if not p.startswith("font")]
            value = ";".join(p.replace(": ", ":", 1) for p in parts)
        elif key == "fill":
            key, value = "style", f"fill:{value}"
        if value and not value.startswith("rotate(-0 "):
            plain.set(key, value)
    plain.extend(child for inner in element for child in _plain(inner, swaps))
    if tag == "g":
        looks = {child.get("style") for child in plain}
        if len(plain) > 1 and len(looks) == 1 and plain[0].tag == "use":
            plain.set("style", str(plain[0].attrib["style"]))
            for child in plain:
                del child.attrib["style"]
        elif not plain.attrib:
            return list(plain)
    empty = tag in ("defs", "g") and not len(plain)
    return [] if empty or tag in ("metadata", "style") else [plain]
