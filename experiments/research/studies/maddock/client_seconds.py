"""What a round costs a client in seconds, and what answering many clients at once saves.

Maddock et al. time a client of each method (Table 7). Here the same question is answered for the
same clients by the vectorised function, by that function client by client, and through Flower's
messages; FedTemp's local optimum also the plain way, by SciPy's scalar minimiser with at most 50
iterations, as the paper has it.

Seconds are those of this thread on a core (`time.thread_time`): on an idle machine they are what
a clock shows, and on a busy one they leave out what others took, but not that others displace
our data from the cache. The ways take turns within one run; each is repeated, and medians count.
*Warm* means that what is computed once a run (`Shards.derived`: softmax, histogram cells) is
there already, *cold* that it is not; both are given for both sides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from fedcal import datasets
from fedcal.clients.answers import answer
from fedcal.clients.client_app import client_app, site_of
from fedcal.core.checks import FedcalError
from fedcal.core.numerics import LOG_A_LIMIT, label_entries, row_sum, shifted
from fedcal.core.shards import Shards
from fedcal.experiments.research.benchmarks.timing import SLOW
from fedcal.experiments.research.studies.maddock.bytes_sent import METHODS, job_for
from fedcal.experiments.research.studies.registry import study
from fedcal.experiments.research.studies.rows import counted, dealt, grouped
from fedcal.experiments.research.studies.spec import Record, Rows, RowsClaim
from fedcal.experiments.runs.engines.flower import InProcessGrid
from fedcal.experiments.runs.engines.inline import BLOCK_NUMBERS
from fedcal.privacy import wire
from fedcal.privacy.request import Request
from fedcal.strategies.server.outcome import Progress
from fedcal.strategies.server.transport import ANSWER
from fedcal.strategies.settings import exact_only

DATA = "resnet110-cifar10"
POPULATIONS = ((100, 50), (1_000, 5), (10_000, 5))
"""(clients, rows of each on average). The paper's clients have some 70 rows."""

PAPER: Mapping[str, list[float | None]] = {
    title.lower(): [value for (value,) in values]
    for title, values in study("maddock")["printed"]["table7"]["rows"].items()
}
"""Table 7: mean, least and most seconds of a client in a round, CIFAR-10 (ResNet18)."""

SAMPLE = 50
"""Clients that are answered one by one."""

IN_CACHE = 1 << 16
"""Logits in a block that stays in a core's cache with what is computed from them (512 KiB)."""

_REPEATS = 5

Way = Callable[[], Iterable[Callable[[], object]]]
"""Prepares the work once; its pieces are timed one by one."""

_PAPER = ("paper", "paper_min", "paper_max")
_RATIOS = {
    "ratio": ("loop", "vectorised"),
    "ratio_cold": ("loop_cold", "vectorised_cold"),
    "ratio_small": ("loop", "vectorised_small"),
    "ratio_flower": ("flower", "vectorised"),
    "ratio_scipy": ("scipy", "vectorised"),
}
"""Of which seconds to which."""


def rows(quick: bool = False, progress: Progress | None = None) -> Rows:
    """One row for each method and population.

    Parameters
    ----------
    quick
        8 clients of 5 rows, once
    progress
        called after each row

    Returns
    -------
    list of dict
        method, clients, rows (a client's, on average), numbers (of its answer), and CPU seconds
        per client of one round at epsilon = 1:
        `vectorised`, `vectorised_cold` in the inline engine's blocks; `vectorised_small` in
        blocks of at most `IN_CACHE` logits (warm); `loop`, `loop_min`, `loop_max`, `loop_cold`
        client by client; `flower` through messages (warm); `scipy` (FedTemp, else None);
        `ratio` = loop / vectorised, `ratio_cold`, `ratio_small`, `ratio_flower`,
        `ratio_scipy` likewise; `ratio_least` of the fastest repetitions instead of medians (what
        disturbs a clock only ever adds to it); `paper`, `paper_min`, `paper_max`: Table 7 or None.
    """
    populations = [population(*size) for size in (((8, 5),) if quick else POPULATIONS)]
    private = [name for name in METHODS if name not in exact_only()]
    todo = counted(product(populations, private), progress)
    return [row(method, shards, 1 if quick else _REPEATS) for shards, method in todo]


def population(clients: int, mean_rows: int, seed: int = 0) -> Shards:
    """Rows of the CIFAR-10 network, with replacement, dealt by Dirichlet(0.1)."""
    data = datasets.load(DATA)
    rng = np.random.default_rng(seed)
    pick = rng.integers(0, len(data.labels), clients * mean_rows)
    return dealt(data.logits, data.labels, pick, clients, rng)


