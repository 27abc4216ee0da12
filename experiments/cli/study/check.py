"""Check what a study costs and what it will show, from public numbers; no site is contacted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.cli.parameters import Json
from fedcal.experiments.report.terminal import console
from fedcal.experiments.runs.files import to_json

EXAMPLES = ("fedcal study check sepsis.toml",)


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study's file.")],
    json: Json = False,
) -> None:
    """Say it."""
    from fedcal.experiments.study.forecast import check
    from fedcal.experiments.study.study_file import Study

    forecast = check(Study.read(file))
    if json:
        print(to_json(forecast), end="")
    else:
        console().print("\n".join(forecast["sentences"]))
