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

from fedcal.core.numerics import Floats, Integers
from fedcal.experiments.research.benchmarks.peers import opendp_noise
from fedcal.experiments.research.benchmarks.timing import Case, Contestant, Prepare
from fedcal.mechanisms.categorical import categorical
from fedcal.mechanisms.gaussian_sampler import discrete_gaussian
from fedcal.mechanisms.samplers import (
    Words,
    bernoulli,
    discrete_laplace,
    polya_share,
    seeded_words,
    system_words,
)

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
    opendp
        what `peers.opendp_noise` takes
    draws
        of a call
    """
    n = min(1000, draws) if quick else draws
    start = time.perf_counter()
    ours(1, system_words)
    first = 1e6 * (time.perf_counter() - start)
    seeded = seeded_words(np.random.Generator(np.random.Philox(1)))

    def drawn(name: str, prepare: Prepare, n: int = n) -> Contestant:
        return Contestant(name, prepare, lambda result: {}, n)

    contestants = [
        Contestant(
            "OS words",
            lambda: partial(ours, n, system_words),
            lambda result: {"first draw, us": first},
            n,
        ),
        drawn("one draw alone", lambda: partial(ours, 1, system_words), 1),
        drawn("seeded words", lambda: partial(ours, n, seeded)),
    ]
    if numpy is not None:
        rng = np.random.Generator(np.random.PCG64(1))
        contestants.append(drawn("numpy", lambda: partial(numpy, rng, n)))
    if opendp is not None:
        fewer = max(1, n // FEWER)
        exact = partial(opendp_noise, draws=fewer, **opendp)
        contestants.append(drawn("OpenDP", exact, fewer))
    return Case("", None, contestants)


# -- laws ---------------------------------------------------------------------------------------

Parameter = Callable[[float, np.random.Generator, int], Any]

_NUMPY: Mapping[str, Parameter] = {
    "Laplace": lambda scale, rng, n: np.rint(rng.laplace(0.0, scale, n)).astype(np.int64),
    "Gaussian": lambda std, rng, n: np.rint(rng.normal(0.0, std, n)).astype(np.int64),
}


def _numpy_polya(scale: float, shares: float, rng: np.random.Generator, n: int) -> Integers:
    a, b = rng.negative_binomial(1 / shares, -np.expm1(-1 / scale), (2, n))
    return np.asarray(a - b)


def _index(log_weights: Floats, n: int, words: Words) -> int:
    return categorical(log_weights, words)


_SCALED = {
    "discrete Laplace, scale": (
        discrete_laplace,
        "Laplace",
        ("make_laplace", "l1_distance"),
    ),
    "discrete Gaussian, std": (
        discrete_gaussian,
        "Gaussian",
        ("make_gaussian", "l2_distance"),
    ),
}
"""Law -> ours, numpy's and OpenDP's sampler, which take its scale."""

CASES: dict[str, Callable[[bool], Case]] = {
    **{
        f"{name} 2^{np.log2(s):.0f}": partial(
            law,
            ours=partial(ours, s),
            numpy=partial(_NUMPY[theirs], s),
            opendp=opendp and {"maker": opendp[0], "metric": opendp[1], "scale": s},
        )
        for s in SCALES
        for name, (ours, theirs, opendp) in _SCALED.items()
    },
    **{
        f"Polya share, scale 2^{np.log2(s):.0f}, {shares} shares": partial(
            law,
            ours=partial(polya_share, s, shares),
            numpy=partial(_numpy_polya, s, shares),
        )
        for s, shares in POLYA
    },
    "Bernoulli, 0.3": partial(
        law,
        ours=partial(bernoulli, 0.3),
        numpy=lambda rng, n: rng.random(n) < 0.3,
    ),
    **{
        f"categorical, {candidates} candidates": partial(
            law,
            ours=partial(_index, np.linspace(-80.0, 0.0, candidates)),
            draws=1,
        )
        for candidates in CANDIDATES
    },
}
