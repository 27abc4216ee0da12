"""What a draw of noise costs: `python -m fedcal.experiments.benchmarks.samplers`.

Microseconds a draw, medians of interleaved repetitions of `--draws` draws at a time, for

* our samplers on words of the operating system and on seeded ones: the same tables;
* numpy's seeded generator for the nearest law, rounded: doubles, neither exact nor for deployment;
* OpenDP's exact samplers where it is installed (`pip install opendp`), on fewer draws.

Then, on words of the operating system, one draw alone and the row's first draw, which builds the
tables that no row above it has built. `categorical` draws one index at a time, and its row counts
microseconds an index.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fedcal.experiments.benchmarks.timing import Contestant, PeerMissing, Skipped, compare
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

HEADINGS = (
    *("law", "OS words", "seeded words", "numpy", "OpenDP"),
    *("one draw alone", "first draw"),
)
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


def time_one(law: Law, draws: int, repetitions: int) -> list[str]:
    """The row of one law, as shown."""
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
    row = dict.fromkeys(HEADINGS, "") | {"law": law.name}
    for outcome in compare(contestants, repetitions):
        if isinstance(outcome, Skipped):
            row[outcome.name] = "skipped"
        else:
            row[outcome.name] = f"{outcome.median / runs[outcome.name][0] * 1e6:.3f}"
    alone = []
    for _ in range(1 if law.single else 100):
        start = time.perf_counter()
        law.ours(1, system_words)
        alone.append(time.perf_counter() - start)
    row["one draw alone"] = f"{statistics.median(alone) * 1e6:.0f}"
    row["first draw"] = f"{first * 1e6:.0f}"
    return [row[heading] for heading in HEADINGS]


def main(arguments: Sequence[str] | None = None) -> None:
    """Time and show."""
    parser = argparse.ArgumentParser(
        prog="python -m fedcal.experiments.benchmarks.samplers", description=__doc__
    )
    parser.add_argument("--draws", type=int, default=1_000_000, help="at a time")
    parser.add_argument("--quick", action="store_true", help="two repetitions of 1000 draws")
    options = parser.parse_args(arguments)
    size = (1000, 2) if options.quick else (options.draws, REPETITIONS)
    table = Table(pad_edge=False, padding=(0, 1), title="microseconds a draw")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "law" else "right")
    for law in laws(options.quick):
        table.add_row(*time_one(law, *size))
    console = Console(width=max(Console().width, 120), highlight=False)
    console.print(table)
    console.print(
        f"{os.cpu_count()} cores, {platform.platform()}, numpy {np.__version__}; medians of "
        "interleaved repetitions; compare ratios, not times of different runs.",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
