"""The loop of `fedcal site start`: SuperNodes over rows of one site, and its log on the screen."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from fedcal.clients.site.guard import SITE
from fedcal.clients.site.site_log import LOGGER, rotate
from fedcal.clients.site.store import RECORDS, records_in
from fedcal.core.checks import FedcalError, InputError
from fedcal.run.engines.supernode import FLOWER_LOG, Ended, SuperNode
from fedcal.secure_aggregation.roster import Roster

NO_CONNECTION = 305
"""Flower's exit code where the SuperLink does not take a node."""

_TICK, _PAUSE_S, _LATER_S, _SOON = 0.2, 5.0, 30.0, 12  # after so many pauses longer ones
_QUICK_S, _QUICK_ENDS = 10.0, 3

log = logging.getLogger(LOGGER)


def _pinned_digest(folder: Path) -> str | None:
    """Return the digest of the roster that a site was started with; None = it had none."""
    try:
        text = json.loads((folder / SITE).read_text("utf-8"))["roster"]
    except FileNotFoundError:
        return None
    except (OSError, LookupError, TypeError, ValueError):
        return "not known"
    return None if text is None else Roster.from_text(text).digest


def check_federation(state: Path, digest: str | None) -> None:
    """InputError if a site with unfinished jobs is started in another federation than theirs.

    These jobs have keys, answers and signatures among the sites of a roster. Under another one
    the site would have other partners for them. `digest` is the new one's; None = new keys.
    """
    old = _pinned_digest(state)
    if old in (None, digest) or not (state / RECORDS).exists():
        return
    with records_in(state) as records:
        unfinished = records.unfinished
    if unfinished:
        raise InputError(
            f"{unfinished} jobs at this site are unfinished in the federation with digest {old}: "
            f"start it with that one, or close them by fedcal site restored {state.parent} "
            "--spent nothing"
        )


def keep_running(
    state: Path, server: str, node_of: Callable[[], AbstractContextManager[SuperNode]], echo: Echo
) -> NoReturn:
    """Run a SuperNode over a site's folder, and another whenever it ends and may come back.

    It waits for a SuperLink that does not know this site's key yet, or whose clock differs.
    Raises FedcalError if Flower ends again and again. `server` is a word for the log.
    """
    quick, message, again = 0, "", 0
    while True:
        began = time.monotonic()
        with node_of() as node:
            connected = False
            while node.poll() is None and not node.stuck():
                if not connected and (connected := node.connected()):
                    log.info("connected to %s: waiting for questions", server)
                node.bound_log()
                echo.show()
                time.sleep(_TICK)
            ended = node.ended()
        turned_away = ended.denied or ended.code == NO_CONNECTION
        quick = quick + 1 if time.monotonic() - began < _QUICK_S and not turned_away else 0
        if quick >= _QUICK_ENDS:
            why = f"{ended.words[:200]}; its log is {state / FLOWER_LOG}"
            raise FedcalError(f"the SuperNode ends again and again: {why}")
        words = _why(ended).format(server)
        again = again + 1 if words == message else 0
        if not again:
            log.info(words)
            echo.show()
        message = words
        time.sleep(_LATER_S if again > _SOON else _PAUSE_S)


def _why(ended: Ended) -> str:
    """Return what the site waits for now; {} stands for the server."""
    if ended.denied:
        return (
            "the SuperLink at {} does not accept this site's signature: most likely the clocks of "
            "the two machines differ (5 s ahead or 305 s behind is too much). Trying again"
        )
    if ended.code == NO_CONNECTION:
        return (
            "the SuperLink at {} does not take this site: it counts it as connected still, for two "
            "minutes at most, or it does not know its key (ask the coordinator). Trying again"
        )
    return "the connection to {} has ended: connecting again"


class Echo:
    """Shows on stdout what all processes write to a site's log; a full one is put aside."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._path, self._at = path, path.stat().st_size

    def show(self) -> None:
        """Show what was added since the last time."""
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < self._at:  # it was put aside, and this is another one
                self._at = 0
            file.seek(self._at)
            print(file.read().decode("utf-8", "replace"), end="", flush=True)
            self._at = file.tell()
        rotate(self._path)


class Terminated(BaseException):
    """SIGTERM: how services are stopped."""


@contextlib.contextmanager
def until_terminated() -> Iterator[None]:
    """Raise Terminated inside the block on SIGTERM."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
