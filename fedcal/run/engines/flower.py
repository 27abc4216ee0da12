"""Flower's messages between a server and clients in this process: no Ray, no SuperLink."""

import uuid
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedcal.clients.client_app import site_of
from fedcal.core.flower_internals import ErrorCode, TaskIdentity, set_message_id


class InProcessGrid(Grid):
    """A Flower grid whose nodes live in this process, each with its own persistent context.

    Parameters
    ----------
    app
        what every node runs
    node_ids
        one per site, in the order of the sites; the strategy never learns that order
        other than by asking
    unavailable
        (site, message) -> whether the node is gone when the message arrives
    """

    def __init__(
        self,
        app: ClientApp,
        node_ids: Sequence[int],
        unavailable: Callable[[int, Message], bool] | None = None,
    ) -> None:
        self._app = app
        self._unavailable = unavailable or (lambda site, message: False)
        self._replies: dict[str, Message] = {}
        many = len(node_ids)
        self._contexts = {
            node: Context(1, node, {"partition-id": k, "num-partitions": many}, RecordDict(), {})
            for k, node in enumerate(node_ids)
        }
        # Flower creates messages only inside a task; this is the one place that says we are one.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    def set_run(self, run: object) -> None:
        """Do nothing: an in-process grid has one run."""

    @property
    def run(self) -> Any:
        """Its number, as Flower's workflows for strategies of a `client_fn` ask for it."""
        return SimpleNamespace(run_id=1)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message to one node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes; sorted, so the order tells nothing about sites."""
        return sorted(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver each message at once and keep the reply."""
        ids = []
        for message in messages:
            set_message_id(message, uuid.uuid4().hex)
            self._replies[message.metadata.message_id] = self._deliver(message)
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to the messages with these ids."""
        return [self._replies.pop(m) for m in message_ids if m in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push the messages, then pull their replies."""
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, message: Message) -> Message:
        context = self._contexts.get(message.metadata.dst_node_id)
        error = Error(ErrorCode.NODE_UNAVAILABLE, "node unavailable")
        if context is not None and not self._unavailable(site_of(context), message):
            try:
                return self._app(message, context)
            except Exception as e:  # noqa: BLE001  Flower's runtime turns any error into a reply
                error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(e).__name__}: {e}")
        return Message(error, reply_to=message)
