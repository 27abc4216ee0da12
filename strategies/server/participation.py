"""Messages to the nodes of a Flower grid, their replies, and the participation of sites.

Where the epsilon counts on a secret sample, the sites that were asked, those that answered, and
their number are never shown: only sites that were never there are named. Nodes identify themselves
in each round, whoever is sampled, so that this tells nothing of the sample.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedcal.core import flower_internals, options
from fedcal.core.checks import InputError, RoundFailed
from fedcal.core.naming import printable
from fedcal.secure_aggregation.roster import Roster

SITE_INFO = "query.who"
"""Flower message type: which site is this node."""

MODEL = "model"
"""Record of such a message with the arrays of a model."""

_CODE = flower_internals.ErrorCode
ABSENT = _CODE.MESSAGE_UNAVAILABLE, _CODE.REPLY_MESSAGE_UNAVAILABLE, _CODE.NODE_UNAVAILABLE
"""Error replies of Flower itself: the node is gone. Every other error is the client's own."""

UNREADABLE = Exception
"""Errors of reading a reply: any, for its bytes are the site's, and NumPy reads them as a file."""
_FIRST_WAIT, _LONGEST_WAIT = 0.02, 0.5
"""Seconds between looks for replies; Flower's own grid looks every three seconds."""

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
    """A Flower grid that takes replies as they come."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Return one reply to each message, as far as they come within `timeout` s (None: an hour).

        Errors are among them. A second reply to a message, or one that nobody waits for, is
        dropped. Raises RoundFailed if Flower takes no message at all.
        """
        sent = list(messages)
        waiting = {one for one in self._grid.push_messages(sent) if one} if sent else set()
        if sent and not waiting:
            why = "are they larger than it lets through?"
            raise RoundFailed(f"Flower took none of the messages: {why}")
        replies = list[Message]()
        deadline, wait = time.monotonic() + (timeout or 3600.0), _FIRST_WAIT
        while waiting:
            for reply in self._grid.pull_messages(sorted(waiting)):
                if (one := reply.metadata.reply_to_message_id) in waiting:
                    waiting.remove(one)
                    replies.append(reply)
            if (left := deadline - time.monotonic()) <= 0:
                break
            time.sleep(min(wait, left) if waiting else 0)
            wait = min(2 * wait, _LONGEST_WAIT)
        return replies


class NodeInfo(NamedTuple):
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
    partition, supernode, error
        of a client of a Flower app: its partition id, its SuperNode's name if it has one, and the
        kind of error where it cannot score its rows
    """

    node: int
    site: int | None = None
    place: int | None = None
    clients: int | None = None
    classes: int | None = None
    digest: str | None = None
    input: str | None = None
    partition: int | None = None
    supernode: str = ""
    error: str = ""

    @property
    def name(self) -> str:
        """Name of a Flower app's client."""
        place = f"node {self.node}" if self.partition is None else f"partition {self.partition}"
        return self.supernode or place


def ask_node_info(
    grid: Grid,
    nodes: list[int],
    timeout: float,
    tolerant: bool = False,
    model: ArrayRecord | None = None,
    private: bool = False,
) -> list[NodeInfo]:
    """Return the statements of the nodes that answer, in the order of their partitions.

    A `model` goes with the question, for clients that score their rows by it.

    Raises RoundFailed if one fails to say it, and is not to be passed over (`tolerant`).
    """
    statements, content, names = list[NodeInfo](), dict[str, Any](), dict[int, str]()
    if model is not None:
        content = {MODEL: model, "context": ConfigRecord({"private": private})}
        names = {node.node_id: node.name for node in grid.get_nodes()}
    asking = [message(content, node, SITE_INFO, 0, timeout) for node in nodes]
    for reply in grid.send_and_receive(asking, timeout=timeout):
        node = reply.metadata.src_node_id
        try:
            if not reply.has_error():
                statements.append(_node_info(reply)._replace(supernode=names.get(node, "")))
            elif reply.error.code not in ABSENT:
                raise RoundFailed(f"a node cannot say which site it is: {reason(reply)}")
        except RoundFailed as e:
            if model is not None:
                why = f"{e} (does its app come from fedcal.with_answers?)"
                statements.append(NodeInfo(node, supernode=names.get(node, ""), error=why))
            elif not tolerant:
                raise
            else:
                log.warning("fedcal: a site cannot identify itself; see its own log")
    return sorted(statements, key=lambda at: (at.partition or 0, at.classes is None, at.node))


