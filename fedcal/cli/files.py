"""The commands on files of results, and on what ships: they compute no run themselves."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcal.cli.parameters import Json, Overwrite, Quiet
from fedcal.core import checks
from fedcal.results import files, page, terminal
from fedcal.run import folders


def report(folder: Path, quiet: Quiet = False, json: Json = False) -> None:
    """Write the report of a result folder again: one HTML file that works offline.

    Arguments
    ---------
    folder : DIR
        Result folder of any command.

    Examples
    --------
    fedcal report run
    """
    finished = [kind for kind in folders.KINDS if (folder / kind.record).is_file()]
    if not finished and (folder / "outcome.json").is_file():
        from fedcal.run.simulation import finish

        written = finish(folder)
    elif finished[:1] == [folders.QUARTER]:
        from fedcal.sites.quarter_page import quarter_page

        written = folders.write_report(folder, make=quarter_page)
    else:
        written = folders.write_report(folder)
    terminal.show([f"written to {written}"], {"out": str(written)}, json=json, quiet=quiet)


OF_FLOAT32 = (
    "It takes float32, and gives the sets of float32 scores. Where many scores tie with the "
    "threshold, those that lose digits in float32 may get other sets: "
    "fedcal.export.to_onnx(sets, path, dtype='float64') takes all digits"
)
"""This is told of exported prediction sets."""


def export(
    calibrator: Path,
    out: Path,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Export a calibrator or prediction sets to ONNX.

    Options
    -------
    calibrator
        calibrator.npz or sets.npz.
    out
        ONNX file (.onnx) to write.

    Examples
    --------
    fedcal export --calibrator run/calibrator.npz --out calibrator.onnx
    """
    from fedcal import export
    from fedcal.cli.apply import fitted_in
    from fedcal.conformal import PredictionSets
    from fedcal.storage.artifact import form_of

    form = form_of(calibrator)
    checks.check_kept(f"exporting a {form}.npz")
    folders.claim_file(out, overwrite=overwrite)
    export.to_onnx(fitted_in(calibrator), out)
    lines = [f"written to {out}", *[OF_FLOAT32] * (form == PredictionSets.form)]
    terminal.show(lines, {"out": str(out)}, json=json, quiet=quiet)


def flower_app(folder: Path, quiet: Quiet = False, json: Json = False) -> None:
    """Write the folder that `flwr run` needs: a pyproject.toml with every key.

    Arguments
    ---------
    folder : DIR
        Folder for `flwr run`.

    Examples
    --------
    fedcal flower-app app
    """
    from fedcal.run.engines.flower_app import write_app

    written = write_app(folder)
    terminal.show([f"written to {written}"], {"out": str(written)}, json=json, quiet=quiet)


def datasets(quiet: Quiet = False, json: Json = False) -> None:
    """List the data sets that ship with fedcal.

    Examples
    --------
    fedcal datasets --json
    """
    from fedcal.datasets import catalogue, feature_sets

    shipped: dict[str, Sequence[Any]] = {"sets": catalogue(), "features": feature_sets()}
    if json:
        entries = [dataclasses.asdict(entry) for part in shipped.values() for entry in part]
        print(files.to_json(entries), end="")
    elif not quiet:
        terminal.console(markup=True).print(page.render("datasets.txt.j2", **shipped), end="")
