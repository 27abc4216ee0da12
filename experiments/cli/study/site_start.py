"""Run a site of an accepted study: it answers releases from rows that stay here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.cli.parameters import Csv
from fedcal.experiments.report.terminal import console

EXAMPLES = ("fedcal site start alder/", "fedcal site start alder/ 2027Q1.csv")


def command(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="This site's folder.")],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[ROWS]", help="Rows to use from now on (default: the current ones)."
        ),
    ] = None,
    *,
    csv: Csv = None,
) -> None:
    """Run it until it is stopped; a file of rows that changes is read anew."""
    from fedcal.experiments.study.site_side import start

    # what goes into a file or a container's log tells of no rows
    to = console(stderr=True)
    start(kit, data, to.print if sys.stderr.isatty() else lambda line: None, csv)
