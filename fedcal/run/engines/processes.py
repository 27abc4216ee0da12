"""A command and everything that it starts: they end together, also if this process is killed.

`ProcessTree` runs the command under a guard, a process of its own session that runs this very
file with nothing but the standard library. The guard holds one end of a pipe. Once the other
end is closed, by `ProcessTree.end` or because this process died, it ends the command and
whatever descends from it: on Linux also daemons, whose orphans the guard adopts.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

GRACE = 2.0
"""Seconds between asking processes to end and ending them."""

_TICK = 0.05
_PR_SET_CHILD_SUBREAPER = 36


class ProcessTree(contextlib.AbstractContextManager["ProcessTree"]):
    """A running command; a context manager that ends it with everything it started.

    Parameters
    ----------
    command
        executable and arguments
    folder
        where it runs; removed, if this process dies before it has called `end`
    env
        its whole environment
    log
        file that its output, and that of what it starts, is appended to
    """

    def __init__(
        self, command: Sequence[str | Path], *, folder: Path, env: Mapping[str, str], log: Path
    ) -> None:
        # -I: the guard needs none of the user's packages, and must not find a foreign one
        guard = [sys.executable, "-I", __file__, str(folder), *map(str, command)]
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                guard,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=env,
                start_new_session=True,  # a Ctrl-C in the terminal is for this process alone
            )

    def poll(self) -> int | None:
        """Return the command's exit code, or None while it runs."""
        return self._guard.poll()

    def end(self) -> None:
        """End whatever still runs. Ending twice is no error."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        try:
            self._guard.wait(4 * GRACE)
        except subprocess.TimeoutExpired:  # the guard was stopped or cannot get through
            self._guard.kill()
            self._guard.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._guard.pid, signal.SIGKILL)  # only if somebody killed the guard

    def kill(self) -> None:
        """End it as a machine that loses its power would; daemons of its own stay."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._guard.pid, signal.SIGKILL)

    def __exit__(self, *error: object) -> None:
        self.end()


def _guard(folder: str, command: list[str]) -> int:
    """Run the command until it ends, the pipe at stdin closes, or a signal comes."""
    started_by = os.getppid()
    asked_to_stop = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: asked_to_stop.append(True))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    no_input = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    child = os.posix_spawnp(command[0], command, os.environ, file_actions=[no_input])
    code = None
    while code is None and not asked_to_stop:
        closed, _, _ = select.select([0], [], [], _TICK)
        if closed and not os.read(0, 1):
            break
        code = _reap(child)
    _end_descendants()
    if os.getppid() != started_by:
        shutil.rmtree(folder, ignore_errors=True)
    return 128 + signal.SIGTERM if code is None else code


def _reap(child: int = 0) -> int | None:
    """Collect what has ended; the exit code of `child` if it is among them."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if ended[0] == child:
                raw = os.waitstatus_to_exitcode(ended[1])
                code = raw if raw >= 0 else 128 - raw
    return code


def _end_descendants() -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        signalled: set[int] = set()
        deadline = time.monotonic() + GRACE
        while (alive := _descendants()) and time.monotonic() < deadline:
            for process in alive - signalled:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            signalled |= alive
            time.sleep(_TICK)
            _reap()
    _reap()


def _descendants() -> set[int]:
    """Children of this process, their children, and so on; without those that have ended."""
    pairs, family = _parents(), {os.getpid()}
    while new := {process for process, parent in pairs if parent in family} - family:
        family |= new
    return family - {os.getpid()}


def _parents() -> list[tuple[int, int]]:
    """(process, its parent) of all that run."""
    if not os.path.isdir("/proc/self"):  # macOS
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, check=False)
        pairs = [line.split() for line in listing.stdout.splitlines()]
        return [(int(process), int(parent)) for process, parent in pairs]
    children = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # the command's name, in brackets, may hold anything
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.append((int(name), int(parent)))
    return children


if __name__ == "__main__":
    sys.exit(_guard(sys.argv[1], sys.argv[2:]))
