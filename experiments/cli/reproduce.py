"""Reproduce the papers' tables and figures, beside the papers' own numbers."""

from pathlib import Path
from typing import Any

from fedcal.core.options import DATA, RUNNING
from fedcal.experiments.cli.parameters import FILES, Json, Overwrite, Quiet, argument, option

EXAMPLES = ("fedcal reproduce --list", "fedcal reproduce maddock-table2 --seeds 1 --out again")


def command(
    name: str | None = argument("[NAME]", "Name of a study (default: list all).", default=None),
    data: str | None = option(
        None, DATA, "Comma-separated files of your own, each with its lines."
    ),
    seeds: int | None = option(None, RUNNING, "Number of seeds, from 0 on (default: the paper's)."),
    jobs: int | None = option(None, RUNNING, "Number of processes (default: the usable cores)."),
    resume: bool = option(False, RUNNING, "Continue the study in --out."),
    ray_address: str | None = option(
        None, RUNNING, "HOST:PORT of a Ray cluster, or local: runs are Ray tasks."
    ),
    out: Path | None = option(None, FILES, "Folder for tables, figures, report and all runs."),
    overwrite: Overwrite = False,
    check: bool = option(False, FILES, "Exit with code 1 if results are not as expected."),
    listed: bool = option(False, FILES, "List the names.", "--list"),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a study and show its result."""
    from fedcal.experiments.research.studies.command import run_reproduce

    how: Any = {"resume": resume, "overwrite": overwrite, "ray_address": ray_address}
    how |= {"check": check, "listed": listed, "quiet": quiet, "as_json": json}
    run_reproduce(name, data, seeds, jobs, out, **how)
