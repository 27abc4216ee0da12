"""How much one client may add to a sum, and the one function that sees to it.

Formal guarantee
----------------
Unit: one client (user). Adjacency: zero-out, a client's shard is replaced by the empty one;
the number of enrolled clients is public. `bounded` maps any finite array to one whose rows lie
in the set that `Bound` describes, so the sum over clients changes by at most one member of that
set between neighbours. In units where block b is divided by its norm, the change has

=============  ==========================================  ==========================
rule           a client's contribution                     L2 norm of the change
=============  ==========================================  ==========================
``joint``      all blocks together have norm <= 1          1
``per_block``  each block has norm <= 1                    sqrt(number of blocks)
``per_value``  each number has absolute value <= its norm  sqrt(numbers) (not used)
=============  ==========================================  ==========================

Edge cases: a zero vector stays zero; a vector inside the bound keeps every bit; NaN and
infinities are refused (`ContributionRefused`), as is a non-positive norm (`InputError`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from fedcal.errors import ContributionRefused, InputError
from fedcal.secure_aggregation import Ring
from fedcal.types import Floats, Words

Rule = Literal["joint", "per_block", "per_value"]

SLACK = 2.0**-34
"""Vectors are clipped to norm (1 - SLACK), so that no rounding of the clip itself, nor of the
sum of up to 2**18 squares that checks it, can hide a true norm above 1."""

_SMALLEST = 1e-100  # a norm whose square is no normal float could not be checked


@dataclass(frozen=True)
class Bound:
    """The shape of a contribution, and what one client may add.

    Attributes
    ----------
    lengths : numbers in each block
    norms : bound of each block in the statistic's own units; empty = not bounded (no privacy)
    rule : how the blocks' norms combine, see the module's table
    """

    lengths: tuple[int, ...]
    norms: tuple[float, ...] = ()
    rule: Rule = "joint"

    def __post_init__(self) -> None:
        if not self.lengths or any(n < 1 for n in self.lengths):
            raise InputError(f"a contribution needs blocks of length >= 1, got {self.lengths}")
        if self.rule not in get_args(Rule):
            raise InputError(f"unknown rule {self.rule!r}; allowed: {', '.join(get_args(Rule))}")
        if self.norms and len(self.norms) != len(self.lengths):
            raise InputError(f"{len(self.lengths)} blocks, but {len(self.norms)} norms")
        if not all(_SMALLEST <= c <= 1 / _SMALLEST for c in self.norms):
            raise InputError(
                f"clip norms must be finite and > 0 ({_SMALLEST:g} to {1 / _SMALLEST:g}), "
                f"got {self.norms}"
            )

    @property
    def length(self) -> int:
        """Numbers in a contribution."""
        return sum(self.lengths)

    @property
    def finite(self) -> bool:
        """Whether a client's influence is bounded at all."""
        return bool(self.norms)

    @property
    def sensitivity(self) -> float:
        """L2 norm of a neighbour's change, each block in units of its norm."""
        return {
            "joint": 1.0,
            "per_block": math.sqrt(len(self.lengths)),
            "per_value": math.sqrt(self.length),
        }[self.rule]

    @cached_property
    def scale(self) -> Floats:
        """The norm of the block that each coordinate belongs to, shape (length,)."""
        norms = self.norms or (1.0,) * len(self.lengths)
        return np.repeat(np.array(norms, np.float64), self.lengths)

    def norms_of(self, x: Floats) -> Floats:
        """What the rule limits to 1, shape (clients, length) -> (clients, groups)."""
        norms = np.array(self.norms)
        if self.rule == "per_value":
            return np.asarray(np.abs(x) / self.scale)
        squares = self._blocks_sum(x) / norms**2
        if self.rule == "joint":
            squares = squares.sum(axis=1, keepdims=True)
        return np.asarray(np.sqrt(squares))

    def _blocks_sum(self, x: Floats) -> Floats:
        """Sum of squares of each block, (clients, length) -> (clients, blocks)."""
        if len(set(self.lengths)) == 1:
            blocks = x.reshape(len(x), len(self.lengths), -1)
            return np.asarray(np.einsum("kbi,kbi->kb", blocks, blocks))
        edges = np.cumsum(self.lengths)[:-1]
        parts = [np.einsum("ki,ki->k", b, b) for b in np.split(x, edges, axis=1)]
        return np.stack(parts, axis=1)

    def scaled(self, x: Floats, factors: Floats) -> Floats:
        """Each group of numbers times its factor, (clients, length), (clients, groups)."""
        if self.rule != "per_block":
            return x * factors
        if len(set(self.lengths)) != 1:
            return x * np.repeat(factors, self.lengths, axis=1)
        blocks = x.reshape(len(x), len(self.lengths), -1)
        return (blocks * factors[:, :, None]).reshape(x.shape)


def bounded(x: Floats, bound: Bound) -> Floats:
    """Clip each client's row to exactly the query's bound; the only clipping there is.

    Parameters
    ----------
    x : (clients, length) contributions in the statistic's own units
    bound : from the query, never from the client

    Raises
    ------
    ContributionRefused
        If a number is NaN or infinite, or the shape is not the query's.
    """
    if x.ndim != 2 or x.shape[1] != bound.length:
        raise ContributionRefused(
            f"a contribution has shape {x.shape}, the query asks for (clients, {bound.length})"
        )
    if not bound.finite:
        return x
    with np.errstate(over="ignore", invalid="ignore"):
        norms = bound.norms_of(x)
    if not np.isfinite(norms).all():
        raise ContributionRefused(
            "a contribution holds NaN, infinity or a number too large to square"
        )
    over = norms > 1.0 - SLACK
    if not over.any():
        return x
    factors = np.where(over, (1.0 - SLACK) / np.where(over, norms, 1.0), 1.0)
    return bound.scaled(x, factors)


def encode_bounded(x: Floats, bound: Bound, ring: Ring) -> Words:
    """Clip, put on the ring's grid (truncating toward zero) and check the norm once more.

    The last check is on the integers that leave the client, so it covers every rounding on the
    way. It cannot fail for a vector that `bounded` clipped; it is there because a release
    without a bound is the one thing that must never happen.

    Returns
    -------
    (clients, length) uint64, integers mod 2**64
    """
    words = ring.encode(bounded(x, bound))
    if bound.finite:
        sent: Floats = words.view(np.int64) * np.float64(ring.grid)
        if not (bound.norms_of(sent) <= 1.0 - SLACK / 2).all():
            raise ContributionRefused("an encoded contribution exceeds the query's bound")
    return words
