"""What a client sends and computes in a round: Tables 6 and 7 of Maddock et al.

Table 6 counts the numbers of a calibrator or a histogram, 8 bytes each; so does the payload that
`result.json` reports. Table 7 times a client: the same question is answered for the same clients by
the vectorised function, and by that function client by client. Seconds are those of this thread on
a core (`time.thread_time`); both ways take turns, each is repeated, and medians count. What is
computed once a run (`Shards.derived`) is there already.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from experiments.studies.rows import counted, dealt, grouped, where
from experiments.studies.spec import Record, Rows, RowsClaim, Study, study_file
from fedcal import datasets, partition
from fedcal.clients.answers import answer, contribute
from fedcal.core.checks import FedcalError, InputError
from fedcal.core.numerics import Integers, Words
from fedcal.core.shards import Shards
from fedcal.privacy import wire
from fedcal.privacy.curator import OpenRound
from fedcal.run.config import Config
from fedcal.run.engines.inline import BLOCK_NUMBERS, run_inline
from fedcal.run.jobs import job_of
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Progress
from fedcal.strategies.settings import Setting, exact_only

NETWORKS = {10: "resnet110-cifar10", 100: "densenet-cifar100"}
"""Classes -> shipped data."""

METHODS = (
    *("fedtemp", "fednewton", "fedoneshot", "fedbin", "fedbbq", "fedvector", "fedmatrix"),
    *("fedopvector", "fedcal", "fednewton-entropy", "fednewton-vector"),
    *("acct", "nllt", "ecet", "dp-histogram"),
)
"""The paper's, and those set beside them. By name, so that methods registered later change no table
of the paper."""

CLIENTS = 100
WORD = 8

PAPER_UP = {"fedtemp": 8, "fedopvector": 160, "fedcal": 44_112, "fedbbq": 20_480}
PAPER_DOWN = {**PAPER_UP, "fedbbq": 0}
"""Table 6 (c = 10) in bytes: its .01, .16, 43.08 and 20.0 kb are 1, 2 c, 5514 and 2^7 2 c numbers
of 8 bytes, in units of 1024; 5514 are the weights and biases of 10-64-64-10 neurons."""

# -- Table 6 -------------------------------------------------------------------------------------


def _bytes(quick: bool = False, progress: Progress | None = None) -> Rows:
    """One row for each question of each method.

    Parameters
    ----------
    quick
        ten classes and 3 clients only

    Returns
    -------
    list of dict
        method, classes, clients, epsilon ("inf" or "1"), query (what is asked), rounds (how often:
        a search asks the same question at several temperatures), and the payload in bytes of one
        client in one of these rounds, the largest, `numbers_up` and `numbers_down`; `paper_up`,
        `paper_down` (None where Table 6 has nothing)
    """
    networks = (10,) if quick else tuple(NETWORKS)
    runs = product(networks, variants(), ("inf", "1"))
    todo = [run for run in runs if run[2] == "inf" or run[1][1] not in exact_only()]
    done: Rows = []
    for classes, (title, method, settings), epsilon in counted(todo, progress):
        shards = _shards(classes, 3 if quick else CLIENTS)
        known = {"method": title, "classes": classes, "clients": shards.clients, "epsilon": epsilon}
        for sizes in sizes_of(job_for(method, settings, shards, float(epsilon)), shards):
            # its FedBBQ sends a table for each class, and the paper takes class counts to be free
            there = classes == 10 and title != "fedbbq" and sizes["query"] != "class_counts"
            up, down = (of.get(method) if there else None for of in (PAPER_UP, PAPER_DOWN))
            done.append(known | sizes | {"paper_up": up, "paper_down": down})
    return done


def variants() -> list[tuple[str, str, dict[str, Setting]]]:
    """(title, method, settings): each of `METHODS`, and FedBBQ as in Table 6."""
    plain: list[tuple[str, str, dict[str, Setting]]] = [(name, name, {}) for name in METHODS]
    table: dict[str, Setting] = {"tables": "per_class", "bins_exponent": 7}
    return plain + [
        (f"fedbbq[tables=per_class,weighting={w}]", "fedbbq", table | {"weighting": w})
        for w in ("none", "all")
    ]


def job_for(
    method: str, settings: Mapping[str, Setting], shards: Shards, epsilon: float = math.inf
) -> Job:
    """One round of a method, or its own number of rounds where it needs more."""
    config = Config(
        method=method, rounds=1, epsilon=epsilon, secure_aggregation="none", set=settings
    )
    try:
        job = job_of(config, shards)
        job.plan  # noqa: B018  refuses a number of rounds
    except InputError:
        return job_of(replace(config, rounds=None), shards)
    return job


def sizes_of(job: Job, shards: Shards) -> Rows:
    """Run a method and count the payload of each of its questions.

    Rounds that ask the same are one row, and their payloads count by the largest.
    """
    found: dict[str, Record] = {}

    def sum_of(asked: OpenRound, alive: Integers) -> Words:
        request = asked.request
        row = found.setdefault(request.query.kind, {"query": request.query.kind, "rounds": 0})
        row["rounds"] += 1
        for key, size in (
            ("numbers_up", WORD * request.bound.length),
            ("numbers_down", wire.payload_bytes(request)),
        ):
            row[key] = max(size, row.get(key, 0))
        total: Words = contribute(shards, request, alive).sum(axis=0, dtype=np.uint64)
        return total

    run_inline(job.strategy(), shards, sum_of=sum_of)
    return list(found.values())


def _bytes_claims(table: Rows) -> Iterator[RowsClaim]:
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
        all(r["numbers_up"] - r["paper_up"] in (0, WORD) for r in plain),
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


@lru_cache(maxsize=2)
def _shards(classes: int, clients: int) -> Shards:
    data = datasets.load(NETWORKS[classes]).split(0)
    return partition.deal(data, "dirichlet:0.1", clients, 0)


table6 = Study(_bytes, _bytes_claims)

# -- Table 7 -------------------------------------------------------------------------------------

POPULATIONS = ((100, 50), (1_000, 5), (10_000, 5))
"""(clients, rows of each on average). The paper's clients have some 70 rows."""

