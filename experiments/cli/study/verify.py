"""Verify a quarter without data: its signature, and every number of its report from the release."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.report.terminal import console

EXAMPLES = ("fedcal study verify 2026Q4",)


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the quarter.")],
) -> None:
    """Verify, and say what was."""
    from fedcal.experiments.study.verify import verify

    console().print("\n".join(verify(folder)))
