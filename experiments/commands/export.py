"""`fedcal export`: a calibrator for another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal import calibrators, export
from fedcal.experiments.commands.output import show_written
from fedcal.experiments.commands.parameters import Json, Quiet

EXAMPLES = ("fedcal export --calibrator run/calibrator.npz --out calibrator.onnx",)


def command(
    calibrator: Annotated[Path, typer.Option(help="A calibrator.npz of an earlier run.")],
    out: Annotated[Path, typer.Option(help="ONNX (.onnx) or a PyTorch program (.pt2).")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write it."""
    export.save(calibrators.load(calibrator), out)
    show_written(out, quiet=quiet, as_json=json)
