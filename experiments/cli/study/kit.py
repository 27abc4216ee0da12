"""Make keys, certificates and a folder for each site of a study. Repeat it after a change of the
study's file; keys and certificates are kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcal.experiments.report.terminal import console

EXAMPLES = ("fedcal study kit sepsis.toml",)


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study's file.")],
) -> None:
    """Make them, and say what goes to whom."""
    from fedcal.experiments.study.kits import make_kits

    console().print("\n".join(make_kits(file)))
