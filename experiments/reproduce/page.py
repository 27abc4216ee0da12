"""The page of an experiment: our numbers beside the paper's, one file that reads offline."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcal.atomic import whole_file
from fedcal.experiments.figures.panel import STYLES
from fedcal.experiments.report import page as report
from fedcal.experiments.reproduce.spec import GridExperiment, RowsExperiment
from fedcal.experiments.result import versions
from fedcal.experiments.show.tables import html

if TYPE_CHECKING:
    from fedcal.experiments.reproduce.result import Reproduction


DRAWN = {
    GridExperiment: "Whiskers are one standard deviation over seeds; lines across are the model as "
    "it is and calibrators of all rows in one place.",
    RowsExperiment: "Bands, where there are any, are one standard deviation to either side.",
}
"""What stands above a figure."""


def write_page(result: Reproduction, path: Path) -> None:
    """Write the page; the whole file or what was there before."""
    with whole_file(path) as file:
        file.write(render(result).encode())


def render(result: Reproduction) -> str:
    """The page as text; every value in it is escaped."""
    sheet = result.sheet
    template = _environment().get_template("reproduction.html.j2")
    text: str = template.render(
        styles=STYLES,
        title=result.experiment.title,
        name=result.experiment.name,
        verdict=verdict(result),
        blocks=result.blocks,
        printed=result.printed,
        legend=result.legend,
        html=html,
        sheet=None if sheet is None else report.figure(sheet, "s"),
        drawn=DRAWN[type(result.experiment)],
        verdicts=result.verdicts,
        notes=result.experiment.notes,
        statement=result.statement,
        failures=result.failures,
        versions=versions(),
    )
    return text


def verdict(result: Reproduction) -> str:
    """The headline: how many claims hold."""
    told = [v for v in result.verdicts if v.holds is not None]
    if not told:
        return result.experiment.title
    holding = sum(bool(v.holds) for v in told)
    return f"{holding} of {len(told)} claims hold everywhere here."


@lru_cache(maxsize=1)
def _environment() -> Any:
    """Templates of this package, on the base of the reports'."""
    import jinja2

    folders = [Path(__file__).parent, Path(report.__file__).parent]
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder / "templates" for folder in folders]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