PAPER: Mapping[str, float] = {
    title.lower(): values[0][0]
    for title, values in study_file("maddock")["printed"]["table7"]["rows"].items()
}
"""Mean seconds of a client in a round, CIFAR-10 (ResNet18)."""

SAMPLE, REPEATS = 50, 5
"""Clients that are answered one by one; how often each way is timed."""


def _seconds(quick: bool = False, progress: Progress | None = None) -> Rows:
    """One row for each method and population (quick: 8 clients of 5 rows, once).

    Returns
    -------
    list of dict
        method, clients, rows (a client's, on average), numbers (of its answer), and CPU seconds
        per client of one round at epsilon = 1: `vectorised` in the inline engine's blocks, `loop`
        client by client; `ratio` = loop / vectorised; `paper`: Table 7's mean or None
    """
    populations = [population(*size) for size in (((8, 5),) if quick else POPULATIONS)]
    private = [name for name in METHODS if name not in exact_only()]
    todo = counted(product(populations, private), progress)
    return [timed_row(method, shards, 1 if quick else REPEATS) for shards, method in todo]


def population(clients: int, mean_rows: int) -> Shards:
    """Rows of the CIFAR-10 network, with replacement, dealt by Dirichlet(0.1)."""
    data, rng = datasets.load(NETWORKS[10]), np.random.default_rng(0)
    pick = rng.integers(0, len(data.labels), clients * mean_rows)
    return dealt(data.logits, data.labels, pick, clients, rng)


def timed_row(method: str, shards: Shards, repeats: int) -> Record:
    """Time one method on one population.

    Raises
    ------
    FedcalError
        If a client alone computes other bits than among others: then there is nothing to
        compare.
    """
    asked: Any = job_for(method, {}, shards, 1.0).strategy().open_round(1)
    request, rng = asked.request, np.random.default_rng(0)
    some = np.sort(rng.choice(shards.clients, min(SAMPLE, shards.clients), replace=False))
    single = [shards.block(k, k + 1) for k in some.tolist()]
    alone = np.concatenate([answer(s, request) for s in single])
    if not np.array_equal(alone, answer(shards.take(some), request)):
        raise FedcalError(f"{method}: a client alone computes other bits than among others")
    size = max(1, BLOCK_NUMBERS // request.bound.length)
    blocks = [part for _, part in shards.blocks(np.arange(shards.clients), size)]

    def clocked(parts: Iterable[Shards]) -> float:
        start = time.thread_time()
        for part in parts:
            answer(part, request)
        return time.thread_time() - start

    ways: dict[str, Callable[[], float]] = {
        "loop": lambda: clocked(single) / len(single),
        "vectorised": lambda: clocked(blocks) / shards.clients,
    }
    for way in ways.values():
        way()  # warms up
    taken = [[way() for way in ways.values()] for _ in range(repeats)]
    loop, vectorised = np.median(taken, axis=0).tolist()
    return {
        "method": method,
        "clients": shards.clients,
        "rows": len(shards.labels) / shards.clients,
        "numbers": request.bound.length,
        **{"vectorised": vectorised, "loop": loop},
        "ratio": loop / vectorised if vectorised else None,
        "paper": PAPER.get(method),
    }


def _seconds_claims(table: Rows) -> Iterator[RowsClaim]:
    """Test Table 7 (A.6) on our first population, and the vectorised speed-up on each.

    Seconds depend on the machine, so that only claims that hold or fail by far are made here.
    """
    sizes = grouped(table, "clients", "rows")
    first = {r["method"]: r["loop"] for r in next(iter(sizes.values()))}
    slowest = max(first, key=first.__getitem__)
    scaling = sorted(("fedcal", "fedtemp", "fedopvector"), key=first.__getitem__)
    yield (
        "A client needs at most 0.1 seconds for a round",
        first[slowest] <= 0.1,
        f"the slowest, {slowest}, needs {first[slowest]:.2g}",
    )
    yield (
        "FedCal is the fastest of FedCal, FedTemp and FedOPVector",
        scaling[0] == "fedcal",
        ", ".join(f"{m} {1000 * first[m]:.2g} ms" for m in scaling),
    )
    for (clients, mean), mine in sizes.items():
        slow = [f"{r['method']} {r['ratio']:.3g}" for r in mine if r["ratio"] and r["ratio"] < 50]
        yield (
            f"{clients:,} clients of {mean:.3g} rows: many at once are 50 times as fast as calls "
            "of the same function for one client at a time",
            not slow,
            f"not for {', '.join(slow)}" if slow else "for every method",
        )


table7 = Study(_seconds, _seconds_claims)
