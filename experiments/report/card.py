"""Small cards for notebooks: self-contained, in the notebook's own colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

from fedcal.experiments.figures.diagrams import diagram
from fedcal.experiments.figures.panel import Sheet
from fedcal.experiments.figures.svg import fixed
from fedcal.experiments.report import words
from fedcal.experiments.report.page import figure, render
from fedcal.metrics import Reliability


def result_card(result: dict[str, Any], reliability: Mapping[str, Reliability]) -> str:
    """One run: verdict, metrics before and after, two reliability diagrams, the guarantee.

    Parameters
    ----------
    result : the content of `result.json`
    reliability : "before", "after"
    """
    name = f"k{crc32(repr((result['config'], result['after'])).encode()):x}"  # unique on a page
    panels = tuple(diagram(part, reliability[part]) for part in ("before", "after"))
    return render(
        "result_card.html.j2",
        title=f"{result['method']} on {result['config']['data']}",
        rows=words.metric_rows(result),
        few=words.few_rows(result, reliability["after"].rows),
        guarantee=result["privacy"]["statement"][0],
        panels=figure(Sheet("", 2, panels, ()), name, fixed)["panels"],
    )


def comparison_card(comparison: Mapping[str, Any]) -> str:
    """A comparison (the content of `compare.json`) as a compact table."""
    from fedcal.experiments.report.comparison import finished, table_groups

    cells = finished(comparison["cells"])
    return render("comparison_card.html.j2", groups=table_groups(cells), count=len(cells))
