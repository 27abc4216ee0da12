"""`flwr-clientapp` of a site: hands its arguments to the warm worker and waits for the exit code.

Flower starts this for each message. It runs as a script with nothing but a few modules of the
standard library (`python -I -S`), because all else takes longer than the answer. Where no worker
listens, it becomes the cold command: the module that the first argument names.
"""

import os
import socket
import sys

WORKER = "worker.sock"
"""The worker's socket, relative to the folder that both run in: a longer path fits no socket."""


def hand_over(arguments: list[str]) -> int | None:
    """Return the exit code of a message that the worker took; None without a worker."""
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(WORKER)
        except OSError:
            return None
        try:
            line.sendall("\0".join(arguments).encode())
            line.shutdown(socket.SHUT_WR)
            return int(line.recv(8) or b"1")  # nothing came: it ended without a word
        except OSError:
            return 1


def main() -> int:
    """Hand over; run cold if there is no worker."""
    module, *arguments = sys.argv[1:]
    code = hand_over(arguments)
    if code is None:
        os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])
    return code


if __name__ == "__main__":
    sys.exit(main())
