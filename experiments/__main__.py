"""`python -m experiments NAME`: the papers' tables and figures, beside the papers' own numbers."""

import sys
from pathlib import Path
from typing import Any

from experiments.studies.run import run_reproduce
from fedcal.cli.main import exit_code_of, made_of
from fedcal.cli.parameters import Json, Overwrite, Quiet


def command(
    name: str | None = None,
    data: str | None = None,
    seeds: int | None = None,
    jobs: int | None = None,
    resume: bool = False,
    ray_address: str | None = None,
    out: Path | None = None,
    overwrite: Overwrite = False,
    check: bool = False,
    listed: bool = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a study and show its result.

    Arguments
    ---------
    name : [NAME]
        Name of a study (default: list all).

    Method, data and clients
    ------------------------
    data
        Comma-separated files of your own, each with its lines.

    Running
    -------
    seeds
        Number of seeds, from 0 on (default: the paper's).
    jobs
        Number of processes (default: the usable cores).
    resume
        Continue the study in --out.
    ray_address
        HOST:PORT of a Ray cluster, or local: runs are Ray tasks.

    Files and output
    ----------------
    out
        Folder for tables, figures, report and all runs.
    check
        Exit with code 1 if results are not as expected.
    listed : --list
        List the names.

    Examples
    --------
    python -m experiments --list
    python -m experiments maddock-table2 --seeds 1 --out again
    """
    how: Any = {"seeds": seeds, "jobs": jobs, "out": out, "resume": resume}
    how |= {"overwrite": overwrite, "ray_address": ray_address}
    run_reproduce(name, data, checked=check, listed=listed, quiet=quiet, as_json=json, **how)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    about = "Run a study of a paper and show its result beside the paper's own numbers."
    sys.exit(exit_code_of(arguments, made_of(command, "python -m experiments", about)))


if __name__ == "__main__":
    main()
