"""What several commands print."""

from __future__ import annotations

from pathlib import Path

from fedcal.experiments.files import to_json
from fedcal.experiments.terminal import console


def show_written(path: Path, *, quiet: bool, as_json: bool) -> None:
    """Where a file was written."""
    if as_json:
        print(to_json({"out": str(path)}), end="")
    elif not quiet:
        console().print(f"written to {path}")
