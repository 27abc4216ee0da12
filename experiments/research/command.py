"""What commands that are run as modules share: their options, and how they say what is wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcal.core.checks import FedcalError, InputError


def run_module(
    name: str,
    about: str,
    options: Mapping[str, dict[str, Any]],
    run: Callable[[Any], None],
    arguments: Sequence[str] | None,
) -> None:
    """Parse the command line of a module and run it; one line on stderr for what is wrong.

    Parameters
    ----------
    name, about
        of the module in this package, and its docstring, whose first line is the description
    options
        name -> what `argparse` wants to know of it
    run
        takes the values; the process leaves with `fedcal`'s exit codes where it raises
    arguments
        None = of the command line
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m fedcal.experiments.research.{name}",
        description=about.splitlines()[0],
    )
    for option, how in options.items():
        parser.add_argument(f"--{option}", **how)
    given = parser.parse_args(arguments)
    try:
        run(given)
    except FedcalError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.exit_code)


def refuse_out(out: Path, suffix: str = ".npz") -> None:
    """InputError where `out` cannot become a file of this kind: now, not after minutes."""
    if out.suffix != suffix:
        raise InputError(f"--out {out} must end in {suffix}")
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise InputError(f"--out {out}: is a folder, or its folder does not exist")
