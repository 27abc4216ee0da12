"""Join a study at a site: check its rows, make its keys, write the file to send back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.cli.parameters import FILES, Csv, other
from fedcal.experiments.report.terminal import Stopped, console

EXAMPLES = ("fedcal site join alder/ rows.csv",)


def command(
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
    """Check, make, and say what to send."""
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
