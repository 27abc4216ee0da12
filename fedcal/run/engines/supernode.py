"""A SuperNode with its site: Flower's processes, all of which end with the block.

Flower starts `flwr-clientapp` for each message, by name. The search path of these processes holds
one folder, with a `flwr-clientapp` of our own; what else a SuperLink could have run here
(`flwr-agentapp` and its kin import the bundle) is a command that does nothing.
"""

import contextlib
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fedcal.clients.site import guard, site_log
from fedcal.clients.site.process import handover
from fedcal.clients.site.process.runtime import SITE, self_test
from fedcal.core.flower_internals import TASK_TYPE_TO_COMMAND
from fedcal.core.flower_internals_site import check_flower
from fedcal.run.engines.processes import ProcessTree
from fedcal.run.engines.superlink import free_port, health_options, quiet_environment, scripts

FLOWER_LOG = "flower.log"
NODE, WORKER = "fedcal.run.engines.node", "fedcal.clients.site.process.runtime"
"""Modules that look for messages, and answer one."""
POLL_S = 0.2
"""Seconds between a site's looks for a message that its SuperNode has received."""

_HOME = "flower-"
_CONNECTED, _GAVE_UP = "SuperNode ID:", "SuperNode terminated gracefully"
_EXIT = re.compile(r"Exit Code: (\d+)\n(.*?)(?:\n\s*\n|\Z)", re.DOTALL)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Ended(NamedTuple):
    """Reason for which a SuperNode ended.

    Attributes
    ----------
    code
        Flower's own exit code (305: no connection); None = it named none
    words
        what Flower said, one line
    denied
        it gave up before it was ever connected: the SuperLink did not accept its signature
    """

    code: int | None
    words: str
    denied: bool = False


class SuperNode:
    """A running SuperNode.

    Attributes
    ----------
    folder
        of its site
    """

    def __init__(self, folder: Path, tree: ProcessTree, start: int) -> None:
        self.folder, self._tree, self._start = folder, tree, start
        self._seen, self._was_connected = start, False

    def poll(self) -> int | None:
        """Return the exit code of its process, or None while it runs."""
        return self._tree.poll()

    def kill(self) -> None:
        """End it as a machine that loses its power would: for tests and measurements."""
        self._tree.kill()

    def connected(self) -> bool:
        """Return whether the SuperLink has accepted it once."""
        self._was_connected = self._was_connected or _CONNECTED in self._text()
        return self._was_connected

    def bound_log(self) -> None:
        """Put the text of a full log of Flower's aside, in place of the older one.

        Its processes hold the file open and append to it, so the file stays and becomes empty;
        what they write at the same moment may be lost.
        """
        log = self.folder / FLOWER_LOG
        if log.stat().st_size >= site_log.MOST_BYTES:
            shutil.copyfile(log, log.with_name(f"{FLOWER_LOG}.1"))
            os.truncate(log, 0)
            self._start = self._seen = 0

    def stuck(self) -> bool:
        """Return whether a thread of it has died since the last look.

        Flower goes on then without its heartbeat: the site is offline for good, and looks alive.
        """
        with (self.folder / FLOWER_LOG).open("rb") as file:
            file.seek(self._seen)
            new = file.read()
        self._seen += len(new)
        return b"Exception in thread" in new

    def ended(self) -> Ended:
        """Return the end of the process according to its log."""
        text = self._text()
        if match := _EXIT.search(text):
            return Ended(int(match[1]), " ".join(match[2].split()))
        lines = [line for line in text.splitlines() if line.strip()]
        denied = _GAVE_UP in text and not self.connected()
        return Ended(None, lines[-1].strip() if lines else "it said nothing", denied)

    def _text(self) -> str:
        with (self.folder / FLOWER_LOG).open("rb") as file:
            file.seek(self._start)
            return _COLOURS.sub("", file.read().decode("utf-8", "replace"))


@contextlib.contextmanager
def supernode(
    folder: Path, *, fleet: str, root_certificates: Path, key: Path
) -> Iterator[SuperNode]:
    """Start a SuperNode for a site that `fedcal.clients.site.guard.prepare` wrote.

    Flower's output goes to `flower.log` in the folder, the site's plain log to `site.log`.

    Parameters
    ----------
    folder
        of the site; one SuperNode at a time can have it
    fleet
        HOST:PORT of the SuperLink's Fleet API
    root_certificates
        PEM file that the SuperLink's certificate is verified by
    key
        this node's private key (OpenSSH, ECDSA)

    Raises
    ------
    InputError
        If Flower is not the one that is known here, or another process has the folder.
    FedcalError
        If Flower would run a server's code here.
    """
    check_flower()
    self_test()
    folder = folder.resolve()
    with guard.alone(folder), _fresh_home(folder) as home:
        commands = _write_commands(home / "bin", scripts("a site", "superexec"))
        env = quiet_environment(home) | {SITE: str(folder), "PATH": str(commands)}
        env["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = str(POLL_S)
        # a process with threads cannot be forked safely, and one message needs no more than a core
        env |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        log = folder / FLOWER_LOG
        log.touch()
        start = log.stat().st_size
        warm = [sys.executable, "-P", "-m", WORKER, "--worker"]
        node: list[str | Path] = [
            *(sys.executable, "-P", "-m", NODE, "flower-supernode", "--superlink", fleet),
            *("--root-certificates", root_certificates.resolve()),
            *("--auth-supernode-private-key", key.resolve()),
            *("--host", "127.0.0.1", "--port", str(free_port()), *health_options()),
        ]
        with (
            ProcessTree(warm, folder=home, env=env, log=log),
            ProcessTree(node, folder=home, env=env, log=log) as tree,
        ):
            yield SuperNode(folder, tree, start)


@contextlib.contextmanager
def _fresh_home(folder: Path) -> Iterator[Path]:
    """Make a folder for Flower that is deleted after the block, like those of killed ones."""
    for left in folder.glob(f"{_HOME}*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory("", _HOME, folder, ignore_cleanup_errors=True) as home:
        yield Path(home)


def _write_commands(folder: Path, programs: Path) -> Path:
    """All that Flower finds by name: its own executor, and what answers a message."""
    folder.mkdir()
    (folder / "flower-superexec").symlink_to(programs / "flower-superexec")
    ours = shlex.join([sys.executable, "-I", "-S", str(Path(handover.__file__).resolve()), WORKER])
    for name in TASK_TYPE_TO_COMMAND.values():
        runs = f'exec {ours} "$@"' if name == "flwr-clientapp" else "exit 1"
        (folder / name).write_text(f"#!/bin/sh\n{runs}\n", "utf-8")
        (folder / name).chmod(0o700)
    return folder
