"""Names for the kinds of array that pass through the project, and the mark of an override.

Row-wise sums, softmax and their kin, with the same bits for a row wherever it stands.

A client alone and the same client inside a block of thousands must compute the same numbers to
the last bit (that is how the engines agree). So every reduction here runs along one row only,
in an order that depends on the number of classes and on nothing else. A matrix product over the
rows of several clients does not have that property and is not used; one over a client's own rows
has it, up to `INNER` rows at a time.

Logits or probabilities: what scores are, from either to the other, and what cannot be logits.

Seeded random streams: one per (seed, purpose, round), so that nothing shares a stream.

A vector is drawn at once and entry k belongs to client k or coordinate k; no generator per
client. Seeded randomness is for simulation: whoever has the seed can repeat every draw.

Work on many rows, block by block, on all cores.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from fedcal.core.checks import InputError, integer

if TYPE_CHECKING:
    from typing_extensions import override as override  # typeshed has it: no dependency
else:
    _F = TypeVar("_F", bound=Any)

    def override(method: _F) -> _F:
        """Mark a method that overrides a documented one; as `typing.override` of Python 3.12."""
        return method


Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
"""Integers mod 2**64: what secure aggregation adds."""


FLOOR = 1e-12
"""Probabilities are raised to this before a logarithm is taken. It moves optima a little: the
CIFAR-100 network's best temperature is 1.93 with a floor of 1e-7 and 2.12 with 1e-12."""

LARGEST_LOGIT = 1e100
"""Beyond this, differences and squares of logits would overflow."""

LOG_A_LIMIT = math.log(20.0)
"""The largest absolute log T of a fitted temperature: rows without errors have their optimum at
T = 0."""

INNER = 64
"""Terms that a matrix product may add up at once: with more, BLAS may split the sum over threads,
and its bits depend on how many there are."""

_FEW = 32  # up to so many columns, adding column by column is faster than numpy's row reduction


def product(a: Floats, b: Floats) -> Floats:
    """Matrix product that adds up at most `INNER` terms at once, (..., n, m), (..., m, c)."""
    out = np.matmul(a[..., :INNER], b[..., :INNER, :])
    for i in range(INNER, a.shape[-1], INNER):
        out += np.matmul(a[..., i : i + INNER], b[..., i : i + INNER, :])
    return np.asarray(out)


def row_sum(x: NDArray[Any]) -> NDArray[Any]:
    """Sum along each row, shape (n, c) -> (n,)."""
    if x.shape[1] > _FEW:
        return np.asarray(np.ascontiguousarray(x).sum(axis=1))
    if len(x) > 1 and x.strides[0] == x.itemsize < x.strides[1]:  # as `by_class` leaves it
        return np.asarray(np.add.reduce(x.T, axis=0))  # adds columns in the same order
    return _by_columns(np.add, x)


def row_max(x: NDArray[Any]) -> NDArray[Any]:
    """Largest entry of each row, shape (n, c) -> (n,)."""
    if x.shape[1] > _FEW:
        return np.asarray(x.max(axis=1))
    return _by_columns(np.maximum, x)


def _by_columns(combine: np.ufunc, x: NDArray[Any]) -> NDArray[Any]:
    total: NDArray[Any] = x[:, 0].copy()
    for j in range(1, x.shape[1]):
        combine(total, x[:, j], out=total)
    return total


def shifted(logits: Floats) -> Floats:
    """Logits minus their row's largest, shape (n, c): softmax does not see the difference."""
    return np.asarray(logits - row_max(logits)[:, None])


def by_class(x: Floats) -> Floats:
    """Return the same numbers with each class in a piece of memory, unless there are many classes.

    Passes over few columns are then three times as fast; no bit of `row_sum` changes.
    """
    return x if x.shape[1] > _FEW else np.asfortranarray(x)


def softmax(logits: Floats) -> Floats:
    """Probabilities, shape (n, c) -> (n, c)."""
    e = np.exp(shifted(logits))
    e /= row_sum(e)[:, None]
    return np.asarray(e)


def softplus(x: Floats) -> Floats:
    """log(1 + exp(x)) without overflow, shape kept."""
    return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))))


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), the derivative of softplus, without overflow, shape kept."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, e) / (1.0 + e))


def logits_from_probs(probs: Floats) -> Floats:
    """log(max(p, 1e-12)), shape kept: the logits of a model that only tells probabilities."""
    return np.log(np.maximum(probs, FLOOR))


def label_entries(x: Floats, labels: Integers) -> Floats:
    """x[i, labels[i]], shape (n, c), (n,) -> (n,)."""
    return np.asarray(x[np.arange(len(labels)), labels])


def log_grid(low: float, high: float, points: int) -> Floats:
    """Logarithms of a public grid of temperatures, evenly spaced, (points,)."""
    return np.linspace(math.log(low), math.log(high), points)


def tempered_mean(shifted_logits: NDArray[Any], a: Any) -> NDArray[Any]:
    """Return the mean of `tempered_moments` alone, with the same bits, (n, c) -> (n,)."""
    e = shifted_logits * a
    np.exp(e, out=e)
    s0 = row_sum(e)
    e *= shifted_logits
    return np.asarray(row_sum(e) / s0)


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


