"""What a draw of noise costs: seconds a draw, of `DRAWS` at a time.

Our samplers on words of the operating system, and beside them

* one draw alone, and the same draws on seeded words, from the same tables;
* numpy's seeded generator for the nearest law, rounded: doubles, neither exact nor for deployment;
* OpenDP's exact samplers where it is installed (`pip install opendp`), on fewer draws.

The first draw of all builds the tables that no row above has built. `categorical` draws one index
at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from fedcal.experiments.benchmarks.peers import prepared
from fedcal.experiments.benchmarks.timing import Case, Contestant
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
from fedcal.types import Floats, Integers

DRAWS = 1_000_000
SCALES = (1.0, 2.0**18, 2.0**30, 2.0**40)
POLYA = ((1.0, 100), (2.0**18, 10), (2.0**18, 100), (2.0**18, 1000), (2.0**40, 100))
CANDIDATES = (100, 65536)
FEWER = 20  # OpenDP makes one in so many of the draws

Sampler = Callable[[int, Words], Any]
"""(n, words) -> n draws."""

Numpy = Callable[[np.random.Generator, int], Any]
"""(generator, n) -> n draws."""


def law(
    name: str,
    quick: bool,
    *,
    ours: Sampler,
    numpy: Numpy | None = None,
    opendp: Mapping[str, Any] | None = None,
    draws: int = DRAWS,
) -> Case:
    """One row.

    Parameters
    ----------
    opendp : what `peers.opendp_noise` takes
    draws : of a call
    """
    n = min(1000, draws) if quick else draws
    start = time.perf_counter()
    ours(1, system_words)
    first = 1e6 * (time.perf_counter() - start)

    def nothing(drawn: Any) -> dict[str, float]:
        return {}

    seeded = seeded_words(np.random.Generator(np.random.Philox(1)))
    peers = [
        Contestant("one draw alone", lambda: partial(ours, 1, system_words), nothing),
        Contestant("seeded words", lambda: partial(ours, n, seeded), nothing, n),
    ]
    if numpy is not None:
        rng = np.random.Generator(np.random.PCG64(1))
        peers.append(Contestant("numpy", lambda: partial(numpy, rng, n), nothing, n))
    if opendp is not None:
        fewer = max(1, n // FEWER)
        exact = partial(prepared, "opendp_noise", **opendp, draws=fewer)
        peers.append(Contestant("OpenDP", exact, nothing, fewer))
    return Case(
        name,
        None,
        Contestant(
            "OS words",
            lambda: partial(ours, n, system_words),
            lambda drawn: {"first draw, us": first},
            n,
        ),
        tuple(peers),
    )


def _numpy_laplace(scale: float, rng: np.random.Generator, n: int) -> Integers:
    return np.rint(rng.laplace(0.0, scale, n)).astype(np.int64)


def _numpy_normal(std: float, rng: np.random.Generator, n: int) -> Integers:
    return np.rint(rng.normal(0.0, std, n)).astype(np.int64)


def _numpy_polya(scale: float, shares: float, rng: np.random.Generator, n: int) -> Integers:
    a, b = rng.negative_binomial(1 / shares, -np.expm1(-1 / scale), (2, n))
    return np.asarray(a - b)


def _laws() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for s in SCALES:
        scale = f"2^{np.log2(s):.0f}"
        laplace, normal = partial(_numpy_laplace, s), partial(_numpy_normal, s)
        pure = {"maker": "make_laplace", "metric": "l1_distance", "scale": s}
        squared = {"maker": "make_gaussian", "metric": "l2_distance", "scale": s}
        found |= {
            f"discrete Laplace, scale {scale}": {
                "ours": partial(discrete_laplace, s),
                "numpy": laplace,
                "opendp": pure,
            },
            f"rounded Laplace, scale {scale}": {
                "ours": partial(rounded_laplace, s),
                "numpy": laplace,
            },
            f"discrete Gaussian, std {scale}": {
                "ours": partial(discrete_gaussian, s),
                "numpy": normal,
                "opendp": squared,
            },
            f"rounded Gaussian, std {scale}": {
                "ours": partial(rounded_gaussian, s),
                "numpy": normal,
            },
        }
    for s, shares in POLYA:
        found[f"Polya share, scale 2^{np.log2(s):.0f}, {shares} shares"] = {
            "ours": partial(polya_share, s, shares),
            "numpy": partial(_numpy_polya, s, shares),
        }
    found["Bernoulli, 0.3"] = {
        "ours": partial(bernoulli, 0.3),
        "numpy": lambda rng, n: rng.random(n) < 0.3,
    }
    for candidates in CANDIDATES:
        found[f"categorical, {candidates} candidates"] = {
            "ours": partial(_index, np.linspace(-80.0, 0.0, candidates)),
            "draws": 1,
        }
    return found


def _index(log_weights: Floats, n: int, words: Words) -> int:
    return categorical(log_weights, words)


CASES = {name: partial(law, name, **given) for name, given in _laws().items()}
