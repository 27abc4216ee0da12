"""`python -m experiments NAME`: the papers' tables and figures, beside the papers' own numbers."""

import sys
from pathlib import Path
from typing import Any

from experiments.studies.expected import check, shipped
from experiments.studies.run import reproduce
from experiments.studies.spec import EXPERIMENTS, experiment
from fedcal.cli.main import exit_code_of, made_of
from fedcal.cli.parameters import Json, Overwrite, Quiet
from fedcal.core.checks import FedcalError, InputError
from fedcal.results.files import to_json
from fedcal.results.terminal import console, print_table, progress


def command(
    name: str | None = None,
    seeds: int | None = None,
    jobs: int | None = None,
    features: Path | None = None,
    out: Path | None = None,
    overwrite: Overwrite = False,
    checked: bool = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a study and show its result.

    Arguments
    ---------
    name : [NAME]
        Name of a study (default: list all).

    Running
    -------
    seeds
        Number of seeds, from 0 on (default: the paper's).
    jobs
        Number of processes (default: the usable cores).
    features
        File of features (.npz), for studies of data that do not ship.

    Files and output
    ----------------
    out
        Folder for tables, claims and rows.
    checked : --check
        Exit with code 1 if results are not as expected.

    Examples
    --------
    python -m experiments
    python -m experiments maddock-table2 --seeds 1 --out again
    """
    to = console()
    if name is None:
        if checked or out or seeds:
            raise InputError("give the NAME of a study; python -m experiments lists them")
        for known in EXPERIMENTS:
            to.print(f"{known:{max(map(len, EXPERIMENTS))}}  {experiment(known).about}")
        return
    experiment(name)
    expected = shipped(name) if checked else None
    with progress(name, quiet=quiet) as steps:
        files: dict[str, Any] = {"features": features, "out": out, "overwrite": overwrite}
        result = reproduce(name, seeds=seeds, jobs=jobs, progress=steps, **files)
    if json:
        print(to_json(result.to_json()), end="")
    elif not quiet:
        for table in result.tables:
            print_table(to, table)
        for line in (*result.verdicts, *result.notes):
            to.print(f"- {line}")
        if out is not None:
            to.print(f"written to {out}")
    if failures := result.failures:
        raise FedcalError(f"{len(failures)} runs failed, the first with: {failures[0]}")
    if expected is not None:
        for line in (wrong := check(result, expected)):
            console(stderr=True).print(f"fedcal: deviation: {line}")
        if wrong:
            raise FedcalError(f"{name}: {len(wrong)} deviations from what is expected")
        if not (quiet or json):
            print("all results are as expected")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    about = "Run a study of a paper and show its result beside the paper's own numbers."
    sys.exit(exit_code_of(arguments, made_of(command, "python -m experiments", about)))


if __name__ == "__main__":
    main()
