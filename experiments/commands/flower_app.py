"""`fedcal flower-app`: the folder that `flwr run` needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.commands.output import show_written
from fedcal.experiments.commands.parameters import Json, Quiet
from fedcal.experiments.flower_app import write_app

EXAMPLES = ("fedcal flower-app app",)


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where `flwr run` will find it.")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write it."""
    show_written(write_app(folder), quiet=quiet, as_json=json)
