"""Verify a quarter without rows: its signature, and every number of its report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.cli.parameters import FILES, other
from fedcal.experiments.report.terminal import console

EXAMPLES = ("fedcal study verify 2026Q4 --sealed alder/study.sealed",)


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the quarter.")],
    *,
    sealed: Annotated[Path | None, other(FILES, "Your own sealed study.")] = None,
) -> None:
    """Verify, and say what was."""
    from fedcal.experiments.study.verify import verify

    console().print("\n".join(verify(folder, sealed)))
