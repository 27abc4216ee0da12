"""A page: a verdict, then parts in sections; one template shows all of them, one file holds it.

What every result gives a person: a verdict, parts, a record; and so cards, frames, plots.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from fedcal.core import checks, imports, pages
from fedcal.core.checks import FedcalError, InputError, system_errors
from fedcal.core.naming import called, listed, printable
from fedcal.metrics import names
from fedcal.results.figures import COLUMN_NAMES, drawing
from fedcal.results.figures.diagrams import drawn
from fedcal.storage.atomic import write_file

if TYPE_CHECKING:
    from pandas import DataFrame


Shown = pages.Part | drawing.Sheet
"""A part, or a figure that is drawn from more than a part holds."""

FILE = "report.html"
MAX_BYTES = 2**28

MOST_SENTENCES = 3
"""Number of sentences of a verdict in bold type; the others stand below."""


@dataclass(frozen=True)
class Section:
    """Parts below one heading; their own titles are headings below it.

    Attributes
    ----------
    css
        a class of the style sheet: "first" ends a printed page
    """

    title: str
    parts: Sequence[Shown]
    css: str = ""


@dataclass(frozen=True)
class Page:
    """All that a report shows of a result.

    Attributes
    ----------
    title
        what it is about
    verdict
        in words first
    sections
        from top to bottom; a part alone is a section under its own title
    tiles
        the most important numbers by name
    warnings
        sentences to read before anything else
    versions
        of packages
    banner
        a warning above the title
    about
        what titles of figures in files begin with
    """

    title: str
    verdict: str
    sections: Sequence[Section | Shown]
    tiles: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    banner: str = ""
    about: str = ""

    @cached_property
    def parts(self) -> list[tuple[Section, list[Any]]]:
        """Sections with their parts, of which figures are drawn as `Sheet`."""
        sections, number = [], itertools.count(1)
        for one in self.sections:
            section = one if isinstance(one, Section) else Section(one.title, [one])
            parts = [drawn(part, self.about) for part in section.parts]
            for k, part in enumerate(parts):
                if isinstance(part, drawing.Sheet) and not part.name:
                    parts[k] = replace(part, name=f"curve-{next(number)}")
            sections.append((section, parts))
        return sections

    @property
    def sheets(self) -> dict[str, drawing.Sheet]:
        """Figures by the names of their files."""
        parts = (part for _, parts in self.parts for part in parts)
        return {part.name: part for part in parts if isinstance(part, drawing.Sheet)}

    def figures(self) -> dict[str, drawing.Sheet]:
        """Figures by their own names or the titles of their parts, intervals before curves."""
        found = {}
        for section, parts in self.parts:
            for given, sheet in zip(section.parts, parts, strict=True):
                if isinstance(sheet, drawing.Sheet):
                    name = given.name if isinstance(given, drawing.Sheet) else given.title
                    found[name] = (isinstance(given, pages.Curve), sheet)
        return {name: found[name][1] for name in sorted(found, key=lambda name: found[name][0])}

    def html(
        self,
        files: Sequence[str] = (),
        card: bool = False,
        template: str = "page.html.j2",
        **more: Any,
    ) -> str:
        """Return a file of HTML that works offline, or a card for a notebook.

        Parameters
        ----------
        files
            names of those of the figures
        card
            a fragment without scripts, style sheet or headings, in colours of its own
        template, **more
            one that extends this page's, and what else it shows
        """
        sections: list[dict[str, Any]] = []
        for k, (section, parts) in enumerate(self.parts):
            name = f"k{crc32(repr((self.title, self.verdict, k)).encode()):x}" if card else f"s{k}"
            each = [_shown(part, section, f"{name}-{j}", card) for j, part in enumerate(parts)]
            half = section.css or ("half" if len(parts) == 1 and each[0].get("single") else "")
            slug = re.sub(r"\W+", "-", section.title.lower()).strip("-")
            place = f"{slug}-{k}" if not slug or any(s["id"] == slug for s in sections) else slug
            sections.append({"title": section.title, "id": place, "css": half, "parts": each})
        shown = "card.html.j2" if card else template
        return render(shown, page=self, sections=sections, files=files, **more)

    def write(self, folder: Path) -> Path:
        """Write `report.html`, and each figure as PNG and SVG beside it."""
        files = drawing.save_sheets(self.sheets, folder)
        files += [name for name in COLUMN_NAMES if (folder / name).exists()]
        write_file(folder / FILE, self.html(files))
        return folder / FILE


def _shown(part: Any, section: Section, name: str, card: bool) -> dict[str, Any]:
    """Return a part for the template."""
    heading = part.title if part.title != section.title else ""
    if isinstance(part, drawing.Sheet):
        return {"kind": "figure", "heading": "", "note": part.note, **figure(part, name, card)}
    if isinstance(part, pages.Table):
        return {"kind": "table", "heading": heading, **vars(part)}
    heading = "" if part.form == "fold" else heading
    return {"kind": "text", "heading": heading, "note": "", **vars(part)}


def figure(sheet: drawing.Sheet, name: str, card: bool) -> dict[str, Any]:
    """Return a sheet for the template: legend as (text, svg), figures as {title, note, svg}.

    A panel without a title stands below the one above it on the sheet. The markup is made here
    from numbers and escaped words, so it is marked as safe.
    """
    from markupsafe import Markup

    safe: Callable[[str], Any] = Markup
    figures: list[dict[str, Any]] = []
    svgs, keys = drawing.svgs(sheet, name, card)
    for k, (panel, svg) in enumerate(zip(sheet.panels, svgs, strict=True)):
        if k >= sheet.columns and not panel.title:
            figures[k - sheet.columns]["svg"] += safe(svg)
        else:
            figures.append({"title": panel.title, "note": panel.note, "svg": safe(svg)})
    legend = [(text, safe(key)) for (_, text), key in zip(sheet.legend, keys, strict=True)]
    forest, wide = sheet.left > drawing.LEFT, sheet.columns > 2
    css = "panels" if wide else "forest" if forest else ("one", "two")[sheet.columns - 1]
    single = len(sheet.panels) == 1
    return {"figures": figures, "legend": legend, "css": f"figures {css}", "single": single}


def render(template: str, **context: Any) -> str:
    """Fill in a template of this package; in HTML every value is escaped.

    Raises ValueError if something that the template shows is missing, or of another kind.
    """
    import jinja2

    try:
        return str(_template(template).render(**context))
    except jinja2.TemplateError as e:
        raise ValueError(e.message) from None


def words(template: str, **context: Any) -> dict[str, tuple[str, ...]]:
    """Return the texts of a template by name: `# name` in a line, then a paragraph a line."""
    blocks = re.split(r"^# (\w+)\n", render(f"{template}.txt.j2", **context), flags=re.MULTILINE)
    texts = (tuple(filter(None, map(str.strip, text.splitlines()))) for text in blocks[2::2])
    return dict(zip(blocks[1::2], texts, strict=True))


def block_lines(template: str, block: str, **context: Any) -> list[str]:
    """Return the lines of one block of a template; the others need not have their values."""
    made = _template(f"{template}.txt.j2")
    return "".join(made.blocks[block](made.new_context(context))).strip("\n").splitlines()


def title_and_rest(verdict: str) -> tuple[str, str]:
    """Split a headline into its first `MOST_SENTENCES` sentences and the others."""
    sentences = re.split(r"(?<=\.) (?=[A-Z])", verdict)
    return " ".join(sentences[:MOST_SENTENCES]), " ".join(sentences[MOST_SENTENCES:])


def _in_a_line(value: Any) -> str:
    return printable(re.sub(r"\s*\n\s*", " ", str(value)))


@lru_cache
def _template(name: str) -> Any:
    """Return a template; in texts (`.txt.j2`) no value begins a line, or ends one."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=not name.endswith((".txt.j2", ".toml.j2")),
        finalize=_in_a_line if name.endswith(".txt.j2") else None,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"hues": drawing.HUES, "title_and_rest": title_and_rest}
    environment.globals |= {"names": names, "number_of": pages.number, "called": called}
    environment.globals |= {"listed": listed}
    return environment.get_template(name)


