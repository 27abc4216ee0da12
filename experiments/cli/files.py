"""The commands on files of results, and on what ships: they compute no run themselves."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import Json, Overwrite, Quiet, argument, option
from fedcal.experiments.report import page
from fedcal.experiments.report.terminal import console
from fedcal.experiments.runs import files, folders

EXAMPLES = {
    "report": ("fedcal report run",),
    "export": ("fedcal export --calibrator run/calibrator.npz --out calibrator.onnx",),
    "flower_app": ("fedcal flower-app app", "fedcal flower-app app --family evaluate"),
    "datasets": ("fedcal datasets --json",),
}
"""Command lines of each command, for its `--help`."""


def report(
    folder: Path = argument("DIR", "Result folder of any command."),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write the report of a result folder again: one HTML file that works offline."""
    finished = any((folder / kind.record).is_file() for kind in folders.KINDS if kind.page)
    if not finished and (folder / "rows.jsonl").is_file():
        raise InputError(
            f"{folder} holds an unfinished comparison; finish it: "
            f"fedcal compare --out {folder} --resume"
        )
    if not finished and any((folder / name).is_file() for name in ("outcome.json", "run.json")):
        from fedcal.experiments.runs.simulation import finish

        written = finish(folder)
    else:
        written = folders.write_report(folder)
    _show_written(written, quiet=quiet, as_json=json)


OF_FLOAT32 = (
    "It takes float32, and gives the sets of float32 scores. Where many scores tie with the "
    "threshold, those that lose digits in float32 may get other sets: "
    "fedcal.export.save(sets, path, dtype='float64') takes all digits"
)
"""This is told of exported prediction sets."""


def export(
    calibrator: Path = option(..., None, "calibrator.npz, sets.npz or model.npz."),
    out: Path = option(..., None, "File to write: ONNX (.onnx) or a PyTorch program (.pt2)."),
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Export a calibrator or prediction sets to ONNX or PyTorch."""
    from fedcal import export
    from fedcal.conformal import PredictionSets
    from fedcal.experiments.cli.apply import fitted_in
    from fedcal.storage.artifact import form_of
    from fedcal.training.networks import TrainedModel, load_model

    folders.claim_file(out, overwrite=overwrite)
    if (form := form_of(calibrator)) == TrainedModel.form:
        export.save_model(load_model(calibrator), out)
    else:
        export.save(fitted_in(calibrator), out)
    _show_written(out, quiet=quiet, as_json=json)
    if form == PredictionSets.form and not (quiet or json):
        console().print(OF_FLOAT32)


def flower_app(
    folder: Path = argument("DIR", "Folder for `flwr run`."),
    family: str = option(
        "calibrate", None, "Kind of app: calibrate | evaluate | conformal | personal | train."
    ),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write the folder that `flwr run` needs: a pyproject.toml with every key."""
    from fedcal.experiments.deploy.flower_app import write_app

    _show_written(write_app(folder, family), quiet=quiet, as_json=json)


def datasets(quiet: Quiet = False, json: Json = False) -> None:
    """List the data sets that ship with fedcal."""
    from fedcal import datasets

    shipped: dict[str, Sequence[Any]] = {"sets": datasets.catalogue()}
    shipped["features"] = datasets.feature_sets()
    if json:
        entries = [dataclasses.asdict(entry) for part in shipped.values() for entry in part]
        print(files.to_json(entries), end="")
    elif not quiet:
        console(markup=True).print(page.render("datasets.txt.j2", **shipped), end="")


def _show_written(path: Path, *, quiet: bool, as_json: bool) -> None:
    """Show where a file was written."""
    if as_json:
        print(files.to_json({"out": str(path)}), end="")
    elif not quiet:
        console().print(f"written to {path}")
