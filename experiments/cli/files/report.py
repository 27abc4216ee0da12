"""Write the report of a result folder again: one HTML file that works offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import Json, Quiet, show_written

EXAMPLES = ("fedcal report run",)


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Result folder of any command.")],
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write the report again."""
    from fedcal.experiments import report
    from fedcal.experiments.report.page import read_json, reading

    if (folder / "compare.json").is_file():
        written = report.write_comparison_report(folder)
    elif (folder / "result.json").is_file():
        at_home = "verdict" in read_json(folder / "result.json", "result")
        written = (report.write_reading_report if at_home else report.write_report)(folder)
    elif (folder / "training.json").is_file():
        written = report.write_training_report(folder)
    elif (folder / "study.json").is_file():
        from fedcal.experiments.study.quarter_page import write_quarter_page

        with reading(folder, "study.json"):
            written = write_quarter_page(folder, read_json(folder / "study.json", "quarter"))
    elif (folder / "reading.json").is_file():
        written = report.write_reading_report(folder)
    elif any((folder / name).is_file() for name in ("outcome.json", "run.json")):
        from fedcal.experiments.runs.simulation import finish

        written = finish(folder)
    elif (folder / "rows.jsonl").is_file():
        raise InputError(
            f"{folder} holds an unfinished comparison; finish it: "
            f"fedcal compare --out {folder} --resume"
        )
    else:
        raise InputError(
            f"{folder} holds no result.json (of simulate), compare.json, training.json, "
            "study.json or outcome.json (of flwr run)"
        )
    show_written(written, quiet=quiet, as_json=json)
