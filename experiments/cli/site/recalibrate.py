"""Recalibrate a model at this site, from its own rows and a release of the other sites.

The site's rows are labelled; the release is private. Nothing leaves the machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.core import pages
from fedcal.core.classes import names_in
from fedcal.experiments.cli.parameters import FILES, Csv, Overwrite, other
from fedcal.experiments.cli.site.start import ROWS
from fedcal.experiments.report.tables import of_part, print_table
from fedcal.experiments.report.terminal import console
from fedcal.experiments.runs.folders import AT_HOME, claim

EXAMPLES = ("fedcal site recalibrate --release run/prior.npz rows.csv --site Cleveland --out home",)


def command(
    data: Annotated[str, typer.Argument(metavar="ROWS", help="This site's labelled scores.")],
    *,
    release: Annotated[Path, other(ROWS, "prior.npz of fedprior, or release.npz of evaluate.")],
    site: Annotated[
        str | None, other(ROWS, "Name of this site in the release, so that its rows count once.")
    ] = None,
    class_names: Annotated[str | None, other(ROWS, "Comma-separated names of the classes.")] = None,
    positive: Annotated[str | None, other(ROWS, "Positive class of two: that of column 1.")] = None,
    csv: Csv = None,
    out: Annotated[
        Path | None, other(FILES, "Folder for the result, readable by this user only.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Read, fit, judge, and show it."""
    from fedcal.experiments.deploy.at_home import recalibrate

    if out is not None:
        claim(out, AT_HOME, overwrite=overwrite)
    names = None if class_names is None else names_in(class_names)
    result = recalibrate(release, data, site, names, positive, csv)
    if out is not None:
        result.save(out)
    to = console()
    to.print(result.told["verdict"])
    for part in result.parts:
        if isinstance(part, pages.Table):
            print_table(to, of_part(part), edge=True)
            to.print(part.note)
    to.print("\n".join(result.told["statement"]))
    if out is not None:
        to.print(f"written to {out}")
