"""The commands of a site of a study: join, accept, start, status."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import FILES, Csv, Json, other
from fedcal.experiments.report.tables import TextTable, print_table
from fedcal.experiments.report.terminal import Stopped, console
from fedcal.experiments.runs.files import to_json
from fedcal.secure_aggregation.roster import in_words

EXAMPLES = {
    "join": ("fedcal site join alder/ rows.csv",),
    "accept": ("fedcal site accept alder/ sepsis.sealed",),
    "start": ("fedcal site start alder/", "fedcal site start alder/ 2027Q1.csv"),
    "status": ("fedcal site status alder/",),
}
"""Command lines of each command, for its `--help`."""


def join(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The folder from the coordinator.")],
    data: Annotated[
        str, typer.Argument(metavar="ROWS", help="This site's labelled scores, or module:function.")
    ],
    *,
    csv: Csv = None,
    new_keys: Annotated[
        bool,
        other(FILES, "Make new keys, if the old ones are lost or known to others.", "--new-keys"),
    ] = False,
    made_here: Annotated[
        bool,
        other(FILES, "Take over what this site made in the folder: it asks first.", "--made-here"),
    ] = False,
) -> None:
    """Join a study at a site: check its rows, make its keys, write the file to send back."""
    from fedcal.experiments.study.joining import Kit, join

    try:
        rows, warnings, made = join(kit, data, csv, new_keys=new_keys, adopt=made_here)
    except KeyboardInterrupt:
        raise Stopped(
            "interrupted; the same command continues, with the keys made so far"
        ) from None
    to = console()
    to.print("\n".join([rows.described(), *warnings]))
    to.print(
        f"{kit / 'home' / 'report.html'}: this site's own exact calibration, for its eyes alone.\n"
        f"{made}: send it to the coordinator. In it are two public keys, names and digests of "
        "classes and terms: nothing that comes from a row. The private keys stay in "
        f"{Kit.read(kit).own}, outside of {kit}: keep both.\n"
        f"Next: you get a sealed study; fedcal site accept {kit} FILE.sealed"
    )


def accept(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="This site's folder.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The sealed study.")],
    *,
    yes: Annotated[
        bool, other(FILES, "Accept without a question: the words were compared before.", "--yes")
    ] = False,
) -> None:
    """Accept a sealed study at a site, after showing its questions, budget and digest."""
    from fedcal.experiments.study.joining import Offer

    offer, to = Offer.read(kit, file), console()
    to.print("\n".join(offer.lines()))
    if not yes and sys.stdin.isatty():
        to.print("Compare the words by telephone with the coordinator and another site. Equal, and")
        with contextlib.suppress(EOFError):
            yes = input("does this site take part? Type yes: ").strip().lower() == "yes"
    if not yes:
        raise InputError("not accepted: a person must type yes (--yes for scripts)")
    offer.accept()
    to.print(f"accepted: the rules are in {kit / 'site.toml'}. Next: fedcal site start {kit}")


def start(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="This site's folder.")],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[ROWS]", help="Rows to use from now on (default: the current ones)."
        ),
    ] = None,
    *,
    csv: Csv = None,
) -> None:
    """Run a site of an accepted study: it answers releases from rows that stay here."""
    from fedcal.experiments.study.site_side import start

    # what goes into a file or a container's log tells of no rows
    to = console(stderr=True)
    start(kit, data, to.print if sys.stderr.isatty() else lambda line: None, csv)


def status(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="This site's folder.")],
    *,
    json: Json = False,
) -> None:
    """Show what a site of a study has accepted and spent, and its next step."""
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
