"""A site's plain log: one file, which all its processes write to, and a few older ones."""

import logging
import os
from contextlib import suppress
from logging.handlers import WatchedFileHandler
from pathlib import Path

from fedcal.core import naming
from fedcal.core.checks import InputError
from fedcal.storage.atomic import locked

LOGGER = "fedcal.site"

LOG = "site.log"

MOST_BYTES = 1 << 23
"""Size of a log, 8 MiB, from which on the next process makes it an older one."""

OLDER = 4
"""Older logs that are kept, as `site.log.1` (the newest of them) to `site.log.4`."""

log = logging.getLogger(LOGGER)
log.addFilter(naming.Printable())


def rotate(path: Path) -> None:
    """Put a log aside if it is full, whichever process is first.

    A log that cannot be put aside grows: a line is worth more than the limit.
    """
    lock = path.with_name(f".{path.name}.lock")
    with suppress(OSError, InputError), locked(lock, "another process rotates", wait=True):
        if path.stat().st_size < MOST_BYTES:
            return
        for number in range(OLDER, 0, -1):
            newer = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
            if newer.exists():
                os.replace(newer, path.with_name(f"{path.name}.{number}"))


def log_to(path: Path) -> None:
    """Let the site's log go to a file, and only there; Flower's own becomes printable."""
    rotate(path)  # each message has a process of its own
    handler = WatchedFileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    logging.getLogger("flwr").addFilter(naming.Printable(lines=True))
