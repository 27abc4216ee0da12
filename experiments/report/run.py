"""The report of one run, whatever it yields."""

from __future__ import annotations

from pathlib import Path

from fedcal.experiments.files import PAGE
from fedcal.experiments.report.artifact import write_artifact_report
from fedcal.experiments.report.simulation import write_calibrator_report


def write_report(folder: str | Path, home: Path | None = None) -> Path:
    """Write `report.html` and its figures (PNG, SVG) beside the result files in `folder`.

    Parameters
    ----------
    home : where the files will lie, if not in `folder`; paths in the report are relative to it

    Returns
    -------
    the path of the report

    Raises
    ------
    InputError
        A file is missing, or is not what a run of this version writes.
    FedcalError
        The folder cannot be written.
    """
    folder = Path(folder)
    write = write_artifact_report if (folder / PAGE).is_file() else write_calibrator_report
    return write(folder, home or folder)
