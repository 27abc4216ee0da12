"""Show what a site of a study has accepted and spent, and its next step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.cli.parameters import Json
from fedcal.experiments.report.tables import TextTable, print_table
from fedcal.experiments.report.terminal import console
from fedcal.experiments.runs.files import to_json
from fedcal.secure_aggregation.roster import in_words

EXAMPLES = ("fedcal site status alder/",)


def command(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="This site's folder.")],
    *,
    json: Json = False,
) -> None:
    """Show it."""
    from fedcal.experiments.study.site_side import status

    state = status(kit)
    if json:
        print(to_json(state), end="")
        return
    jobs, refused, last = (state.pop(name) for name in ("answered", "refused", "next"))
    shown = {name: value for name, value in state.items() if value is not None}
    shown["epsilon"] = ", ".join(f"{value:g} {name}" for name, value in shown["epsilon"].items())
    shown["running"] = "yes" if shown["running"] else "no"
    if "digest" in shown:
        shown["digest"] = in_words(shown["digest"])
    to = console()
    to.print("\n".join(f"{name}: {value}" for name, value in shown.items()))
    if jobs:
        rows = [[str(entry) for entry in job.values()] for job in jobs[-12:]]  # --json has all
        print_table(to, TextTable(tuple(jobs[0]), rows, left=(0, 1, 3)), edge=True)
    to.print("\n".join([*refused, f"next: {last}"]))
