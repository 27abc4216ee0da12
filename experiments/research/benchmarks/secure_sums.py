"""What a secure sum by a committee costs each party: bytes and CPU, all parties in this process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from statistics import mean
from typing import TypeVar

import numpy as np

from fedcal.clients.site.account import CLAIMED, JobFacts
from fedcal.clients.site.party import Party
from fedcal.clients.site.store import SiteRecords
from fedcal.experiments.research.benchmarks.harness import Benchmark
from fedcal.experiments.runs.engines.grpc import simulated_roster
from fedcal.experiments.runs.sweep import Row
from fedcal.secure_aggregation.keys import SigningKey
from fedcal.secure_aggregation.messages import Contribution, sum_digest
from fedcal.units import User

SITES = ((3, 3, 2), (5, 5, 4), (20, 7, 5), (100, 7, 5), (300, 7, 5), (1000, 7, 5))
"""(sites, members of the committee, threshold)."""

NUMBERS = (5, 500, 5_000)
GOAL_MS, GOAL_SITES = 200.0, 100
"""CPU that no party needs more than, up to so many sites and the most numbers."""

_JOB, _QUESTION = "1a" * 32, "2b" * 32
_FACTS = JobFacts(_JOB, "", User.name, "", "", "", 1.0, 0.0, 1, CLAIMED, "", math.inf)

T = TypeVar("T")


def rows(quick: bool = False) -> Iterator[Row]:
    """One row for each number of sites and of numbers; quick: the small ones."""
    for sites in SITES[: 3 if quick else None]:
        for numbers in NUMBERS:
            yield measured_row(*sites, numbers)


def measured_row(sites: int, members: int, threshold: int, numbers: int) -> Row:
    """One sum: everybody contributes, all members confirm it, all open it."""
    keys = [SigningKey.generate() for _ in range(sites)]
    roster = simulated_roster(keys, members, threshold)
    drawn = np.random.Generator(np.random.Philox(key=1)).integers(
        0, 2**64, (sites, numbers), np.uint64
    )
    with ExitStack() as running:
        parties = [Party(k, roster, running.enter_context(SiteRecords(None))) for k in keys]
        enrolments = [party.enrol(_FACTS) for party in parties][:members]

        def contribute(k: int) -> bytes:
            answered, _ = parties[k].answer(_FACTS, 1, _QUESTION, enrolments, lambda: drawn[k])
            return answered

        sent, of_contributor = _timed(contribute, range(sites))
        read = [Contribution.from_bytes(text) for text in sent]
        given = [[(one.header, one.sealed[m]) for one in read] for m in range(members)]
        signed, of_confirming = _timed(
            lambda m: parties[m].confirm(_JOB, 1, sites, given[m]), range(members)
        )
        of = sum_digest(bytes.fromhex(_JOB), 1, [one.header for one in read]).hex()
        opened, of_opening = _timed(lambda m: parties[m].open(_JOB, 1, of, signed), range(members))
    return {
        "sites": sites,
        "committee": f"{members}, {threshold}",
        "numbers": numbers,
        "contributor up, bytes": len(sent[0]),
        "contributor up, times the vector": len(sent[0]) / (8 * numbers),
        "member down, bytes": sum(len(header) + len(sealed) for header, sealed in given[0]),
        "member up, bytes": len(signed[0]) + len(opened[0]),
        "contributor, CPU ms": 1e3 * of_contributor,
        "member, CPU ms": 1e3 * (of_confirming + of_opening),
    }


def _timed(work: Callable[[int], T], parties: Sequence[int]) -> tuple[list[T], float]:
    """Return the messages of all parties, and the mean CPU seconds of one."""
    said, took = list[T](), list[float]()
    for k in parties:
        began = time.process_time()
        said.append(work(k))
        took.append(time.process_time() - began)
    return said, mean(took)


def _notes(found: Sequence[Row]) -> list[str]:
    within = [row for row in found if row["sites"] <= GOAL_SITES]
    most = max(max(row["contributor, CPU ms"], row["member, CPU ms"]) for row in within)
    word = "met" if most <= GOAL_MS else "missed"
    return [
        f"up to {GOAL_SITES} sites no party needs more than {most:.0f} ms of CPU a sum "
        f"(goal {GOAL_MS:.0f} ms: {word}); records are in memory here"
    ]


BENCHMARK = Benchmark("secure sums by a committee: bytes and CPU of each party", rows, notes=_notes)
