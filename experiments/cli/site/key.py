"""Make this site's signing key, or show the public half of an existing one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.report.terminal import console
from fedcal.secure_aggregation.keys import make_key, read_key

EXAMPLES = ("fedcal site key signing.pem",)


def command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The private key, for this user alone (0600).")
    ],
) -> None:
    """Make it, or show it."""
    key = read_key(file) if file.exists() else make_key(file)
    to = console()
    to.print(f"{file} holds this site's private signing key: it never leaves this machine.")
    to.print("Its public key, for the coordinator of the federation:")
    to.print(key.public.hex())
