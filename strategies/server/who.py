"""Who the nodes of a Flower grid are: what each says of its site, and why one does not."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fedcal.core.errors import RoundFailed
from fedcal.core.flower_internals import ErrorCode
from fedcal.core.printable import printable
from fedcal.queries.base import MOST_CLASSES
from fedcal.strategies.server.exchange import message
from fedcal.training.network import shape_of

WHO = "query.who"
"""Flower message type: which site is this node."""

MODEL = "model"
"""Record of such a message with the arrays of a model."""

ABSENT = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
)
"""Error replies of Flower itself: the node is gone. Every other error is the client's own."""

UNREADABLE = Exception
"""What reading a reply may raise: its bytes are the site's, and NumPy reads them as a file."""


log = logging.getLogger("flwr")  # Flower shows its own logger to who started the run


class Who(NamedTuple):
    """A node's statement about itself.

    Attributes
    ----------
    node
        Flower's random number
    site
        from 0; None = it does not know
    place
        of a real site: its number in the federation's roster; None = it is in none
    clients
        to how many a site of a simulation deals the data of the run config; None = its
        rows come from elsewhere
    classes, digest, input
        of a real site: how many classes its rows have, the digest of their names, and whether
        its model gives logits or probabilities; None of a simulated one
    inputs
        of a real site with rows to train on: the shape of one input; None = it has scores
    """

    node: int
    site: int | None = None
    place: int | None = None
    clients: int | None = None
    classes: int | None = None
    digest: str | None = None
    input: str | None = None
    inputs: tuple[int, ...] | None = None


def ask_who(
    grid: Grid,
    nodes: list[int],
    timeout: float,
    tolerant: bool = False,
    model: ArrayRecord | None = None,
) -> list[Who]:
    """Return the statements of the nodes that answer, those that know their classes first.

    A `model` goes with the question, for clients that score their rows by it.

    Raises RoundFailed if one fails to say it, and is not to be passed over (`tolerant`).
    """
    statements = []
    content = {} if model is None else {MODEL: model}
    asking = [message(content, node, WHO, 0, timeout) for node in nodes]
    for reply in grid.send_and_receive(asking, timeout=timeout):
        try:
            if not reply.has_error():
                statements.append(_who(reply))
            elif reply.error.code not in ABSENT:
                raise RoundFailed(f"a node cannot say which site it is: {reason(reply)}")
        except RoundFailed:
            if not tolerant:
                raise
            log.warning("fedcal: a site cannot identify itself; see its own log")
    return sorted(statements, key=lambda who: (who.classes is None, who.node))


def reason(reply: Message) -> str:
    """Why a client failed, in one line: the end of its text, which is a traceback under Ray."""
    lines = [line.strip() for line in str(reply.error.reason).splitlines() if line.strip()]
    last = lines[-1] if lines else "no reason given"
    return printable(last.rpartition("occurred. Message: ")[2].removesuffix("'>")[:300])


def _who(reply: Message) -> Who:
    """Return a node's statement about itself."""
    try:
        fields: Mapping[str, Any] = reply.content.config_records["who"]
        numbers = {
            key: int(fields[key])
            for key in ("site", "place", "clients", "classes")
            if key in fields
        }
        texts = {
            field: str(fields[key])
            for field, key in (("digest", "names"), ("input", "input"))
            if key in fields
        }
        if not 2 <= numbers.get("classes", 2) <= MOST_CLASSES:
            raise RoundFailed("a node reports an impossible number of classes")
        inputs = shape_of(str(fields["inputs"])) if "inputs" in fields else None
        return Who(reply.metadata.src_node_id, **numbers, **texts, inputs=inputs)  # type: ignore[arg-type]
    except RoundFailed:
        raise
    except UNREADABLE:
        raise RoundFailed("a node does not say which site it is") from None
