"""A site's plain log: one file, which all its processes write to, and the one before."""

import logging
import os
from contextlib import suppress
from logging.handlers import WatchedFileHandler
from pathlib import Path

from fedcal.core import naming

LOGGER = "fedcal.site"

LOG = "site.log"

MOST_BYTES = 1 << 23
"""Size of a log, 8 MiB, from which on it is put aside."""

log = logging.getLogger(LOGGER)
log.addFilter(naming.Printable())


def rotate(path: Path) -> None:
    """Put a full log aside, in place of the one before; whoever writes to it begins another."""
    with suppress(OSError):  # nothing to put aside, or it grows: a line is worth more
        if path.stat().st_size >= MOST_BYTES:
            os.replace(path, path.with_name(f"{path.name}.1"))


def log_to(path: Path) -> None:
    """Let the site's log go to a file, and only there; Flower's own becomes printable."""
    handler = WatchedFileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    logging.getLogger("flwr").addFilter(naming.Printable(lines=True))
