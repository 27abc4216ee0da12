"""Run the server of a sealed study until it is stopped; it needs no signing key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.cli.parameters import other
from fedcal.experiments.report.terminal import Stopped, console

EXAMPLES = ("fedcal study serve sepsis.sealed",)

PORTS = "Where it listens"


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The sealed study.")],
    *,
    control: Annotated[
        str, other(PORTS, "HOST:PORT at which releases are started; it has no login.")
    ] = "127.0.0.1:8000",
    listen: Annotated[
        str | None,
        other(PORTS, "HOST:PORT for the sites (default: the study's port on all addresses)."),
    ] = None,
) -> None:
    """Run it until it is stopped."""
    from fedcal.experiments.study.study_server import serve

    try:
        serve(file, at=control, listen=listen, say=console().print)
    except KeyboardInterrupt:
        raise Stopped("the server is stopped; the same command starts it again") from None
