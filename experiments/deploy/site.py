"""`fedcal site start`: rows of one site, a SuperNode over them, and what is said meanwhile."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from fedcal.clients.site.policy import CPU_SECONDS, Policy
from fedcal.clients.site.prepared import FEDERATION
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.site_log import LOG, LOGGER, log_to
from fedcal.clients.site.store import PUT_BACK, RECORDS, records_in
from fedcal.core import flower_internals_site
from fedcal.core.checks import FedcalError, InputError
from fedcal.experiments.deploy.rows import SiteRows
from fedcal.experiments.report.terminal import Stopped, console
from fedcal.experiments.runs.engines.supernode import FLOWER_LOG, Ended, SuperNode, supernode
from fedcal.experiments.runs.engines.tls import Address, check_fleet, trusted
from fedcal.secure_aggregation.roster import Roster

NO_CONNECTION = 305
"""Flower's exit code where the SuperLink does not take a node."""

LEASE_S = 120.0
"""Seconds after its last sign of life in which a SuperLink may refuse a node because it counts it
as connected still; Flower's lease is some 60 s."""

_LEASE = "lease"
_TICK, _PAUSE_S, _LATER_S, _SOON = 0.2, 5.0, 30.0, 12  # after so many pauses longer ones
_QUICK_S, _QUICK_ENDS = 10.0, 3
_STEADY_S = 5.0  # in which a file, and the site's log, has not changed before rows are read anew
_FORGOTTEN_S = CPU_SECONDS + 300.0  # an answer takes less, and then another message comes

log = logging.getLogger(LOGGER)


def run_site(
    read: Callable[[], SiteRows],
    *,
    fleet: Address,
    root_certificates: Path,
    key: Path,
    state: Path,
    watched: Path,
    **rules: Any,
) -> None:
    """Prepare the rows, start a SuperNode over them and keep it running until a signal comes.

    It waits for a SuperLink that is not up yet, does not know this site's key yet, or whose clock
    differs.

    Parameters
    ----------
    read
        reads the rows and checks them
    fleet
        the SuperLink's Fleet API
    root_certificates, key
        files: what the SuperLink's certificate is verified by, and what this site signs with
    state
        the site's folder
    watched
        once this file has changed, and no run is under way, the rows are read anew
    rules
        `policy`, `terms`, `federation` and `sign_key`, as `prepare` takes them

    Raises
    ------
    InputError
        If sites do not run with this Flower, or an argument is not allowed.
    FedcalError
        If what listens there is no SuperLink to be trusted, or Flower ends again and again.
    Stopped
        Ctrl-C. SIGTERM just ends it.
    """
    flower_internals_site.check_flower()
    context, roster = trusted(root_certificates), Roster.read(rules["federation"])
    check_federation(state, roster.digest)
    reader = _Rows(state, read, watched, {**rules, "server": str(fleet)})
    rows, screen = read(), sys.stdout.isatty()
    # what goes into a file or a container's log tells of no rows
    doubts = rows.doubts()
    console().print("\n".join([rows.described(counts=screen), *(doubts if screen else ())]))
    reader.prepare(rows)
    del rows
    with records_in(state) as records:
        if (why := records.refusal) not in ("", PUT_BACK):
            raise InputError(f"{state / RECORDS} {why}")
    log_to(state / LOG)
    try:
        with until_terminated(), _Echo(state / LOG) as echo:
            log.info("a site of the federation %s, digest %s", roster.name, roster.digest)
            for line in Policy.read(rules["policy"]).described():
                log.info(line)
            if why:
                log.warning("the records of this site %s", why)
            log.info("looking for %s, until it listens", fleet)
            echo.show()
            check_fleet(fleet, context, math.inf)
            node = partial(supernode, state, fleet=str(fleet), key=key)
            node = partial(node, root_certificates=root_certificates)
            _Running(node, state, fleet, reader, echo).keep()
    except Terminated:
        log.info("stopped")
    except KeyboardInterrupt:
        log.info("stopped")
        raise Stopped("the site is stopped; the same command starts it again") from None


def check_federation(state: Path, digest: str | None) -> None:
    """InputError if a site with unfinished jobs is started in another federation than theirs.

    These jobs have keys, answers and signatures among the sites of a roster. Under another one
    the site would have other partners for them. `digest` is the new one's; None = new keys.
    """
    before, records = state / FEDERATION, state / RECORDS
    if not before.exists() or not records.exists():
        return
    old = Roster.read(before).digest
    if digest == old:
        return
    with records_in(state) as open_records:
        unfinished = open_records.unfinished
    if unfinished:
        raise InputError(
            f"{unfinished} jobs at this site are unfinished in the federation with digest {old}: "
            f"start it with that one, or close them by fedcal site restored {state.parent} "
            "--spent nothing"
        )


