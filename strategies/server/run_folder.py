"""The folder of a run: what its server leaves there, and how who follows the run reads it.

One server at a time has it. Flower ends the server of a run that is stopped, but not at once.
"""

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from fedcal.core import checks
from fedcal.core.checks import FedcalError, InputError, system_errors
from fedcal.storage.atomic import locked, must_not_exist, write_whole
from fedcal.strategies.server.checkpoint import CHECKPOINT
from fedcal.strategies.server.outcome import OUTCOME

LOCK = "lock"
"""File that the server of a run holds."""

RESULT = "result.json"
"""Files that a report makes of an outcome in its folder."""

_PROGRESS, _ERROR, _ENDED, _NOTICES = "progress", "error.json", "ended", "notices"
_log = logging.getLogger("flwr")


def alone(out: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the folder of a run; InputError if a server does.

    Two servers of one run would both release the round that is open, and charge it once.
    """
    return locked(out / LOCK, f"a server writes into {out}: its run has not ended")


def absolute(key: str, path: str) -> None:
    """Refuse a relative path in a run config: Flower decides where this process runs."""
    if not os.path.isabs(path):
        raise InputError(f"{key!r} of the run config must be an absolute path, got {path!r}")


@contextlib.contextmanager
def held(out: Path, *, resume: bool) -> Iterator[None]:
    """Have the folder for one run, and leave word there of warnings, of an error, and of the end.

    Raises InputError if it cannot be written, another server has it, or it holds a run that has not
    ended and is not gone on with.

    Parameters
    ----------
    out
        absolute; made if it is not there
    resume
        the checkpoint that is there is this run's
    """
    absolute("out", str(out))
    with system_errors(f"cannot write the outcome to {out}"):
        out.mkdir(parents=True, exist_ok=True)
    with alone(out):
        ended = "the result of a run. Choose another folder"
        open_run = "a run has not ended. Continue it (resume), or choose another folder"
        for name, why in {OUTCOME: ended, RESULT: ended, CHECKPOINT: open_run}.items():
            if not resume:
                must_not_exist(out / name, why)
        with system_errors(f"cannot write the outcome to {out}"):
            forget(out, checkpoint=not resume)
        with _left_for_reader(out):
            yield


def forget(out: Path, *, checkpoint: bool) -> None:
    """Remove what a server has said of an earlier run, its `checkpoint` too or not."""
    if checkpoint:  # first: without an outcome it would be that of a run that has not ended
        (out / CHECKPOINT).unlink(missing_ok=True)
    for name in (OUTCOME, _PROGRESS, _ERROR, _ENDED, _NOTICES):
        (out / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _left_for_reader(out: Path) -> Iterator[None]:
    handler = logging.FileHandler(out / _NOTICES, delay=True, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    level, ours = logging.WARNING, "fedcal: "
    handler.addFilter(lambda one: one.levelno == level and one.getMessage().startswith(ours))
    _log.addHandler(handler)
    try:
        yield
    except FedcalError as e:
        write_whole(out / _ERROR, json.dumps({"kind": type(e).__name__, "message": str(e)}))
        raise
    finally:
        _log.removeHandler(handler)
        handler.close()
        with contextlib.suppress(OSError):
            (out / _ENDED).touch()


def note_progress(out: Path, done: int, planned: int) -> None:
    """Record that a round is done."""
    with (out / _PROGRESS).open("a", encoding="ascii") as file:
        file.write(f"{done} {planned}\n")


def read_progress(out: Path) -> list[tuple[int, int]]:
    """Return (rounds done, rounds planned) for each finished round."""
    return [(int(done), int(planned)) for done, planned in map(str.split, _lines(out / _PROGRESS))]


def read_notices(out: Path) -> list[str]:
    """Return one line for each event that was not planned, such as a site that is away."""
    return _lines(out / _NOTICES)


def _lines(file: Path) -> list[str]:
    """Whole lines; none of a file that is not there."""
    try:
        lines = file.read_text("utf-8").splitlines(keepends=True)
    except OSError:
        return []
    return [line.rstrip("\n") for line in lines if line.endswith("\n")]


def ended(out: Path) -> bool:
    """Return whether the server has finished there, successfully or not."""
    return (out / _ENDED).exists()


def read_error(out: Path) -> FedcalError | None:
    """Return fedcal's error that stopped the run with its outcome in `out`, if there is one."""
    try:
        record = json.loads((out / _ERROR).read_text("utf-8"))
    except OSError:
        return None
    error: FedcalError = getattr(checks, record["kind"])(record["message"])
    return error