Kind: TypeAlias = Literal["logits", "probs"]
KINDS: tuple[Kind, ...] = get_args(Kind)

RANGE_TOLERANCE = 1e-3
"""Distance outside [0, 1] at which a probability may lie: float16 overshoots a little."""

SURE = 5
"""From so many rows on, logits that could be probabilities are. Even logits spread evenly over
[0, 1]^2 sum to 1 within `ROUNDED` in 28 % of rows only: five rows do by chance in one case of
600, twenty in one of 2e7. Real ones are seldom all within [0, 1]."""

ROUNDED = 0.15  # of a sum: one printed decimal in ten classes, most of them 0, or float32's 1.1
_MOST = 0.9  # of the rows

DOUBT = (
    "{}: rows lie in [0, 1] and sum to 1, as probabilities do; declare them as probs (the "
    "key or argument probs, columns prob_0.., or input='probs')"
)
_PERCENT = (
    "{}: rows lie in [0, 100] and sum to 100, as percentages do; divide them by 100 and declare "
    "them as probs"
)


def logits_of(kind: Kind, scores: Floats) -> Floats:
    """Return the scores themselves, or log(max(p, 1e-12)), shape kept."""
    return scores if kind == "logits" else logits_from_probs(scores)


def probs_of(kind: Kind, logits: Floats) -> Floats:
    """Return softmax(logits), or the probabilities that `logits_of` took logits of, shape kept.

    Those are as they were given, but for the last bits of a double, whatever their rows sum to.
    """
    return softmax(logits) if kind == "logits" else np.exp(logits)


def refuse_probs(name: str, logits: Floats) -> None:
    """Refuse "logits", (n, c), that could be (rounded) probabilities or percentages.

    Fewer than five rows are accepted.
    """
    for unit, doubt in ((1, DOUBT), (100, _PERCENT)) if len(logits) >= SURE else ():
        if could_be_probs(logits, ROUNDED, _MOST, unit):
            raise InputError(doubt.format(name))


def could_be_probs(x: Floats, tolerance: float, share: float, unit: int = 1) -> bool:
    """Return whether that share of rows sums to 1, and all values are in [0, 1], in units."""
    low = -RANGE_TOLERANCE * (unit == 1)
    if not x.size or x.min() < low or x.max() / unit > 1 + RANGE_TOLERANCE:
        return False
    return bool((np.abs((x / unit).sum(axis=1) - 1) <= tolerance + 1e-9).mean() >= share)


def refuse_masked(name: str, value: Any) -> None:
    """Raise InputError for a masked array, also inside a list, whose mask NumPy would forget.

    And for a sparse matrix, which it would not read.
    """
    masked = isinstance(value, np.ma.MaskedArray)
    if masked or hasattr(value, "toarray"):
        what = "masked array; pass its compressed() or" if masked else "sparse matrix; pass its"
        raise InputError(f"{name}: is a {what} {'filled' if masked else 'toarray'}()")
    if isinstance(value, (list, tuple)):
        for entry in value:
            refuse_masked(name, entry)


class Purpose(IntEnum):
    """Purpose of a random stream; its number is part of what a seed means: never renumber."""

    SPLIT = 1
    PARTITION = 2
    SAMPLING = 3
    NOISE = 4
    DROPOUT = 5
    BOOTSTRAP = 6
    SHARE = 7
    COIN = 8


def check_seed(seed: int) -> int:
    """Return the seed if it is a whole number in [0, 2**63)."""
    return integer("seed", seed, 0, 2**63 - 1)


def stream(
    seed: int, purpose: Purpose, round_number: int = 0, what: str = ""
) -> np.random.Generator:
    """Return the stream of one purpose in one round; `what` separates uses that must not share."""
    text = f"fedcal {check_seed(seed)} {int(purpose)} {round_number} {what}"
    key = np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], "<u8")
    return np.random.Generator(np.random.Philox(key=key))


def key_of(*parts: Any) -> str:
    """Return one text for equal parts, whatever their types: a `what` for `stream`.

    Numbers count by value (3, 3.0 and numpy's are one; others to 9 significant digits, because the
    last ones differ between types of CPU), arrays as lists, tables without order. So a key does not
    change with the way a question travels, nor with a new field of a class: who makes a key lists
    what is in it.

    Parameters
    ----------
    parts
        text, numbers, None, and sequences, arrays and tables of these

    Returns
    -------
    str
        64 hexadecimal digits
    """
    return hashlib.sha256(json.dumps(_plain(parts), sort_keys=True).encode()).hexdigest()


def _plain(part: Any) -> Any:
    if isinstance(part, (np.generic, np.ndarray)):
        part = part.tolist()
    if part is None or isinstance(part, bool):
        return part
    if isinstance(part, str):
        return f"text {part}"  # "3" is another key than 3
    if isinstance(part, Mapping):
        return {str(name): _plain(value) for name, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_plain(value) for value in part]
    if isinstance(part, float) and not part.is_integer():
        return f"{part:.8e}"
    return str(int(part))


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
