"""A folder with unfinished runs: people are asked, scripts are refused."""

from __future__ import annotations

import sys
from pathlib import Path

from fedcal.errors import InputError
from fedcal.experiments.runs.journal import kept_runs
from fedcal.experiments.terminal import console


def ask_about_unfinished(out: Path, done: str) -> tuple[Path, bool]:
    """Ask, where there is somebody to ask, what to do with a folder that holds unfinished runs.

    Parameters
    ----------
    out : the folder that was asked for
    done : the file by which one knows that its runs are finished

    Returns
    -------
    The folder to write to, and whether to go on with the runs in it. Without a terminal, or where
    nothing is unfinished, it is `out`, False: the journal refuses what must not be replaced.

    Raises
    ------
    InputError
        Neither was chosen.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return out, False
    while kept := kept_runs(out, done):
        text = f"{out} holds unfinished runs ({kept} are kept)."
        to = console(stderr=True)
        to.print(f"{text} Go on with them [y], or write to another folder [its name]? ", end="")
        answer = sys.stdin.readline().strip()
        if answer.lower() in ("y", "yes"):
            return out, True
        if answer.lower() in ("", "n", "no"):
            raise InputError(f"{text} Go on with --resume, or choose another --out")
        out = Path(answer).expanduser()
    return out, False
