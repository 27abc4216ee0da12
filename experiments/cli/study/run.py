"""Make one release of a study and its report, or rehearse it on a file without any site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import FILES, Csv, Json, Quiet, other
from fedcal.experiments.report.tables import TextTable, print_table
from fedcal.experiments.report.terminal import console, progress
from fedcal.experiments.runs.files import to_json

EXAMPLES = (
    "fedcal study run sepsis.toml rehearsal --simulate rows.csv",
    "fedcal study run sepsis.toml 2026Q4",
)


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study's file.")],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the release and of its folder.")
    ],
    *,
    simulate: Annotated[
        str | None,
        other(
            FILES,
            "Rehearse on a file with the rows of all sites; no site is contacted.",
            "--simulate",
        ),
    ] = None,
    csv: Csv = None,
    seed: Annotated[int | None, other(FILES, "Random seed of a rehearsal.")] = None,
    control: Annotated[
        str | None, other(FILES, "HOST:PORT of the server (default: the one that runs here).")
    ] = None,
    without_unready: Annotated[
        bool, other(FILES, "Continue without sites that cannot take part.", "--without-unready")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make it, and show what it says."""
    from fedcal.experiments.study.run import rehearse, release

    if simulate is None and seed is not None:
        raise InputError("--seed is for --simulate: the noise of real sites has no seed")
    if simulate is None and csv is not None:
        raise InputError("--csv is for --simulate: each site states the form of its own file")
    with progress(f"{name}: waiting for the sites", quiet=quiet) as steps:
        if simulate is not None:
            if control is not None or without_unready:
                raise InputError(
                    "--simulate contacts no site: leave out --control and --without-unready"
                )
            quarter = rehearse(file, name, simulate, seed=seed or 0, csv=csv)
        else:
            quarter = release(
                file,
                name,
                at=control,
                without_unready=without_unready,
                progress=lambda done, total: steps(done, total, name),
            )
    if json:
        print(to_json(quarter), end="")
    elif not quiet:
        _show(quarter, file.parent / name)


def _show(quarter: dict[str, Any], out: Path) -> None:
    to = console()
    rows = [(site, one["words"]) for site, one in quarter["sites"].items()]
    print_table(to, TextTable(("site", "verdict"), rows, left=(1,)), edge=True)
    to.print("\n".join(quarter["next"]))
    to.print(f"the report: {out / 'report.html'}")
