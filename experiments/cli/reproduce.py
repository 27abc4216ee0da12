"""Reproduce the papers' tables and figures, beside the papers' own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.core.options import DATA, RUNNING
from fedcal.experiments.cli.parameters import FILES, Json, Overwrite, Quiet, other

EXAMPLES = ("fedcal reproduce --list", "fedcal reproduce maddock-table2 --seeds 1 --out again")


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of a study (default: list all).")
    ] = None,
    data: Annotated[
        str | None, other(DATA, "Comma-separated files of your own, each with its lines.")
    ] = None,
    seeds: Annotated[
        int | None, other(RUNNING, "Number of seeds, from 0 on (default: the paper's).")
    ] = None,
    jobs: Annotated[
        int | None, other(RUNNING, "Number of processes (default: the usable cores).")
    ] = None,
    resume: Annotated[bool, other(RUNNING, "Continue the study in --out.")] = False,
    ray_address: Annotated[
        str | None, other(RUNNING, "HOST:PORT of a Ray cluster, or local: runs are Ray tasks.")
    ] = None,
    out: Annotated[
        Path | None, other(FILES, "Folder for tables, figures, report and all runs.")
    ] = None,
    overwrite: Overwrite = False,
    check: Annotated[
        bool, other(FILES, "Exit with code 1 if results are not as expected.")
    ] = False,
    listed: Annotated[bool, other(FILES, "List the names.", "--list")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a study and show its result."""
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
