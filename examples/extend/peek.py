"""Show the contents of a calibrator's file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal import calibrators
from fedcal.experiments.cli.parameters import Json
from fedcal.experiments.report.terminal import console
from fedcal.experiments.runs.files import to_json

EXAMPLES = ("fedcal peek run/calibrator.npz",)


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The calibrator.npz.")],
    json: Json = False,
) -> None:
    """Show the calibrator."""
    loaded = calibrators.load(file)
    if json:
        print(
            to_json({"kind": loaded.kind, "classes": loaded.classes, "input": loaded.input}), end=""
        )
    else:
        console().print(f"{loaded.kind}, fitted on {loaded.input} of {loaded.classes} classes")
