"""Arithmetic of fits over many rows: tempered moments, softplus, matrix products, threads."""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcal.core.numerics import FEW_COLUMNS, Floats, Integers, row_sum

LOG_A_LIMIT = math.log(20.0)
"""The largest absolute log T of a fitted temperature: rows without errors have their optimum at
T = 0."""


INNER = 64
"""Terms that a matrix product may add up at once: with more, BLAS may split the sum over threads,
and its bits depend on how many there are."""


def product(a: Floats, b: Floats) -> Floats:
    """Matrix product that adds up at most `INNER` terms at once, (..., n, m), (..., m, c)."""
    out = np.matmul(a[..., :INNER], b[..., :INNER, :])
    for i in range(INNER, a.shape[-1], INNER):
        out += np.matmul(a[..., i : i + INNER], b[..., i : i + INNER, :])
    return np.asarray(out)


def by_class(x: Floats) -> Floats:
    """Return the same numbers with each class in a piece of memory, unless there are many classes.

    Passes over few columns are then three times as fast; no bit of `row_sum` changes.
    """
    return x if x.shape[1] > FEW_COLUMNS else np.asfortranarray(x)


def softplus(x: Floats) -> Floats:
    """log(1 + exp(x)) without overflow, shape kept."""
    return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))))


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), the derivative of softplus, without overflow, shape kept."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, e) / (1.0 + e))


def label_entries(x: Floats, labels: Integers) -> Floats:
    """x[i, labels[i]], shape (n, c), (n,) -> (n,)."""
    return np.asarray(x[np.arange(len(labels)), labels])


def log_grid(low: float, high: float, points: int) -> Floats:
    """Logarithms of a public grid of temperatures, evenly spaced, (points,)."""
    return np.linspace(math.log(low), math.log(high), points)


def tempered_moments(shifted_logits: NDArray[Any], a: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and variance of the logits under softmax(a z), row by row.

    They are all that temperature scaling needs: with a = 1/T, row i's negative log-likelihood
    has d/da = mean_i - z_i[y_i] and d2/da2 = var_i >= 0.

    Parameters
    ----------
    shifted_logits
        (n, c), each row's largest entry 0 (so that nothing overflows)
    a
        inverse temperature, a scalar or (n, 1)

    Returns
    -------
    tuple[NDArray[Any], NDArray[Any]]
        (n,), (n,)
    """
    e = shifted_logits * a
    np.exp(e, out=e)
    s0 = row_sum(e)
    e *= shifted_logits
    mean = row_sum(e) / s0
    e *= shifted_logits
    return mean, row_sum(e) / s0 - mean * mean


BLOCK = 2**15
"""Numbers in a block: 256 KiB, so that the passes over one stay in a core's cache."""


MANY = 2**22
"""Numbers from which on threads pay."""


Item = TypeVar("Item")


Result = TypeVar("Result")


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_threads(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """Yield what `work` returns for each item, in any order.

    With fewer than two threads this one works, in order. What is not begun when an item fails, or
    the iterator is closed, is left out. numpy lets go of the interpreter's lock.
    """
    if threads < 2:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        for future in as_completed([pool.submit(work, item) for item in items]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def by_rows(work: Callable[[slice], None], rows: int, width: int) -> None:
    """Call `work` on blocks of consecutive rows that cover all of them.

    Large work runs on a thread for each core.

    Parameters
    ----------
    work
        treats each row by itself and keeps what it finds
    rows, width
        of the arrays it reads
    """
    size = max(1, BLOCK // max(1, width))
    blocks = [slice(k, min(k + size, rows)) for k in range(0, rows, size)]
    threads = min(usable_cores(), len(blocks))
    for _ in in_threads(work, blocks, threads if rows * width >= MANY else 1):
        pass
