"""Messages out, replies in: what a server does on Flower's grid, once."""

import logging
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedcal.core.checks import RoundFailed
from fedcal.core.flower_internals import get_all_nested_objects
from fedcal.core.naming import listed

_FIRST_WAIT, _LONGEST_WAIT = 0.02, 0.5
"""Seconds between looks for replies; Flower's own grid looks every three seconds."""

TELL_S = 30.0
"""Seconds after which a line says which real sites are waited for, and for what."""

log = logging.getLogger("flwr")  # Flower shows its own logger to who started the run


def message(
    content: Mapping[str, ConfigRecord | ArrayRecord], node: int, kind: str, group: int, ttl: float
) -> Message:
    """Return a message that expires when the server stops waiting for its reply (seconds)."""
    records: dict[str, Any] = dict(content)
    return Message(
        RecordDict(records), dst_node_id=node, message_type=kind, group_id=str(group), ttl=ttl
    )


class PromptGrid:
    """A Flower grid that takes replies as they come.

    Attributes
    ----------
    bytes_up, bytes_down
        of the messages so far as Flower packs them: without TLS, and without its polls
    names
        node -> what a real site is called
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.bytes_up = self.bytes_down = 0
        self.names: Mapping[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send messages and wait for one reply to each.

        A second reply to a message, or one that nobody waits for, is dropped.

        Parameters
        ----------
        messages
            to nodes
        timeout
            in seconds: what has not come by then is missing; None = an hour

        Returns
        -------
        list of Message
            Those that came, errors included.

        Raises
        ------
        RoundFailed
            If Flower takes no message at all.
        """
        sent = list(messages)
        if not sent:
            return []
        ids = zip(self._grid.push_messages(sent), sent, strict=False)
        waiting = {one: to.metadata.dst_node_id for one, to in ids if one}
        if not waiting:
            why = "are they larger than it lets through?"
            raise RoundFailed(f"Flower took none of the messages: {why}")
        replies = list[Message]()
        start, limit, wait = time.monotonic(), timeout or 3600.0, _FIRST_WAIT
        tell = TELL_S if self.names else math.inf
        while True:
            asked = time.monotonic()  # it may take long where a site was cut off in mid-reply
            for reply in self._grid.pull_messages(sorted(waiting)):
                if waiting.pop(reply.metadata.reply_to_message_id, None) is not None:
                    replies.append(reply)
            left = start + limit - time.monotonic()
            if not waiting or left <= 0:
                break
            if asked - start > tell:
                tell, what = math.inf, sent[0].metadata.message_type.rpartition(".")[2]
                late = listed(sorted({self.names.get(n, f"node {n}") for n in waiting.values()}))
                log.warning("fedcal: waiting for %s (%s), %.0f s more at most", late, what, left)
            time.sleep(min(wait, left))
            wait = min(2 * wait, _LONGEST_WAIT)
        self.bytes_down += sum(map(_size, sent))
        self.bytes_up += sum(map(_size, replies))
        return replies


def _size(message: Message) -> int:
    if message.has_error():
        return 0
    return sum(len(part.deflate()) for part in get_all_nested_objects(message).values())
