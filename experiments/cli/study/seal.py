"""Enrol the sites of a study from their .join files, and sign it; sites compare its digest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.report.terminal import console

EXAMPLES = ("fedcal study seal sepsis.toml *.join",)


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study's file.")],
    joins: Annotated[
        list[Path],
        typer.Argument(metavar="SITE.join...", help="The files that all sites sent back."),
    ],
) -> None:
    """Write the sealed study, and say its digest."""
    from fedcal.experiments.study.kits import seal

    console().print("\n".join(seal(file, joins)))
