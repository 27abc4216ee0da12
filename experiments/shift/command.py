"""What the commands share: how they say what is wrong, and what they refuse before any work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from fedcal.errors import FedcalError, InputError


def leave_with(run: Callable[[], None]) -> None:
    """Run, and leave the process with `fedcal`'s exit codes: one line on stderr, never a trace."""
    try:
        run()
    except FedcalError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(error.exit_code)


def refuse_out(out: Path, suffix: str = ".npz") -> None:
    """InputError where `out` cannot become a file of this kind: now, not after minutes."""
    if out.suffix != suffix:
        raise InputError(f"--out {out} must end in {suffix}")
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise InputError(f"--out {out}: a folder, or in a folder that is not there")
