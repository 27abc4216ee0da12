"""What a draw of noise costs.

Microseconds a draw, medians of interleaved repetitions of `draws` draws at a time, for

* our samplers on words of the operating system and on seeded ones: the same tables;
* numpy's seeded generator for the nearest law, rounded: doubles, neither exact nor for deployment;
* OpenDP's exact samplers where it is installed (`pip install opendp`), on fewer draws.

Then, on words of the operating system, one draw alone and the row's first draw, which builds the
tables that no row above it has built. `categorical` draws one index at a time, and its row counts
microseconds an index.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from fedcal.experiments.benchmarks.harness import Benchmark
from fedcal.experiments.benchmarks.timing import Contestant, PeerMissing, Skipped, compare
from fedcal.experiments.runs import Row
from fedcal.mechanisms.samplers import (
    Words,
    bernoulli,
    categorical,
    discrete_gaussian,
    discrete_laplace,
    polya_share,
    rounded_gaussian,
    rounded_laplace,
    seeded_words,
    system_words,
)
from fedcal.types import Integers

SCALES = (1.0, 2.0**18, 2.0**30, 2.0**40)
POLYA = ((1.0, 100), (2.0**18, 10), (2.0**18, 100), (2.0**18, 1000), (2.0**40, 100))
CANDIDATES = (100, 65536)
REPETITIONS = 7
FEWER = 20  # OpenDP makes one in so many of the draws


@dataclass(frozen=True)
class Law:
    """One row.

    Attributes
    ----------
    ours : (n, words) -> n draws
    numpy : (generator, n) -> n draws
    opendp : name of OpenDP's maker and of its metric, and the scale
    single : whether a call is one draw, whatever n is
    """

    name: str
    ours: Callable[[int, Words], Any]
    numpy: Callable[[np.random.Generator, int], Any] | None = None
    opendp: tuple[str, str, float] | None = None
    single: bool = False


def laws(quick: bool) -> list[Law]:
    """All rows; not the slowest one if it has to be quick."""
    rows = []
    for s in SCALES:
        text = f"2^{np.log2(s):.0f}"
        laplace, normal = partial(_numpy_laplace, s), partial(_numpy_normal, s)
        rows += [
            Law(
                f"discrete Laplace, scale {text}",
                partial(discrete_laplace, s),
                laplace,
                ("make_laplace", "l1_distance", s),
            ),
            Law(f"rounded Laplace, scale {text}", partial(rounded_laplace, s), laplace),
            Law(
                f"discrete Gaussian, std {text}",
                partial(discrete_gaussian, s),
                normal,
                ("make_gaussian", "l2_distance", s),
            ),
            Law(f"rounded Gaussian, std {text}", partial(rounded_gaussian, s), normal),
        ]
    for s, shares in POLYA:
        name = f"Polya share, scale 2^{np.log2(s):.0f}, {shares} shares"
        rows.append(Law(name, partial(polya_share, s, shares), partial(_numpy_polya, s, shares)))
    rows.append(Law("Bernoulli, 0.3", partial(bernoulli, 0.3), _numpy_bernoulli))
    for candidates in CANDIDATES[: 1 if quick else None]:
        ours = partial(_index, np.linspace(-80.0, 0.0, candidates))
        rows.append(Law(f"categorical, {candidates} candidates", ours, single=True))
    return rows


def _numpy_laplace(scale: float, rng: np.random.Generator, n: int) -> Integers:
    return np.rint(rng.laplace(0.0, scale, n)).astype(np.int64)


def _numpy_normal(std: float, rng: np.random.Generator, n: int) -> Integers:
    return np.rint(rng.normal(0.0, std, n)).astype(np.int64)


def _numpy_polya(scale: float, shares: float, rng: np.random.Generator, n: int) -> Integers:
    a, b = rng.negative_binomial(1 / shares, -np.expm1(-1 / scale), (2, n))
    return np.asarray(a - b)


def _numpy_bernoulli(rng: np.random.Generator, n: int) -> Any:
    return rng.random(n) < 0.3


def _index(log_weights: Any, n: int, words: Words) -> int:
    return categorical(log_weights, words)


def _opendp(maker: str, metric: str, scale: float, n: int) -> Callable[[], Any]:
    try:
        dp = import_module("opendp.prelude")
    except ImportError:
        raise PeerMissing("OpenDP is not installed") from None
    dp.enable_features("contrib")
    kind = int if metric == "l1_distance" else float
    domain = dp.vector_domain(dp.atom_domain(T=int))
    measure = getattr(dp.m, maker)(domain, getattr(dp, metric)(T=kind), scale)
    return partial(measure, [0] * n)


def time_one(law: Law, draws: int, repetitions: int) -> Row:
    """Microseconds a draw by heading; "skipped" where somebody is not installed."""
    start = time.perf_counter()
    law.ours(1, system_words)
    first = time.perf_counter() - start
    n = 1 if law.single else draws
    fewer = max(1, n // FEWER)
    seeded = seeded_words(np.random.Generator(np.random.Philox(1)))
    rng = np.random.Generator(np.random.PCG64(1))
    runs: dict[str, tuple[int, Callable[[], Callable[[], Any]]]] = {
        "OS words": (n, lambda: partial(law.ours, n, system_words)),
        "seeded words": (n, lambda: partial(law.ours, n, seeded)),
    }
    if (peer := law.numpy) is not None:
        runs["numpy"] = (n, lambda: partial(peer, rng, n))
    if (made := law.opendp) is not None:
        runs["OpenDP"] = (fewer, lambda: _opendp(*made, fewer))
    contestants = [Contestant(name, prepare, lambda _: {}) for name, (_, prepare) in runs.items()]
    row: Row = {"law": law.name}
    for outcome in compare(contestants, repetitions):
        if isinstance(outcome, Skipped):
            row[outcome.name] = "skipped"
        else:
            row[outcome.name] = outcome.median / runs[outcome.name][0] * 1e6
    alone = []
    for _ in range(1 if law.single else 100):
        start = time.perf_counter()
        law.ours(1, system_words)
        alone.append(time.perf_counter() - start)
    return row | {"one draw alone": statistics.median(alone) * 1e6, "first draw": first * 1e6}


def rows(draws: int = 1_000_000, quick: bool = False) -> Iterator[Row]:
    """One for each law; `quick` is two repetitions of 1000 draws."""
    for law in laws(quick):
        yield time_one(law, *((1000, 2) if quick else (draws, REPETITIONS)))


BENCHMARK = Benchmark("what a draw of noise costs, in microseconds", rows)
