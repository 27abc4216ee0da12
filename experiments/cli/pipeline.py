"""Train, recalibrate, make prediction sets and evaluate under one budget, from a file: one ledger,
one report.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.cli.parameters import FILES, Json, Overwrite, Quiet, other
from fedcal.experiments.report.tables import TextTable, of_part, print_table
from fedcal.experiments.report.terminal import SHOWN, console, headings, progress, shown
from fedcal.experiments.runs.files import to_json

EXAMPLES = ("fedcal pipeline pipeline.toml --out run",)


def command(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.toml", help="A table for each stage; see the guide.")
    ],
    out: Annotated[
        Path | None,
        other(FILES, "Folder for all stages (default: CONFIG); finished stages are not run again."),
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run and show it."""
    from fedcal.experiments.pipeline.config import load_pipeline
    from fedcal.experiments.pipeline.report import budget_tables, results_of, tested, warnings_of
    from fedcal.experiments.pipeline.run import run
    from fedcal.experiments.pipeline.settle import settle

    asked = load_pipeline(config)
    folder = Path(config.stem) if out is None else out
    with progress("settling the budget", quiet=quiet) as steps:
        settled = settle(asked)

        def moved(name: str, done: int, total: int) -> None:
            steps(done, total, name)

        record = run(settled, folder, moved, overwrite=overwrite)
    if json:
        print(to_json(record), end="")
        return
    if quiet:
        return
    to = console()
    for table in budget_tables(record):
        print_table(to, of_part(table), edge=True)
    if looks := tested(record):
        rows = [(name, *(shown(key, one[key]) for key in SHOWN)) for name, one in looks.items()]
        named = headings(results_of(record, "recalibrate").get("score", ""))
        print_table(to, TextTable(("test rows", *named.values()), rows), edge=True)
    for sentence in (*warnings_of(record), *record["statement"]):
        to.print(sentence)
    to.print(f"written to {folder}: {folder / 'report.html'}")
