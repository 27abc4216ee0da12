"""What a site of a study has accepted, answered and spent, and what it does next, in one screen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedcal.experiments.cli.parameters import Json
from fedcal.experiments.report.tables import TextTable, print_table
from fedcal.experiments.report.terminal import console
from fedcal.experiments.runs.files import to_json
from fedcal.secure_aggregation.roster import in_groups

EXAMPLES = ("fedcal site status alder/",)

_SHOWN = 12
"""Answers on the screen; --json has all."""


def command(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="This site's folder.")],
    *,
    json: Json = False,
) -> None:
    """Show it."""
    from fedcal.experiments.study.site_side import status

    found = status(kit)
    if json:
        print(to_json(found), end="")
        return
    to = console()
    for name, value in _facts(found).items():
        to.print(f"{name}: {value}")
    if jobs := found["answered"][-_SHOWN:]:
        rows = [
            (job["when"][:16].replace("T", " "), job["asked by"], f"{job['epsilon']}", job["state"])
            for job in jobs
        ]
        columns = ("answered (UTC)", "asked by", "epsilon", "state")
        print_table(to, TextTable(columns, rows, left=(0, 1, 3)), edge=True)
    for line in found["refused"]:
        to.print(line)
    if found["release"] is not None and found["rows"] is not None:
        to.print(
            f"to recalibrate at home: fedcal site recalibrate --release {found['release']} "
            f"{found['rows']['data']} --site {found['site']} --out at-home"
        )
    to.print(f"next: {found['next']}")


def _facts(found: dict[str, Any]) -> dict[str, str]:
    rows, epsilon = found["rows"], found["epsilon"]
    read = "has not joined"
    if rows is not None:
        read = f"{rows['data']}, " + (
            "not read yet" if rows["read"] is None else f"read {rows['read'][:16]}"
        )
        read += ", changed since" * rows["changed since"] + ", not there" * (not rows["there"])
    accepted = "no" if found["digest"] is None else in_groups(found["digest"])
    return {
        "study": f"{found['study']}, until {found['until']}",
        "site": f"{found['site']}, {'running' if found['running'] else 'not running'}",
        "asked by": found["server"],
        "accepted digest": accepted,
        "rows": read,
        "epsilon": f"{epsilon['spent']:g} spent, {epsilon['left']:g} left, "
        f"{epsilon['release']:g} a release",
        **({"last in its log": found["log"]} if found["log"] else {}),
        **({"records": found["records"]} if found["records"] else {}),
    }
