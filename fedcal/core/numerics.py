"""Names for the kinds of array that pass through the project, and the mark of an override.

Row-wise sums, softmax and their kin, with the same bits for a row wherever it stands.

A client alone and the same client inside a block of thousands must compute the same numbers to
the last bit (that is how the engines agree). So every reduction here runs along one row only,
in an order that depends on the number of classes and on nothing else. A matrix product over the
rows of several clients does not have that property and is not used; one over a client's own rows
has it, up to `fitting.INNER` rows at a time.

Logits or probabilities: what scores are, from either to the other, and what cannot be logits.

Seeded random streams: one per (seed, purpose, round), so that nothing shares a stream.

A vector is drawn at once and entry k belongs to client k or coordinate k; no generator per
client. Seeded randomness is for simulation: whoever has the seed can repeat every draw.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
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


FEW_COLUMNS = 32
"""Up to so many, adding column by column is faster than numpy's row reduction."""


def row_sum(x: NDArray[Any]) -> NDArray[Any]:
    """Sum along each row, shape (n, c) -> (n,)."""
    if x.shape[1] > FEW_COLUMNS:
        return np.asarray(np.ascontiguousarray(x).sum(axis=1))
    if len(x) > 1 and x.strides[0] == x.itemsize < x.strides[1]:  # as `by_class` leaves it
        return np.asarray(np.add.reduce(x.T, axis=0))  # adds columns in the same order
    return _by_columns(np.add, x)


def row_max(x: NDArray[Any]) -> NDArray[Any]:
    """Largest entry of each row, shape (n, c) -> (n,)."""
    if x.shape[1] > FEW_COLUMNS:
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


def softmax(logits: Floats) -> Floats:
    """Probabilities, shape (n, c) -> (n, c)."""
    e = np.exp(shifted(logits))
    e /= row_sum(e)[:, None]
    return np.asarray(e)


def logits_from_probs(probs: Floats) -> Floats:
    """log(max(p, 1e-12)), shape kept: the logits of a model that only tells probabilities."""
    return np.log(np.maximum(probs, FLOOR))


Kind: TypeAlias = Literal["logits", "probs"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def logits_of(kind: Kind, scores: Floats) -> Floats:
    """Return the scores themselves, or log(max(p, 1e-12)), shape kept."""
    return scores if kind == "logits" else logits_from_probs(scores)


def probs_of(kind: Kind, logits: Floats) -> Floats:
    """Return softmax(logits), or the probabilities that `logits_of` took logits of, shape kept.

    Those are as they were given, but for the last bits of a double, whatever their rows sum to.
    """
    return softmax(logits) if kind == "logits" else np.exp(logits)


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
    if isinstance(part, float) and not part.is_integer():  # first: most are weights of networks
        return f"{part:.8e}"
    if isinstance(part, (np.generic, np.ndarray)):
        return _plain(part.tolist())
    if part is None or isinstance(part, bool):
        return part
    if isinstance(part, str):
        return f"text {part}"  # "3" is another key than 3
    if isinstance(part, Mapping):
        return {str(name): _plain(value) for name, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_plain(value) for value in part]
    return str(int(part))