def row(method: str, shards: Shards, repeats: int) -> Record:
    """Time one method on one population; see `rows`.

    Raises
    ------
    FedcalError
        If a client alone computes other bits than among others: then there is nothing to
        compare.
    """
    asked = job_for(method, {}, shards, epsilon=1.0).strategy().open_round(1)
    if asked is None:
        raise FedcalError(f"{method} asks nothing")
    request = asked.request
    rng = np.random.default_rng(0)
    some = np.sort(rng.choice(shards.clients, min(SAMPLE, shards.clients), replace=False))
    single = [shards.block(k, k + 1) for k in some.tolist()]
    alone = np.concatenate([answer(s, request) for s in single])
    if not np.array_equal(alone, answer(shards.take(some), request)):
        raise FedcalError(f"{method}: a client alone computes other bits than among others")
    size = max(1, BLOCK_NUMBERS // request.bound.length)
    cached = int(IN_CACHE / max(1.0, shards.logits.size / shards.clients))
    warm, small = (list(_blocks(shards, n)) for n in (size, min(size, max(1, cached))))

    def answer_all(parts: Iterable[Shards]) -> None:
        for part in parts:
            answer(part, request)

    def answer_one(fresh: Shards, k: int) -> None:
        answer(fresh.block(k, k + 1), request)

    def cold() -> list[Callable[[], object]]:
        fresh = _fresh(shards)
        return [partial(answer_one, fresh, k) for k in some.tolist()]

    ways: dict[str, Way] = {
        "vectorised": lambda: [partial(answer_all, warm)],
        "vectorised_small": lambda: [partial(answer_all, small)],
        "vectorised_cold": lambda: [partial(answer_all, _blocks(shards, size))],
        "loop": lambda: [partial(answer, shard, request) for shard in single],
        "loop_cold": cold,
        "flower": _through_messages(single, request),
    }
    if method == "fedtemp":
        ways["scipy"] = lambda: [partial(scipy_log_a, shard) for shard in single]
    taken = _in_turns(ways, repeats)
    answered = {n: shards.clients if n.startswith("vectorised") else len(some) for n in ways}
    sums = {name: seconds.sum(axis=1) / answered[name] for name, seconds in taken.items()}
    medians = {name: float(np.median(seconds)) for name, seconds in sums.items()}
    each = np.median(taken["loop"], axis=0)
    return {
        "method": method,
        "clients": shards.clients,
        "rows": len(shards.labels) / shards.clients,
        "numbers": request.bound.length,
        "scipy": None,
        **medians,
        **{"loop_min": float(each.min()), "loop_max": float(each.max())},
        **{k: medians[a] / medians[b] if a in ways else None for k, (a, b) in _RATIOS.items()},
        "ratio_least": float(sums["loop"].min() / sums["vectorised"].min()),
        **dict(zip(_PAPER, PAPER.get(method, [None] * 3), strict=True)),
    }


def claims(table: Rows) -> Iterator[RowsClaim]:
    """Test Table 7 (A.6) on our first population, and the vectorised speed-up on each.

    The speed-up claim: many clients at once are 50 times as fast as one at a time, warm. Seconds
    depend on the machine, so that only claims that hold or fail by far are made here.
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
    whats = {
        "ratio_flower": "one client at a time through Flower's loop",
        "ratio": "calls of the same function for one client at a time",
    }
    for ((clients, mean), mine), (key, what) in product(sizes.items(), whats.items()):
        slow = [f"{r['method']} {r[key]:.3g}" for r in mine if r[key] < 50]
        whose = f"{clients:,} clients of {mean:.3g} rows: many at once are 50 times as fast as"
        shown = f"not for {', '.join(slow)}" if slow else "for every method"
        yield f"{whose} {what}", not slow, shown


def _in_turns(ways: Mapping[str, Way], repeats: int) -> dict[str, NDArray[np.float64]]:
    """Seconds of each piece in each repetition, (repeats, pieces).

    The first turn warms up and does not count, unless it was slow: then one more is enough.
    """
    taken = {name: [_clocked(way)] for name, way in ways.items()}
    slow = {name for name, (first,) in taken.items() if sum(first) > SLOW}
    for number, (name, way) in product(range(repeats), ways.items()):
        if name not in slow or number == 0:
            taken[name].append(_clocked(way))
    return {name: np.array(t if name in slow else t[1:]) for name, t in taken.items()}


def _clocked(way: Way) -> list[float]:
    seconds = []
    for piece in way():
        start = time.thread_time()
        piece()
        seconds.append(time.thread_time() - start)
    return seconds


def _fresh(shards: Shards) -> Shards:
    """Return the same rows without cached values."""
    return Shards(shards.logits, shards.labels, shards.offsets)


def _blocks(shards: Shards, size: int) -> Iterator[Shards]:
    """All clients in blocks, with nothing derived yet."""
    return (part for _, part in _fresh(shards).blocks(np.arange(shards.clients), size))


def _through_messages(single: Sequence[Shards], request: Request) -> Way:
    nodes = range(1, len(single) + 1)
    grid = InProcessGrid(client_app(lambda context: single[site_of(context)]), nodes)
    fields = {"query": wire.to_fields(request), "context": wire.context_fields(request)}

    def ask(node: int) -> None:
        content = RecordDict({name: ConfigRecord(values) for name, values in fields.items()})
        message = Message(content, dst_node_id=node, message_type=ANSWER, group_id="1")
        (reply,) = grid.send_and_receive([message])
        reply.content.array_records["answer"]["words"].numpy()

    return lambda: [partial(ask, node) for node in nodes]


def scipy_log_a(shard: Shards) -> float:
    """One client's best log(1/T) by a bounded scalar search over its mean log-likelihood."""
    if not len(shard.labels):
        return 0.0
    z, labels = shifted(shard.logits), shard.labels

    def loss(log_a: float) -> float:
        scaled = z * np.exp(log_a)
        return float(np.mean(np.log(row_sum(np.exp(scaled))) - label_entries(scaled, labels)))

    found = minimize_scalar(
        loss,
        bounds=(-LOG_A_LIMIT, LOG_A_LIMIT),
        method="bounded",
        options={"maxiter": 50},  # as the paper has it
    )
    return float(found.x)
