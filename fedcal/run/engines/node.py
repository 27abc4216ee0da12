"""`flower-supernode` of a site, which looks for messages more often, and takes no giant ones.

Flower's own looks every 3 s, and a round under the protocol of secure aggregation has three
exchanges of messages. Here the first look after an answer comes soon, and each next one later.
And Flower's own takes messages of any size into memory, and unpacks of a bundle what the server
packed. Here both have limits, and the server hears of a refusal what it hears of any.

python -m fedcal.run.engines.node flower-supernode ARGUMENTS
"""

import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from fedcal.clients.site.process.runtime import check_size
from fedcal.clients.site.site_log import LOG, LOGGER, log_to
from fedcal.core.checks import InputError

SITE = "FEDCAL_SITE"
"""Environment variable with the site's folder, as `fedcal.clients.site.process.runtime` has it."""

SOON_S = 0.2
"""Seconds to the first look for a message after an answer, and between looks for its own reply."""

MESSAGE_BYTES = 1 << 26
"""Limit of a message that carries a question, contributions' headers or a result: a question
has about as many numbers as its answer, and those of `guard.MOST_NUMBERS` take 32 MiB."""

SHORT_BYTES = 1 << 16
"""Limit of any other message: it asks who a site is, or for an enrolment in a run."""

_LONG = tuple(f"query.{kind}" for kind in ("answer", "confirm", "open", "ready", "result"))

_PART_BYTES = 1 << 10  # that each part of a message counts for at least

_GROWS = 1.5
_FRAME_BYTES = 1 << 20  # beside the part of a message that a reply of the SuperLink's carries

log = logging.getLogger(LOGGER)


class Intake:
    """Counts the bytes of one message as its parts come in.

    Parameters
    ----------
    kind
        Flower's message type, as the server names it
    """

    def __init__(self, kind: str) -> None:
        self._kind, self.most = kind, MESSAGE_BYTES if kind in _LONG else SHORT_BYTES
        self.left = self.most

    def take(self, part: int) -> None:
        """InputError once the parts, so many bytes each, are more than a message may have."""
        self.left -= max(part, _PART_BYTES)
        if self.left < 0:
            raise InputError(
                f"a message {self._kind[:20]!r} of more than {self.most >> 10} KiB came, which "
                "is not read"
            )


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


def limited(pull_and_store: Callable[..., int | None]) -> Callable[..., int | None]:
    """Flower's `_pull_and_store_message`, which refuses what is larger than a site ever needs.

    A message is refused once more of its parts have come than it may have in all; each of them is
    one reply of the SuperLink's, whose size gRPC limits before it is read. A bundle is refused by
    its table of contents.
    """
    from flwr.app import Error, Message

    from fedcal.core.flower_internals import ErrorCode, insert_reply, is_too_large

    def within_limits(
        *,
        state: Any,
        object_store: Any,
        receive: Callable[[], Any],
        get_fab: Callable[..., Any],
        pull_object: Callable[[int, str], bytes],
        **others: Any,
    ) -> int | None:
        message, intake, refusals, lock = None, Intake(""), list[InputError](), Lock()

        def took(check: Callable[[], object]) -> None:
            try:
                check()
            except InputError as refusal:
                refusals.append(refusal)
                raise

        def received() -> Any:
            nonlocal message, intake
            if (came := receive()) is None:
                return None
            message, parts = came
            intake = Intake(message.metadata.message_type)
            if parts.ByteSize() > intake.left:  # so many names of parts
                intake.left = 0
                parts.ClearField("children")
            return message, parts

        def pulled(run: int, part: str) -> bytes:
            with lock:
                took(lambda: intake.take(0))
            try:
                content = pull_object(run, part)
                size = len(content)
            except Exception as error:
                if not is_too_large(error):
                    raise
                size = MESSAGE_BYTES + 1
            with lock:
                took(lambda: intake.take(size))
            return content

        def bundle(*which: Any) -> Any:
            fab = get_fab(*which)
            took(lambda: check_size(fab.content))
            return fab

        replacements = {"receive": received, "get_fab": bundle, "pull_object": pulled}
        run = None
        try:
            run = pull_and_store(state=state, object_store=object_store, **replacements, **others)
        except InputError:
            if not refusals:
                raise
        if not refusals or message is None:
            return run
        log.warning("refused to answer: %s", refusals[0])
        reason = f"{InputError.__name__}; see the site's own log"
        reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
        insert_reply(reply, state, object_store)
        return int(message.metadata.run_id)

    return within_limits


def main() -> None:
    """Run Flower's command in this process."""
    from fedcal.core.flower_internals import run_supernode

    log_to(Path(os.environ[SITE]) / LOG)
    sys.argv = sys.argv[1:]
    run_supernode(Clock(), limited, MESSAGE_BYTES + _FRAME_BYTES)


if __name__ == "__main__":
    main()
