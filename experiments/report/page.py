"""From a context to a file: templates, files of a result folder, inline figures."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedcal.core import pages
from fedcal.core.errors import FedcalError, InputError, system_errors
from fedcal.experiments.report import shown, tables
from fedcal.experiments.report.figures import drawing, style
from fedcal.storage.atomic import whole_file

FILE = "report.html"
MAX_BYTES = 2**28

MOST_SENTENCES = 3
"""Of a headline in bold type; what it says more stands below."""


def render(template: str, **context: Any) -> str:
    """Fill in a template of this package; every value is escaped.

    Raises ValueError if something that the template shows is missing, or of another kind.
    """
    import jinja2

    try:
        return str(_environment().get_template(template).render(**context))
    except jinja2.TemplateError as e:
        raise ValueError(e.message) from None


def title_and_rest(verdict: str) -> tuple[str, str]:
    """Split a headline into its first `MOST_SENTENCES` sentences and the others."""
    sentences = re.split(r"(?<=\.) (?=[A-Z])", verdict)
    return " ".join(sentences[:MOST_SENTENCES]), " ".join(sentences[MOST_SENTENCES:])


@lru_cache(maxsize=1)
def _environment() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"hues": style.HUES, "title_and_rest": title_and_rest}
    macros: Any = environment.get_template("table.html.j2").module
    environment.globals["html"] = macros.html
    return environment


def check_report() -> None:
    """Refuse, before anything is charged, to make a report that could not be written.

    Raises FedcalError if a package or a template is missing or damaged.
    """
    try:
        import matplotlib.figure  # noqa: F401  reports draw

        for name in _environment().list_templates():
            _environment().get_template(name)
    except Exception as e:  # noqa: BLE001  of whatever kind: it would come after the charge
        raise FedcalError(f"no report could be written: {type(e).__name__}: {e}") from None


def write_page(path: Path, template: str, **context: Any) -> None:
    """Write a filled-in template; the whole file or what was there before."""
    with whole_file(path) as file:
        file.write(render(template, **context).encode())


def write_with_figures(
    folder: Path, template: str, context: Mapping[str, Any], sheets: Mapping[str, drawing.Sheet]
) -> Path:
    """Write a filled-in template as `report.html`, and each sheet as PNG and SVG beside it."""
    files = drawing.save_sheets(sheets, folder)
    write_page(folder / FILE, template, figures=files, **context)
    return folder / FILE


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


def figure(
    sheet: drawing.Sheet, name: str, palette: drawing.Palette = drawing.variable
) -> dict[str, Any]:
    """Convert a sheet for the template: panels as {title, note, svg}, the legend as {text, svg}.

    The markup is made here from numbers and escaped words, so it is marked as safe.
    """
    from markupsafe import Markup

    safe: Callable[[str], Any] = Markup
    return {
        "panels": [
            {"title": panel.title, "note": panel.note, "svg": safe(svg)}
            for panel, svg in zip(
                sheet.panels, drawing.panel_svgs(sheet, name, palette), strict=True
            )
        ],
        "legend": [
            {"text": text, "svg": safe(drawing.key_svg(series, f"{name}-l{i}", palette))}
            for i, (series, text) in enumerate(sheet.legend)
        ],
        "title": sheet.title,
        "columns": sheet.columns,
    }


COMMON = ("schema", "method", "config", "privacy", "communication", "seconds", "versions")
"""Keys of `result.json` of every run; the others are what its artifact says of itself."""


def sections(
    parts: Sequence[pages.Part],
    name: str = "p",
    palette: drawing.Palette = drawing.variable,
    sheets: Iterable[drawing.Sheet] | None = None,
) -> list[dict[str, Any]]:
    """Each part for the template: {title, note, table} or {title, note, figure}.

    Parameters
    ----------
    parts
        from top to bottom
    name
        prefix of ids, unique on the page
    palette
        where colours come from
    sheets
        the figures of those that are no tables, where they are drawn already
    """
    content, drawn = [], None if sheets is None else iter(sheets)
    for k, part in enumerate(parts):
        section: dict[str, Any] = {"title": part.title, "note": part.note}
        if isinstance(part, pages.Table):
            section["table"] = tables.of_part(part)
        else:
            sheet = shown.part_sheet(part, part.title) if drawn is None else next(drawn)
            section["forest"] = isinstance(part, pages.Intervals)
            section["figure"] = figure(sheet, f"{name}{k}", palette)
        content.append(section)
    return content


def numbers_of(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the plain numbers of an artifact's result, and those `after` it on test rows."""
    numbers = {**result, **(result.get("after") or {})}
    return [
        (key.replace("_", " "), pages.number(value))
        for key, value in numbers.items()
        if key not in COMMON and isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