def reason(reply: Message) -> str:
    """Return in one line why a client failed: the end of its text, under Ray a traceback."""
    last = (str(reply.error.reason).strip() or "no reason given").splitlines()[-1]
    return printable(last.rpartition("occurred. Message: ")[2].removesuffix("'>")[:300])


def _node_info(reply: Message) -> NodeInfo:
    """Return a node's statement about itself."""
    try:
        record: Mapping[str, Any] = reply.content.config_records["who"]
        known = ("site", "place", "clients", "classes", "partition")
        counts: dict[str, Any] = {k: int(record[k]) for k in known if k in record}
        counts |= {k: printable(str(record[k]))[:300] for k in ("input", "error") if k in record}
        if not 2 <= counts.get("classes", 2) <= options.MOST_CLASSES:
            raise RoundFailed("a node reports an impossible number of classes")
        digest = str(record["names"]) if "names" in record else None
        return NodeInfo(reply.metadata.src_node_id, **counts, digest=digest)
    except RoundFailed:
        raise
    except UNREADABLE:
        raise RoundFailed("a node does not say which site it is") from None


@dataclass
class Participation:
    """Sites by their numbers, from 0.

    Attributes
    ----------
    there
        were met, and able to take part
    asked, answered
        round -> sites that were asked, and whose answers are in its sum; {} of a secret sample
    """

    there: set[int] = field(default_factory=set)
    asked: dict[int, list[int]] = field(default_factory=dict)
    answered: dict[int, list[int]] = field(default_factory=dict)

    def note(self, number: int, asked: Iterable[int], answered: Iterable[int]) -> None:
        """Keep which sites were in a round, in place of an earlier try of the same round."""
        self.asked[number], self.answered[number] = sorted(asked), sorted(answered)

    def to_json(self) -> dict[str, Any]:
        """Return the participation as plain values for JSON, which writes the rounds as texts."""
        return {**vars(self), "there": sorted(self.there)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the participation; KeyError, TypeError or ValueError for malformed values."""
        rounds = (
            {int(k): list(map(int, sites)) for k, sites in plain[key].items()}
            for key in ("asked", "answered")
        )
        return cls(set(map(int, plain["there"])), *rounds)

    def to_result(self, names: Sequence[str], *, secret: bool) -> dict[str, Any]:
        """Return the key `sites` of `result.json`.

        Parameters
        ----------
        names
            of all enrolled sites, by number
        secret
            whether the sample of a round is

        Returns
        -------
        dict
            `enrolled`; `answered`, how many sites are in a sum (None = secret); `absent`, names of
            those that took no part; `missed`, name -> rounds that other sites were asked in and did
            not answer.
        """
        in_sums = {site for sites in self.answered.values() for site in sites}
        ever_asked = {site for sites in self.asked.values() for site in sites}
        here = in_sums | (self.there if secret else self.there - ever_asked)
        missed = {
            names[k]: [n for n, of in self.asked.items() if k in set(of) - set(self.answered[n])]
            for k in sorted(in_sums)
        }
        return {
            "enrolled": len(names),
            "answered": None if secret else len(in_sums),
            "absent": [name for k, name in enumerate(names) if k not in here],
            "missed": {name: rounds for name, rounds in missed.items() if rounds},
        }


def names_of(roster: str, clients: int) -> tuple[str, ...]:
    """Return the sites' names by number: the roster's, or "site 3" without a roster."""
    if roster:
        return tuple(site.name for site in Roster.from_text(roster).sites)
    return tuple(f"site {k}" for k in range(clients))


READY = "query.ready"
"""Flower message type: whether a real site can take part in the job of this question."""

NOT_READY = "is not ready (see its own log)"
"""All that is known of a site whose reason stays there."""

_LONGEST = 300


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
        node, gone = reply.metadata.src_node_id, reply.has_error() and reply.error.code in ABSENT
        if node in names and not gone:
            try:
                why[node] = printable(str(reply.content.config_records["ready"]["why"]))[:_LONGEST]
            except UNREADABLE:
                why[node] = NOT_READY
    unfit = {node: reason for node, reason in why.items() if reason}
    for node, reason in sorted(unfit.items(), key=lambda pair: names[pair[0]]):
        log.warning("fedcal: %s%s%s", names[node], " " if reason == NOT_READY else ": ", reason)
    if unfit and stop:
        kind = RoundFailed if set(unfit.values()) == {NOT_READY} else InputError
        unready = ", ".join(sorted(names[node] for node in unfit))
        so = "no question was sent and nothing is booked. --without-unready continues without them"
        why_not = f"{unready} cannot take part, as the lines above say"
        raise kind(f"the run does not start: {why_not}; {so}")
    return {node: not reason for node, reason in why.items()}
