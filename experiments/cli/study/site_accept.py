"""Accept a sealed study at a site, after showing its questions, budget and digest."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedcal.core.errors import InputError
from fedcal.experiments.cli.parameters import FILES, other
from fedcal.experiments.report.terminal import console

EXAMPLES = ("fedcal site accept alder/ sepsis.sealed",)


def command(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="This site's folder.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The sealed study.")],
    *,
    yes: Annotated[
        bool, other(FILES, "Accept without a question: the words were compared before.", "--yes")
    ] = False,
) -> None:
    """Show it, ask, and write down what this site takes part in."""
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
