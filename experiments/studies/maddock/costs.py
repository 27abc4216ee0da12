"""Bytes that a client sends in a round, and its time: Tables 6 and 7 of Maddock et al.

Bytes are those of the numbers of a calibrator or a histogram, 8 each, as in the payload that
`result.json` reports. The time is that of all clients' sums together, divided by their number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np

from experiments.studies.rows import counted, where
from experiments.studies.spec import Record, Rows, RowsClaim, Study, study_file
from fedcal import datasets, partition
from fedcal.clients.answers import contribute
from fedcal.core.checks import InputError
from fedcal.core.numerics import Integers, Words
from fedcal.core.shards import Shards
from fedcal.privacy import wire
from fedcal.privacy.curator import OpenRound
from fedcal.run.comparison.grid import Variant
from fedcal.run.config import Config
from fedcal.run.engines.inline import run_inline
from fedcal.run.jobs import job_of
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Progress
from fedcal.strategies.settings import Setting, exact_only

NETWORKS = {10: "resnet110-cifar10", 100: "densenet-cifar100"}
"""Classes -> shipped data."""

VARIANTS = {
    title: Variant.parse(text) for title, text in study_file("maddock")["shared"]["sent"].items()
}
"""The paper's methods, and those set beside them. By name, so that methods registered later change
no table of the paper."""

CLIENTS = 100
WORD = 8

PAPER_UP = {"fedtemp": 8, "fedopvector": 160, "fedcal": 44_112, "fedbbq": 20_480}
PAPER_DOWN = {**PAPER_UP, "fedbbq": 0}
"""Table 6 (c = 10) in bytes: its .01, .16, 43.08 and 20.0 kb are 1, 2 c, 5514 and 2^7 2 c numbers
of 8 bytes, in units of 1024; 5514 are the weights and biases of 10-64-64-10 neurons."""


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
        client in one of these rounds, the largest, `numbers_up` and `numbers_down`; `seconds` of
        the processor, a client's mean in the slowest of these rounds; `paper_up`, `paper_down`
        (None where Table 6 has nothing)
    """
    networks = (10,) if quick else tuple(NETWORKS)
    runs = product(networks, VARIANTS.items(), ("inf", "1"))
    todo = [run for run in runs if run[2] == "inf" or run[1][1].method not in exact_only()]
    done: Rows = []
    for classes, (title, variant), epsilon in counted(todo, progress):
        shards = _shards(classes, 3 if quick else CLIENTS)
        known = {"method": title, "classes": classes, "clients": shards.clients, "epsilon": epsilon}
        method, settings = variant.method, dict(variant.settings)
        for sizes in sizes_of(job_for(method, settings, shards, float(epsilon)), shards):
            # its FedBBQ sends a table for each class, and the paper takes class counts to be free
            there = classes == 10 and title != "fedbbq" and sizes["query"] != "class_counts"
            up, down = (of.get(method) if there else None for of in (PAPER_UP, PAPER_DOWN))
            done.append(known | sizes | {"paper_up": up, "paper_down": down})
    return done


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
        begun = time.process_time()
        total: Words = contribute(shards, request, alive).sum(axis=0, dtype=np.uint64)
        for key, size in (
            ("seconds", (time.process_time() - begun) / len(alive)),
            ("numbers_up", WORD * request.bound.length),
            ("numbers_down", wire.payload_bytes(request)),
        ):
            row[key] = max(size, row.get(key, 0))
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
    spent = [r["seconds"] for r in table if r["classes"] == 10]
    yield (
        "No method takes a client more than 0.125 s a round (table 7)",
        max(spent) <= 0.125,
        f"at most {max(spent):.4f} s",
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
