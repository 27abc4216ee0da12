"""Show the contents of a calibrator's file."""

from pathlib import Path

from fedcal import calibrators
from fedcal.cli.parameters import Json
from fedcal.results import terminal


def command(file: Path, json: Json = False) -> None:
    """Show the calibrator.

    Arguments
    ---------
    file : FILE
        The calibrator.npz.

    Examples
    --------
    fedcal peek run/calibrator.npz
    """
    loaded = calibrators.load(file)
    record = {"kind": loaded.kind, "classes": loaded.classes, "input": loaded.input}
    line = f"{loaded.kind}, fitted on {loaded.input} of {loaded.classes} classes"
    terminal.show([line], record, json=json)