def read_json(path: Path, kind: str = "", most: int = MAX_BYTES) -> Any:
    """Strict JSON; InputError for a file that is missing, huge, or something else.

    Parameters
    ----------
    kind
        a result, comparison, ... of schema 1 is asked for; "" = anything
    most
        bytes
    """
    content = _parsed(path, _read(path, most))
    if kind and (not isinstance(content, Mapping) or content.get("schema") != 1):
        raise InputError(f"{path} is not a fedcal {kind} of schema 1")
    return content


def read_json_lines(path: Path) -> list[Any]:
    """One JSON value a line; InputError likewise."""
    return [_parsed(path, line) for line in _read(path).splitlines()]


def _read(path: Path, most: int = MAX_BYTES) -> bytes:
    with system_errors(f"cannot read {path}"):
        if not path.is_file() and path.exists():  # a pipe would never end
            raise InputError(f"{path} is not a file")
        if path.stat().st_size > most:
            raise InputError(f"{path} is larger than {most >> 20} MiB")
        return path.read_bytes()


def _parsed(path: Path, text: bytes) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    def finite(number: str) -> float:
        if math.isinf(value := float(number)):
            raise ValueError(f"{number} is too large")
        return value

    try:
        return json.loads(text, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path} is not JSON: {e}") from None


