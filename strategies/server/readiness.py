"""Which real sites can take part: each is asked before any of them answers, and books a run."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from fedcal.core.errors import InputError, RoundFailed
from fedcal.core.printable import printable
from fedcal.strategies.server.exchange import message
from fedcal.strategies.server.who import ABSENT, UNREADABLE

READY = "query.ready"
"""Flower message type: whether a real site can take part in the job of this question."""

NOT_READY = "is not ready (see its own log)"
"""All that is known of a site whose reason stays there."""

_LONGEST = 300

log = logging.getLogger("flwr")  # Flower shows its own logger to who started the run


def ask_ready(
    grid: Grid,
    names: Mapping[int, str],
    content: Mapping[str, ConfigRecord],
    number: int,
    timeout: float,
    *,
    stop: bool,
) -> dict[int, bool]:
    """Ask sites whether they can take part; log a line for each that cannot.

    Parameters
    ----------
    names
        node -> what the operator calls its site
    content
        the question that they will get; nothing in it tells of a sample
    number
        of the round
    timeout
        seconds to wait
    stop
        stop the run if one cannot

    Returns
    -------
    dict of int to bool
        Node -> whether it can. Nodes that are gone, or do not answer in time, are not in it.

    Raises
    ------
    InputError
        If sites cannot, and one has told a reason: one of its policy or columns.
    RoundFailed
        If none of them has.
    """
    asking = [message({**content}, node, READY, number, timeout) for node in sorted(names)]
    why: dict[int, str] = {}
    for reply in grid.send_and_receive(asking, timeout=timeout):
        if reply.metadata.src_node_id not in names:
            continue
        if reply.has_error() and reply.error.code in ABSENT:
            continue
        try:
            reason = printable(str(reply.content.config_records["ready"]["why"]))[:_LONGEST]
        except UNREADABLE:
            reason = NOT_READY
        why[reply.metadata.src_node_id] = reason
    unfit = {node: reason for node, reason in why.items() if reason}
    for node, reason in sorted(unfit.items(), key=lambda pair: names[pair[0]]):
        log.warning("fedcal: %s%s%s", names[node], " " if reason == NOT_READY else ": ", reason)
    if unfit and stop:
        kind = RoundFailed if set(unfit.values()) == {NOT_READY} else InputError
        raise kind(
            f"the run does not start: {', '.join(sorted(names[node] for node in unfit))} cannot "
            "take part, as the lines above say; no question was sent and nothing is booked. "
            "--without-unready continues without them"
        )
    return {node: not reason for node, reason in why.items()}
