"""What a client really sends and gets in a round: Flower's messages, in bytes.

Maddock et al. count the numbers of a calibrator or a histogram (Table 6), 8 bytes each. Here one
run of each method goes through Flower's own loop and in-process grid, and the messages are
serialised as they would be to leave the process. Three sizes, from within:

* `numbers`: 8 bytes a number and 1 a character, what `result.json` reports as payload;
* `record`: the message's content as Flower's protocol buffer (`RecordDict`);
* `objects`: the parts that Flower stores and ships one by one in a deployment (message with its
  metadata, record dicts, arrays, chunks). Calls, TLS and acknowledgements come on top.

Not counted: the question which site a node is (once a run), the model, the context of a question
(which run, under which plan and budget it is asked), and what a key agreement of a real secure
aggregation would send. Simulated masks cost no bytes up, a masked word is a
word; they cost the list of who takes part down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

from flwr.app import Message
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_to_proto

from fedcal import datasets, partition
from fedcal.clients.client_app import client_app, site_of
from fedcal.core.checks import InputError
from fedcal.core.shards import Shards
from fedcal.experiments.research.studies.rows import counted, where
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.experiments.runs.config import Config
from fedcal.experiments.runs.engines.flower import InProcessGrid
from fedcal.experiments.runs.jobs import job_of
from fedcal.privacy import wire
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Progress
from fedcal.strategies.server.transport import ANSWER
from fedcal.strategies.settings import Setting, exact_only

NETWORKS = {10: "resnet110-cifar10", 100: "densenet-cifar100"}
"""Classes -> shipped data."""

METHODS = (
    *("fedtemp", "fednewton", "fedoneshot", "fedbin", "fedbbq", "fedvector", "fedmatrix"),
    *("fedopvector", "fedcal", "fednewton-entropy", "fednewton-vector"),
    *("acct", "nllt", "ecet", "dp-histogram"),
)
"""Methods of Tables 6 and 7: the paper's, and those set beside them. By name, so that methods
registered later change no table of the paper."""

CLIENTS = 100
_FIRST_NODE = 2**62  # node ids are random 64-bit numbers in Flower; these are as long as most
_WORD = 8

PAPER_UP = {"fedtemp": 8, "fedopvector": 160, "fedcal": 44_112, "fedbbq": 20_480}
PAPER_DOWN = {**PAPER_UP, "fedbbq": 0}
"""Table 6 (c = 10) in bytes: its .01, .16, 43.08 and 20.0 kb are 1, 2 c, 5514 and 2^7 2 c numbers
of 8 bytes, in units of 1024; 5514 are the weights and biases of 10-64-64-10 neurons."""


def rows(quick: bool = False, progress: Progress | None = None) -> Rows:
    """One row for each question of each method.

    Parameters
    ----------
    quick
        ten classes and 3 clients only
    progress
        called after each method

    Returns
    -------
    list of dict
        method, classes, clients, epsilon ("inf" or "1"), query (what is asked), rounds (how often:
        a search asks the same question at several temperatures), and in bytes of one client in
        one of these rounds, the largest: for `_up` and `_down` the `numbers`, `record` and
        `objects` of the module's table; `record_down_masks`, `objects_down_masks` with simulated
        secure aggregation (up they are the same); `paper_up`, `paper_down` (None where Table 6
        has nothing). `over` is record_up / numbers_up.
    """
    networks = (10,) if quick else tuple(NETWORKS)
    todo = [
        run
        for run in product(networks, variants(), ("inf", "1"))
        if run[2] == "inf" or run[1][1] not in exact_only()
    ]
    runs = counted(todo, progress)
    done: Rows = []
    for classes, (title, method, settings), epsilon in runs:
        shards = _shards(classes, 3 if quick else CLIENTS)
        known = {"method": title, "classes": classes, "clients": shards.clients, "epsilon": epsilon}
        plain, masked = (
            sizes_of(job_for(method, settings, shards, epsilon=float(epsilon), masks=m), shards)
            for m in (False, True)
        )
        for sizes, with_masks in zip(plain, masked, strict=True):
            # its FedBBQ sends a table for each class, and the paper takes class counts to be free
            there = classes == 10 and title != "fedbbq" and sizes["query"] != "class_counts"
            paper = [of.get(method) if there else None for of in (PAPER_UP, PAPER_DOWN)]
            done.append(
                known
                | sizes
                | {f"{size}_down_masks": with_masks[f"{size}_down"] for size in _WEIGH}
                | {"paper_up": paper[0], "paper_down": paper[1]}
                | {"over": sizes["record_up"] / sizes["numbers_up"]}
            )
    return done


def variants() -> list[tuple[str, str, dict[str, Setting]]]:
    """(title, method, settings): each of `METHODS`, and FedBBQ as in Table 6."""
    plain: list[tuple[str, str, dict[str, Setting]]] = [(name, name, {}) for name in METHODS]
    return plain + [
        (
            f"fedbbq[tables=per_class,weighting={weighting}]",
            "fedbbq",
            {"tables": "per_class", "bins_exponent": 7, "weighting": weighting},
        )
        for weighting in ("none", "all")
    ]


def job_for(
    method: str,
    settings: Mapping[str, Setting],
    shards: Shards,
    *,
    epsilon: float = math.inf,
    masks: bool = False,
) -> Job:
    """One round of a method, or its own number of rounds where it needs more."""
    config = Config(
        method=method,
        rounds=1,
        epsilon=epsilon,
        secure_aggregation="masks" if masks else "none",
        set=settings,
    )
    try:
        job = job_of(config, shards)
        job.plan  # noqa: B018  refuses a number of rounds
    except InputError:
        return job_of(replace(config, rounds=None), shards)
    return job


def sizes_of(job: Job, shards: Shards) -> Rows:
    """Run a method over Flower's messages and weigh those of each of its questions.

    Rounds that ask the same are one row, and messages of rounds and clients count by the largest.

    Parameters
    ----------
    shards
        one shard for each of the job's clients

    Raises
    ------
    RoundFailed
        As the run does.
    """
    single = [shards.block(k, k + 1) for k in range(shards.clients)]
    grid = _Scales(client_app(lambda context: single[site_of(context)]), shards.clients)
    job.strategy().start(grid)
    found: dict[str, Record] = {}
    for sent, received in grid.rounds:
        records = sent[0].content.config_records
        request = wire.from_fields(records["query"], records["context"])
        for message in sent:
            del message.content["context"]
        down = wire.payload_bytes(request)
        sizes = {"numbers_up": _WORD * request.bound.length, "numbers_down": down}
        for (way, messages), size in product((("up", received), ("down", sent)), _WEIGH):
            sizes[f"{size}_{way}"] = max(map(_WEIGH[size], messages))
        kind = request.query.kind
        before = found.get(kind, {"rounds": 0})
        largest = {size: max(count, before.get(size, 0)) for size, count in sizes.items()}
        found[kind] = {"query": kind, "rounds": before["rounds"] + 1} | largest
    return list(found.values())


def claims(table: Rows) -> Iterator[RowsClaim]:
    """Table 6 in bytes, and the order of the methods that the paper reads off it (A.6)."""
    ours = [r for r in table if r["paper_up"] is not None]
    private, plain = (where(ours, epsilon=e) for e in ("1", "inf"))
    yield (
        "With privacy the payload up is the paper's, to the byte",
        all(r["numbers_up"] == r["paper_up"] for r in private),
        _against(private, "up"),
    )
    yield (
        "Without privacy it is the paper's, but for one number where the server must know who "
        "replied with rows",
        all(r["numbers_up"] - r["paper_up"] in (0, _WORD) for r in plain),
        _against(plain, "up"),
    )
    yield (
        "The payload down is the paper's: parameters alone",
        all(r["numbers_down"] == r["paper_down"] for r in private),
        _against(private, "down") + "; our question names itself, its parameters and bound",
    )
    up = {r["method"].partition("[")[0]: r["numbers_up"] for r in private}
    yield (
        "FedBBQ sends more than FedTemp and FedOPVector and less than FedCal",
        max(up["fedtemp"], up["fedopvector"]) < up["fedbbq"] < up["fedcal"],
        ", ".join(f"{name} {up[name]:,}" for name in sorted(up, key=up.__getitem__)),
    )


def _against(table: Iterable[Record], direction: str) -> str:
    """Bytes of each method against the paper's."""
    ours, paper = f"numbers_{direction}", f"paper_{direction}"
    return ", ".join(f"{r['method']} {r[ours]:,} (paper: {r[paper]:,})" for r in table)


class _Scales(InProcessGrid):
    """Keeps the messages of each round's question."""

    def __init__(self, app: ClientApp, clients: int) -> None:
        super().__init__(app, range(_FIRST_NODE, _FIRST_NODE + clients))
        self.rounds: list[tuple[list[Message], list[Message]]] = []

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send as the base grid does, and record questions and answers."""
        sent = list(messages)
        received = list(super().send_and_receive(sent, timeout=timeout))
        if sent and sent[0].metadata.message_type == ANSWER:
            self.rounds.append((sent, received))
        return received


def _objects(message: Message) -> int:
    parts: dict[str, int] = {}
    waiting: list[Any] = [message]
    while waiting:
        part = waiting.pop()
        parts[part.object_id] = len(part.deflate())
        waiting += (part.children or {}).values()
    return sum(parts.values())


_WEIGH: Mapping[str, Callable[[Message], int]] = {
    "record": lambda message: int(recorddict_to_proto(message.content).ByteSize()),
    "objects": _objects,
}


@lru_cache(maxsize=2)
def _shards(classes: int, clients: int) -> Shards:
    data = datasets.load(NETWORKS[classes]).split(0)
    return partition.deal(data, "dirichlet:0.1", clients, 0)
