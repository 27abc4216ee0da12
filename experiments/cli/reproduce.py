"""Run the papers' tables and figures again, beside what the papers print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.cli.parameters import FILES, Json, Overwrite, Quiet, other
from fedcal.experiments.runs.options import DATA, RUNNING

EXAMPLES = ("fedcal reproduce --list", "fedcal reproduce maddock-table2 --seeds 1 --out again")


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Of the list; none = the list.")
    ] = None,
    data: Annotated[
        str | None, other(DATA, "Files that get lines of their own, with commas.")
    ] = None,
    seeds: Annotated[int | None, other(RUNNING, "How many, from 0 on (the paper's).")] = None,
    jobs: Annotated[int | None, other(RUNNING, "Processes (the usable cores).")] = None,
    resume: Annotated[bool, other(RUNNING, "Go on with what --out holds.", "--resume")] = False,
    ray_address: Annotated[
        str | None, other(RUNNING, "Of a Ray cluster, or local: runs are Ray tasks.")
    ] = None,
    out: Annotated[
        Path | None, other(FILES, "Folder for tables, figures, page and all runs.")
    ] = None,
    overwrite: Overwrite = False,
    check: Annotated[
        bool, other(FILES, "Exit code 1 where results are not as expected.", "--check")
    ] = False,
    listed: Annotated[bool, other(FILES, "List the names.", "--list")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run and show it."""
    from fedcal.experiments.research.studies.command import run_reproduce

    run_reproduce(
        name,
        data,
        seeds,
        jobs,
        out,
        resume=resume,
        overwrite=overwrite,
        ray_address=ray_address,
        check=check,
        listed=listed,
        quiet=quiet,
        as_json=json,
    )
