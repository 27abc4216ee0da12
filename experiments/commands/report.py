"""`fedcal report`: the report of a result folder again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.errors import InputError
from fedcal.experiments import report
from fedcal.experiments.commands.output import show_written
from fedcal.experiments.commands.parameters import Json, Quiet

EXAMPLES = ("fedcal report run",)


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Of simulate or compare.")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write it."""
    if (folder / "compare.json").is_file():
        written = report.write_comparison_report(folder)
    elif (folder / "result.json").is_file():
        written = report.write_report(folder)
    elif (folder / "rows.jsonl").is_file():
        raise InputError(
            f"{folder} holds an unfinished comparison; finish it: "
            f"fedcal compare --out {folder} --resume"
        )
    else:
        raise InputError(
            f"{folder} holds neither result.json (of simulate) nor compare.json (of compare)"
        )
    show_written(written, quiet=quiet, as_json=json)
