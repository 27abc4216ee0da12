"""What commands that are run as modules share: their options, and how they say what is wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedcal.core.errors import FedcalError


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
