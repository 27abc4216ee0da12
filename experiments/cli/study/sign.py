"""Verify a quarter, and sign it with the coordinator's key, on the coordinator's machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.cli.parameters import FILES, other
from fedcal.experiments.report.terminal import console

EXAMPLES = ("fedcal study sign 2026Q4 --key sepsis-coordinator/coordinator.pem",)


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the quarter.")],
    *,
    key: Annotated[Path, other(FILES, "The coordinator's private key.")],
    sealed: Annotated[
        Path | None, other(FILES, "The sealed study (default: beside the key's folder).")
    ] = None,
) -> None:
    """Verify, then sign."""
    from fedcal.experiments.study.sealed import SEALED
    from fedcal.experiments.study.verify import sign
    from fedcal.secure_aggregation.keys import read_key

    home = key.resolve().parent
    beside = home.with_name(home.name.removesuffix("-coordinator") + SEALED)
    lines = sign(folder, read_key(key), sealed or (beside if beside.is_file() else None))
    console().print("\n".join([*lines, f"{folder} is signed."]))
