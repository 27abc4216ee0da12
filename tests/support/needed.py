"""Check what the slow tests must have before any runs, so that none is skipped without a word.

`make test-all` runs this first: a line for each thing that is missing, and exit code 1.
"""

import os
import shutil
import socket
import sys
from collections.abc import Iterator

from fedcal.cli.doctor import packages

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def missing() -> Iterator[str]:
    """Say what is missing, and how to get it."""
    for package in packages("dev"):
        if not package.fits:
            yield f"{package}: `make test` installs it"
    if not any(map(shutil.which, BROWSERS)):
        yield f"a browser (reports): install one of {', '.join(BROWSERS)}"
    if sys.platform != "linux" or not os.path.isdir("/proc/self"):
        yield "Linux with /proc (daemons and memory of processes)"
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        yield f"free ports on 127.0.0.1 (gRPC, Ray): {error}"
    if shutil.which("git") is None:
        yield "git (which files are the repository's own)"


if __name__ == "__main__":
    lines = [f"make test-all needs {line}" for line in missing()]
    print("\n".join(lines) or "everything that the slow tests need is here")
    sys.exit(bool(lines))
