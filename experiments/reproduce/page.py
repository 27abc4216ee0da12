"""The page of an experiment: our numbers beside the paper's, one file that reads offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcal.experiments.report import page
from fedcal.experiments.result import versions

if TYPE_CHECKING:
    from fedcal.experiments.reproduce.result import Reproduction


DRAWN = {
    True: "Whiskers are one standard deviation over seeds; lines across are the model as "
    "it is and calibrators of all rows in one place.",
    False: "Bands, where there are any, are one standard deviation to either side.",
}
"""Whether it is a grid -> what stands above its figure."""


def write_page(result: Reproduction, path: Path) -> None:
    """Write the page; the whole file or what was there before."""
    page.write_page(path, "reproduction.html.j2", **context(result))


def context(result: Reproduction) -> dict[str, Any]:
    """Everything that the page shows."""
    sheet = result.sheet
    return {
        "title": result.experiment.title,
        "name": result.experiment.name,
        "verdict": verdict(result),
        "blocks": result.blocks,
        "printed": result.printed,
        "legend": result.legend,
        "sheet": None if sheet is None else page.figure(sheet, "s"),
        "drawn": DRAWN[bool(result.experiment.parts)],
        "verdicts": result.verdicts,
        "notes": result.experiment.notes,
        "statement": result.statement,
        "failures": result.failures,
        "versions": versions(),
    }


def verdict(result: Reproduction) -> str:
    """The headline: how many claims hold."""
    told = [v for v in result.verdicts if v.holds is not None]
    if not told:
        return result.experiment.title
    holding = sum(bool(v.holds) for v in told)
    return f"{holding} of {len(told)} claims hold everywhere here."