@contextmanager
def reading(folder: Path, name: str) -> Iterator[None]:
    """Report files of a folder that do not fit together as bad input, in one line."""
    try:
        yield
    except FedcalError:
        raise
    except OSError as e:
        raise FedcalError(f"cannot write the report to {folder}: {e.strerror}") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as e:
        what = " ".join(f"{type(e).__name__}: {e}".split())
        raise InputError(f"{folder / name} does not hold what a report needs ({what})") from None


class Displayable(ABC):
    """A base of results. Who writes another kind of result writes no renderer.

    Attributes
    ----------
    title
        what the result is of
    verdict
        what it says, in words first
    parts
        of its page: tables, figures, texts
    record
        plain data: what its JSON file holds
    """

    @property
    @abstractmethod
    def title(self) -> str:
        """Return the title of its page."""

    @property
    @abstractmethod
    def verdict(self) -> str:
        """Return the result in sentences."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[Section | Shown]:
        """Return the parts of its page, from top to bottom."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""

    @property
    def record(self) -> dict[str, Any]:
        """All of it as plain data."""
        return self.to_json()

    @abstractmethod
    def _lines(self) -> Sequence[Mapping[str, Any]]:
        """Return the numbers of the result, by column."""

    def _card(self) -> Page:
        """Return what a notebook shows."""
        return Page(self.title, self.verdict, self.parts)

    def _repr_html_(self) -> str:
        return self._card().html(card=True)

    def to_frame(self) -> DataFrame:
        """Return the numbers as a pandas DataFrame; InputError without pandas or numbers."""
        pandas = imports.need("pandas", "frames", "to_frame")
        if not (lines := self._lines()):
            raise checks.InputError("this result has no numbers here: no rows judged it")
        frame: DataFrame = pandas.json_normalize(lines)
        return frame

    def plot(self, figure: str | None = None) -> Any:
        """Draw one of the figures, in colours that colour-blind people can tell apart.

        Parameters
        ----------
        figure : str, optional
            Which; a name that is none lists them. None = the first.

        Returns
        -------
        Axes, or array of Axes where there are several panels

        Raises
        ------
        InputError
            There is no such figure.
        """
        sheets = Page(self.title, "", self.parts, about=self.title).figures()
        if not sheets:
            raise checks.InputError("this result has no figure; to_frame() has its numbers")
        sheet = sheets[checks.one_of("figure", figure or next(iter(sheets)), sheets)]
        from matplotlib import pyplot

        axes = drawing.draw(sheet, on=pyplot.figure()).axes  # made under the user's settings
        return axes[0] if len(axes) == 1 else np.array(axes)


def lines_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the numbers of a `result.json`: a line for each metric of all rows, a group, a class.

    An interval is that of the value, or of the number after calibration.
    """
    if "after" not in result:
        parts = {"all rows": result, **result.get("groups", {})}
        return [
            {"rows": part, "of": key[8:] or "model", "metric": metric}
            | {name: one[name] for name in ("value", "low", "high")}
            for part, content in parts.items()
            for key, metrics in content.items()
            if key.startswith("metrics")
            for metric, one in metrics.items()
        ]
    covered, names = result.get("coverage_by", {}), result.get("class_names")
    ends = dict((result.get("intervals") or {}).get("after", {}))
    for one in covered.get("whole", {}).values():  # of all rows
        ends["coverage"] = (one["low"], one["high"])
    lines = [
        {
            "rows": "all rows",
            "metric": metric,
            "before": result["before"].get(metric),
            "after": value,
        }
        | dict(zip(("low", "high"), ends.get(metric, (None, None)), strict=True))
        for metric, value in result["after"].items()
    ]
    for by, parts in covered.items():
        for part, one in parts.items() if by != "whole" else ():
            which = names[int(part)] if names and by == "class" else part
            found = {"after": one["coverage"], "low": one["low"], "high": one["high"]}
            lines.append({"rows": f"{by} {which}", "metric": "coverage", **found})
    return lines
