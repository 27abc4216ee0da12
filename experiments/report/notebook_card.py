"""Small cards for notebooks: self-contained, in the notebook's own colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from fedcal.core import pages
from fedcal.experiments.report import labels
from fedcal.experiments.report.artifact import sections
from fedcal.experiments.report.comparison import cells_table, finished
from fedcal.experiments.report.figures.diagrams import diagram
from fedcal.experiments.report.figures.drawing import Sheet
from fedcal.experiments.report.figures.inline_svg import fixed
from fedcal.experiments.report.headline import headline
from fedcal.experiments.report.page import figure, render
from fedcal.metrics import Reliability


def result_card(result: dict[str, Any], reliability: Mapping[str, Reliability]) -> str:
    """One run: metrics before and after, two reliability diagrams, the guarantee.

    Parameters
    ----------
    result
        the content of `result.json`
    reliability
        "before", "after"
    """
    few = labels.few_rows(result, reliability["after"].rows)
    panels = tuple(diagram(part, reliability[part]) for part in ("before", "after"))
    drawn = figure(Sheet("", 2, panels), _unique(result["config"], result["after"]), fixed)
    parts: list[dict[str, Any]] = [
        {"title": "", "table": labels.metric_table(result)},
        {"title": "", "figure": drawn},
    ]
    return _card(
        _title(result), parts, headline(result), *([few] if few else []), _guarantee(result)
    )


def artifact_card(result: Mapping[str, Any], parts: Sequence[pages.Part]) -> str:
    """One run that yields something else than a calibrator: its parts, and the guarantee."""
    shown = sections(parts, _unique(result["config"], parts), fixed)
    lines = (headline(result), *result.get("coverage_warnings", ()), _guarantee(result))
    return _card(_title(result), shown, *lines)


def comparison_card(comparison: Mapping[str, Any]) -> str:
    """Show a comparison (the content of `compare.json`) as a compact table."""
    cells = finished(comparison["cells"])
    parts = [{"title": "", "table": cells_table(cells)}]
    return _card(f"Comparison of {len(cells)} cells", parts)


def _card(title: str, parts: Sequence[Mapping[str, Any]], *lines: str) -> str:
    return render("card.html.j2", title=title, parts=parts, lines=lines)


def _title(result: Mapping[str, Any]) -> str:
    return f"{result['method']} on {result['config']['data']}"


def _guarantee(result: Mapping[str, Any]) -> str:
    sentence: str = result["privacy"]["statement"][0]
    return sentence


def _unique(*content: Any) -> str:
    """Return a prefix of ids, unique on a page."""
    return f"k{crc32(repr(content).encode()):x}"
