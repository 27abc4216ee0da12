"""Write the folder that `flwr run` needs: a pyproject.toml with every key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.cli.parameters import Json, Quiet, show_written

EXAMPLES = ("fedcal flower-app app", "fedcal flower-app app --family evaluate")


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for `flwr run`.")],
    family: Annotated[
        str, typer.Option(help="Kind of app: calibrate | evaluate | conformal | personal | train.")
    ] = "calibrate",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write it."""
    from fedcal.experiments.deploy.flower_app import write_app

    show_written(write_app(folder, family), quiet=quiet, as_json=json)
