"""`flower-supernode` of a site, which looks for messages more often while it gets some.

Flower's own looks every 3 s, and a round under the protocol of secure aggregation has three
exchanges of messages. Here the first look after an answer comes soon, and each next one later.

python -m fedcal.experiments.deploy.node flower-supernode ARGUMENTS
"""

from __future__ import annotations

import sys
import time

SOON_S = 0.2
"""Seconds to the first look for a message after an answer, and between looks for its own reply."""

_GROWS = 1.5


class Clock:
    """In place of the module `time` in Flower's loop, which calls `sleep` alone.

    It sleeps 3 s where no message is there, and .5 s where one is being answered.
    """

    def __init__(self) -> None:
        self._wait = SOON_S

    def sleep(self, seconds: float) -> None:
        """At most so many seconds."""
        if seconds < 1:
            self._wait = SOON_S
            time.sleep(min(seconds, SOON_S))
        else:
            time.sleep(min(seconds, self._wait))
            self._wait = min(_GROWS * self._wait, seconds)


def main() -> None:
    """Run Flower's command in this process."""
    from flwr.supernode import start_client_internal as flower
    from flwr.supernode.cli import flower_supernode

    setattr(flower, "time", Clock())  # noqa: B010  a name that mypy knows as a module
    sys.argv = sys.argv[1:]
    flower_supernode()


if __name__ == "__main__":
    main()
