"""A site's plain log: one file, which all its processes write to, and a few older ones."""

import contextlib
import logging
import os
from logging.handlers import WatchedFileHandler
from pathlib import Path

from fedcal.core import checks, naming
from fedcal.storage.atomic import locked

LOGGER = "fedcal.site"

LOG = "site.log"

MOST_BYTES = 1 << 23
"""Largest size of a log, 8 MiB; then it becomes an older one."""

OLDER = 4
"""Older logs that are kept, as `site.log.1` (the newest of them) to `site.log.4`."""

log = logging.getLogger(LOGGER)
log.addFilter(naming.Printable())


class _Rotated(WatchedFileHandler):
    """A log that several processes append to; it never has more than about `MOST_BYTES`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; first put a log that is full aside."""
        path = Path(self.baseFilename)
        # a log that cannot be put aside grows: a line is worth more than the limit
        with contextlib.suppress(OSError, checks.InputError):
            if path.stat().st_size >= MOST_BYTES:
                rotate(path)
        super().emit(record)  # opens the file again where another one has its place


def rotate(path: Path) -> None:
    """Put a log aside if it is full, whichever process is first."""
    with locked(path.with_name(f".{path.name}.lock"), "another process rotates", wait=True):
        if path.stat().st_size < MOST_BYTES:
            return
        for number in range(OLDER, 0, -1):
            newer = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
            if newer.exists():
                os.replace(newer, path.with_name(f"{path.name}.{number}"))


def log_to(path: Path) -> None:
    """Let the site's log go to a file, and only there; Flower's own becomes printable."""
    handler = _Rotated(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    logging.getLogger("flwr").addFilter(naming.Printable(lines=True))