@dataclass(frozen=True)
class _Running:
    """A site that runs SuperNodes, as `node_of` starts them, one after the other."""

    node_of: Callable[[], contextlib.AbstractContextManager[SuperNode]]
    state: Path
    fleet: Address
    rows: _Rows
    echo: _Echo

    def keep(self) -> None:
        """Run a SuperNode, and another whenever it ends and may come back; never returns."""
        quick, message, again = 0, "", 0
        while True:
            began = time.monotonic()
            with self.node_of() as node:
                rows = self._watch(node)
                ended = node.ended()
            if rows is not None:
                self.rows.prepare(rows)
                log.info("the file of rows has changed: it was read anew")
                continue
            turned_away = ended.denied or ended.code == NO_CONNECTION
            quick = quick + 1 if time.monotonic() - began < _QUICK_S and not turned_away else 0
            words = self._may_come_back(ended, quick)
            again = again + 1 if words == message else 0
            if not again:
                log.info(words)
                self.echo.show()
            message = words
            time.sleep(_LATER_S if again > _SOON else _PAUSE_S)

    def _watch(self, node: SuperNode) -> SiteRows | None:
        """Show the site's log while the node runs; remember when it was last connected.

        Returns rows that take the place of the node's, or None once it has ended.
        """
        connected = False
        while node.poll() is None:
            if connected:
                (self.state / _LEASE).touch()
            elif node.connected():
                connected = True
                log.info("connected to %s: waiting for questions", self.fleet)
            if node.stuck():
                return None
            if (rows := self.rows.renewed()) is not None:
                return rows
            node.bound_log()
            self.echo.show()
            time.sleep(_TICK)
        return None

    def _may_come_back(self, ended: Ended, quick: int) -> str:
        """Return what the site waits for now; FedcalError if waiting will not help."""
        lease, at = self.state / _LEASE, self.fleet
        seen = lease.stat().st_mtime if lease.exists() else 0.0
        if ended.denied:
            words = f"{at} does not accept this site's signature: most likely the clocks of the two"
            words += " machines differ (5 s ahead or 305 s behind is too much)"
        elif ended.code == NO_CONNECTION and time.time() - seen <= LEASE_S:
            known = "the SuperLink counts this site as connected still, it seems"
            return f"{known}: trying for two minutes"
        elif ended.code == NO_CONNECTION:
            words = f"{at} does not know this site's key yet, or no longer: ask the coordinator"
        elif quick >= _QUICK_ENDS:
            why = f"{ended.words[:200]}; its log is {self.state / FLOWER_LOG}"
            raise FedcalError(f"the SuperNode ends again and again: {why}")
        else:
            return f"the connection to {at} has ended: connecting again"
        return f"the SuperLink at {words}. Trying again"


class _Rows:
    """The rows of a site, and others once a file has changed; `rules` are those of `prepare`."""

    def __init__(
        self, state: Path, read: Callable[[], SiteRows], file: Path, rules: dict[str, Any]
    ) -> None:
        self._state, self._read, self._file, self._rules = state, read, file, rules
        self._known = self._seen = self._stamp()
        self._since = time.monotonic()

    def prepare(self, rows: SiteRows) -> None:
        """Write rows where messages are answered."""
        prepare(self._state, rows.shards, names=rows.names, test=rows.test, **self._rules)

    def renewed(self) -> SiteRows | None:
        """Return the rows of a file that has changed, once it is steady and nobody asks for rows.

        Of rows that cannot be used the log says nothing but that: those of before stay.
        """
        if (stamp := self._stamp()) != self._seen:
            self._seen, self._since = stamp, time.monotonic()
        steady = time.monotonic() - self._since >= _STEADY_S
        if stamp in (None, self._known) or not steady or not self._idle():
            return None
        self._known = stamp
        try:
            return self._read()
        except Exception:  # noqa: BLE001  whatever it is, a site with the old rows goes on
            log.warning(
                "the file of rows has changed and cannot be used: the rows of before stay. Start "
                "the site by hand to see why"
            )
            return None

    def _stamp(self) -> tuple[int, ...] | None:
        if not self._file.is_file():
            return None
        try:
            status = self._file.stat()
        except OSError:  # it is replaced right now
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _idle(self) -> bool:
        """Return whether no run is under way here, or none that was heard of for long."""
        try:
            quiet = time.time() - (self._state / LOG).stat().st_mtime
            if quiet < _STEADY_S:
                return False
            with records_in(self._state) as records:
                return records.unfinished == 0 or quiet > _FORGOTTEN_S
        except (OSError, InputError):  # the log is put aside right now, or the books are held
            return False


class _Echo(contextlib.AbstractContextManager["_Echo"]):
    """Shows on stdout what the site's log gains; other processes write to it and rotate it."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._path = path
        self._file = path.open(encoding="utf-8", errors="replace")
        self._file.seek(0, os.SEEK_END)

    def show(self) -> None:
        """Show what was added since the last time."""
        self._rest()
        with contextlib.suppress(FileNotFoundError):  # it is put aside right now
            if not os.path.samestat(self._path.stat(), os.fstat(self._file.fileno())):
                self._rest()
                self._file.close()
                self._file = self._path.open(encoding="utf-8", errors="replace")
                self._rest()

    def _rest(self) -> None:
        if new := self._file.read():
            print(new, end="", flush=True)

    def __exit__(self, *error: object) -> None:
        self.show()
        self._file.close()


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
