"""`python -m experiments NAME`: the papers' tables and figures, beside the papers' own numbers."""

import json as jsons
import sys
from pathlib import Path
from typing import Any

from experiments.studies.expected import check, minutes, restored, shipped
from experiments.studies.run import Reproduction, reproduce
from experiments.studies.spec import EXPERIMENTS, experiment
from fedcal.cli.main import exit_code_of, made_of
from fedcal.cli.parameters import Json, Overwrite, Quiet
from fedcal.core.checks import FedcalError, InputError
from fedcal.results.files import to_json
from fedcal.results.terminal import console, print_table, progress

ALL = "all"
"""Instead of a NAME."""


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
    """Run a study, or all of them, and show the result.

    Arguments
    ---------
    name : [NAME]
        Name of a study, or all, without those that --out holds (default: list all).

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
    python -m experiments all --out results --check
    """
    to, wrong = console(), list[str]()
    if name is None:
        if checked or out or seeds:
            raise InputError("give the NAME of a study; python -m experiments lists them")
        for known in EXPERIMENTS:
            to.print(f"{known:{max(map(len, EXPERIMENTS))}}  {experiment(known).about}")
        return

    def measured(study: str, **how: Any) -> Reproduction:
        with progress(study, quiet=quiet) as steps:
            return reproduce(study, jobs=jobs, out=out, progress=steps, **how)

    if name == ALL:
        if out is None or json or seeds:
            raise InputError("all studies need --out DIR, and take neither --json nor --seeds")
        chosen = [k for k in EXPERIMENTS if features or not experiment(k).features]
        done = [k for k in chosen if not overwrite and (out / f"{k}.json").is_file()]
        left = [k for k in chosen if k not in done]
        took = f"{sum(map(minutes, left)):.0f} processor minutes"
        took = took if all(map(minutes, left)) else f"at least {took}"
        to.print(f"{len(left)} studies, {took}; {len(done)} are in {out}")
        for other in [k for k in EXPERIMENTS if k not in chosen]:
            to.print(f"{other}: left out, needs --features FILE")
        for each in chosen:
            if each in done:
                rows = jsons.loads((out / f"{each}.json").read_text("utf-8"))
                result = restored(each, rows["cells"] or rows["rows"])
            else:
                own = features if experiment(each).features else None
                result = measured(each, features=own, overwrite=True)
            wrong += faults(result, checked=checked)
            if not quiet:
                held = sum(verdict.word == "holds" for verdict in result.verdicts)
                to.print(f"{each}: {held} of {len(result.verdicts)} claims hold")
    else:
        if checked:
            shipped(name)  # refuses what has none before it runs
        result = measured(name, seeds=seeds, features=features, overwrite=overwrite)
        if json:
            print(to_json(result.to_json()), end="")
        elif not quiet:
            for table in result.tables:
                print_table(to, table)
            for line in (*result.verdicts, *result.notes):
                to.print(f"- {line}")
            if out is not None:
                to.print(f"written to {out}")
        wrong = faults(result, checked=checked)
    if wrong:
        raise FedcalError(f"{name}: {len(wrong)} deviations from what is expected")
    if checked and not (quiet or json):
        print("all results are as expected")


def faults(result: Reproduction, *, checked: bool) -> list[str]:
    """Print and return failed runs and, if they are checked, what is not as expected."""
    wrong = [f"a run failed: {message}" for message in result.failures]
    if checked and not wrong:
        wrong = check(result, shipped(result.experiment.name))
    for line in wrong:
        console(stderr=True).print(f"fedcal: deviation: {result.experiment.name}: {line}")
    return wrong


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    about = "Run a study of a paper and show its result beside the paper's own numbers."
    sys.exit(exit_code_of(arguments, made_of(command, "python -m experiments", about)))


if __name__ == "__main__":
    main()
