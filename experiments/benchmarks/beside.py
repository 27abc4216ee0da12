"""Our work beside our peers', timed in the same run: one row a piece of work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fedcal.checks import one_of
from fedcal.experiments.benchmarks import federated, pooled
from fedcal.experiments.benchmarks.harness import Benchmark
from fedcal.experiments.benchmarks.timing import Case, Skipped, Timing, compare
from fedcal.experiments.runs import Row

REPETITIONS = 7

CASES: Mapping[str, Callable[[bool], Case]] = {
    "temperature": lambda quick: pooled.temperature(pooled.real_rows(quick), 2e-3),
    "temperature-large": lambda quick: pooled.temperature(pooled.many_classes(quick), 0.7),
    "classwise-ece": lambda quick: pooled.classwise(pooled.real_rows(quick), 0.2e-3),
    "classwise-ece-large": lambda quick: pooled.classwise(pooled.many_classes(quick), 0.1),
    "top-label-ece": lambda quick: pooled.top_label(pooled.real_rows(quick)),
    "top-label-ece-large": lambda quick: pooled.top_label(pooled.many_classes(quick)),
    "bbq": pooled.bbq,
    "round": federated.histogram_round,
    "later-round": federated.later_round,
    "population": federated.many_clients,
    "masks": federated.masked_round,
    "engine-round-100": partial(federated.engine_round, 100),
    "engine-round-500": partial(federated.engine_round, 500),
    "engine-run-100": partial(federated.engine_run, 100),
    "engine-run-500": partial(federated.engine_run, 500),
}
"""Name of `--only` -> what makes the case; its data live no longer than the row."""


def rows(only: Sequence[str] | None = None, quick: bool = False) -> Iterator[Row]:
    """Time everybody on each case.

    Yields
    ------
    dict
        `name`, `work` (its title), `target` in seconds (or None), `met`, `ours` and `peers`: name,
        median, min, repetitions, values and, of peers, ratio; or name and why it is `skipped`.
    """
    for name in only or ():
        one_of("only", name, CASES)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    for name in only or CASES:
        yield time_one(name, quick=quick)


def time_one(name: str, *, quick: bool) -> Row:
    """Prepare the data of one case and time everybody on it."""
    case = CASES[name](quick)
    target = None if quick else case.target
    ours, *others = compare((case.ours, *case.peers), 2 if quick else REPETITIONS)
    if isinstance(ours, Skipped):
        raise RuntimeError(f"{name}: {ours.reason}")
    return {
        "name": name,
        "work": case.title,
        "target": target,
        "met": None if target is None else ours.median <= target,
        "ours": _numbers(ours),
        "peers": [
            {"name": peer.name, "skipped": peer.reason}
            if isinstance(peer, Skipped)
            else _numbers(peer) | {"ratio": peer.median / ours.median}
            for peer in others
        ],
    }


def _numbers(timing: Timing) -> dict[str, Any]:
    return {
        "name": timing.name,
        "median": timing.median,
        "min": timing.least,
        "repetitions": len(timing.seconds),
        "values": timing.values,
    }


def lines(row: Row) -> list[Row]:
    """One for each peer."""
    ours = row["ours"]
    head = {
        "work": row["work"],
        "ours (median)": shown(ours["median"]),
        "least": shown(ours["min"]),
        "target": "" if row["target"] is None else f"<= {shown(row['target'])}",
        "": {None: "", True: "met", False: "missed"}[row["met"]],
        "result: ours": _values(ours),
    }
    peers = [
        {"peer": peer["name"], "peer (median)": "skipped", "peer's": peer["skipped"]}
        if "skipped" in peer
        else {
            "peer": peer["name"],
            "peer (median)": shown(peer["median"]),
            "peer's least": shown(peer["min"]),
            "peer / ours": peer["ratio"],
            "peer's": _values(peer),
        }
        for peer in row["peers"]
    ]
    return [{**head, **first} for first in peers[:1] or [{}]] + peers[1:]


def shown(seconds: float) -> str:
    """Seconds with three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _values(timed: Mapping[str, Any]) -> str:
    values = timed["values"].items()
    return ", ".join(f"{k} {v if isinstance(v, int) else f'{v:.9g}'}" for k, v in values)


BENCHMARK = Benchmark("our work beside our peers', in turns", rows, lines)
