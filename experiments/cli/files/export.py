"""Export a calibrator or prediction sets to ONNX or PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal import export
from fedcal.conformal import PredictionSets
from fedcal.experiments.cli.files.apply import fitted_in
from fedcal.experiments.cli.parameters import Json, Overwrite, Quiet, show_written
from fedcal.experiments.report.terminal import console
from fedcal.experiments.runs.folders import claim_file
from fedcal.storage.artifact import form_of
from fedcal.training.trained_model import TrainedModel, load_model

EXAMPLES = ("fedcal export --calibrator run/calibrator.npz --out calibrator.onnx",)


OF_FLOAT32 = (
    "It takes float32, and gives the sets of float32 scores. Where many scores tie with the "
    "threshold, those that lose digits in float32 may get other sets: "
    "fedcal.export.save(sets, path, dtype='float64') takes all digits"
)
"""This is told of exported prediction sets."""


def command(
    calibrator: Annotated[Path, typer.Option(help="calibrator.npz, sets.npz or model.npz.")],
    out: Annotated[
        Path, typer.Option(help="File to write: ONNX (.onnx) or a PyTorch program (.pt2).")
    ],
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write it."""
    claim_file(out, overwrite=overwrite)
    if (form := form_of(calibrator)) == TrainedModel.form:
        export.save_model(load_model(calibrator), out)
    else:
        export.save(fitted_in(calibrator), out)
    show_written(out, quiet=quiet, as_json=json)
    if form == PredictionSets.form and not (quiet or json):
        console().print(OF_FLOAT32)
