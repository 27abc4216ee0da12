"""Units of privacy, whose presence in the data a guarantee hides: client, subject, row.

A unit is a class with everything that other modules need from it, and an entry in `UNITS`. What is
said of it (`fedcal.results.statement`) follows from `neighbours` and `per`.

Bound of what one protected unit may add to a sum, and the one function that enforces it.

**Formal guarantee.**
`bounded` maps any array to one whose rows lie in the set that `Bound` describes. `Bound.per`
defines a row of that array: a client's complete contribution ("client"), or, for statistics
that are sums over rows, what all rows of one of its subjects ("subject") or one of its labelled
rows ("row") add to it; the client's contribution is then the sum of these clipped parts and has no
bound of its own except the ring's. So a sum over clients changes by at most one member of the set
when one client (subject, row) is added or removed; replacing a client's shard by the empty one
(zero-out, the number of clients stays public) is the same. When it is *replaced* by another, or
when one row changes a per-client statistic that is not a sum over rows, the change is a difference
of two members: `Plan.diameter` is 2 there.

In units where block b is divided by its norm, one member has at most

=============  =========================================  ===============  ======================
rule           quantity limited to 1                      L2 sensitivity   L1 sensitivity
=============  =========================================  ===============  ======================
``joint``      the norm of all blocks together            1                1, or sqrt(numbers)
``per_block``  the norm of each block                     sqrt(blocks)     blocks, or the sum of
                                                                           sqrt(block lengths)
``per_value``  the absolute value of each number          sqrt(numbers)    numbers
=============  =========================================  ===============  ======================

where the norm is L1 (`order` 1: Laplace noise) or L2 (`order` 2: Gaussian noise), and the second
figure of the last column is that of an L2 norm.

A bound is *whole* where every part of a client adds integers alone and never more than the norms,
which are integers too (counts of rows): parts are truncated to integers first, norms are compared
exactly, and a part at its bound keeps every bit. Neighbouring sums then differ by integers, and
Laplace noise is drawn on the integers.

Edge cases: a zero vector stays zero; a vector inside the bound keeps every bit; NaN counts as 0
and an infinity as a number beyond every bound, because a refusal would reveal the row that caused
it (without a bound they are refused: `ContributionRefused`); a non-positive norm is an
`InputError`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from fedcal.core.checks import ContributionRefused, InputError, integer, one_of
from fedcal.core.imports import registry
from fedcal.core.numerics import Floats, Integers, Words
from fedcal.core.options import MOST_NUMBERS
from fedcal.secure_aggregation import Ring

Per = Literal["client", "subject", "row"]


class Unit:
    """Unit of privacy, whose presence in the data a guarantee hides.

    Attributes
    ----------
    name
        on the command line and in files
    meaning
        line of description in a report
    plural
        name of the protected units, in the plural
    per
        part of a client's answer that is clipped by itself, where the answer is a sum over rows:
        all of it, each subject's part, or each row's
    column
        column of the data that assigns a client's rows to units; None = needs none
    whole_client
        whether it is all rows of a client, so that sampling clients amplifies it and a nominal
        number of a client's rows sets a bound
    neighbours
        adjacency -> difference of two neighbouring inputs, in words
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    plural: ClassVar[str]
    per: ClassVar[Per]
    column: ClassVar[str | None] = None
    by_client: ClassVar[bool] = False
    neighbours: ClassVar[Mapping[str, str]]

    @classmethod
    def adjacency(cls, replaces: bool) -> str:
        """Return the adjacency; `replaces`: a client's rows may become any other rows.

        A part of a client is added or removed in any case: its own client has its rows anyway.
        """
        return "add-remove"


class User(Unit):
    """All rows of one client together as the unit."""

    name: ClassVar[str] = "user"
    meaning: ClassVar[str] = "user: all rows of one client together"
    plural: ClassVar[str] = "users"
    per: ClassVar[Per] = "client"
    by_client: ClassVar[bool] = True
    neighbours: ClassVar[Mapping[str, str]] = {
        "zero-out": "removing all rows of one client",
        "replace": "replacing all rows of one client by any others",
    }

    @classmethod
    def adjacency(cls, replaces: bool) -> str:
        """Return zero-out, or replacement if a client's answer itself is seen."""
        return "replace" if replaces else "zero-out"


class Subject(Unit):
    """All rows with one subject's number at one client (column `subject`) as the unit."""

    name: ClassVar[str] = "subject"
    meaning: ClassVar[str] = (
        "subject: all rows of one subject (such as a patient) at one client; a person at k clients "
        "is k subjects unless ids are agreed"
    )
    plural: ClassVar[str] = "subjects"
    per: ClassVar[Per] = "subject"
    column: ClassVar[str | None] = "subject"
    neighbours: ClassVar[Mapping[str, str]] = {
        "add-remove": "adding or removing all rows of one subject at one client"
    }


class Example(Unit):
    """One row of one client as the unit."""

    name: ClassVar[str] = "example"
    meaning: ClassVar[str] = (
        "example: one row of one client; a client of m rows has m times the epsilon"
    )
    plural: ClassVar[str] = "rows"
    per: ClassVar[Per] = "row"
    neighbours: ClassVar[Mapping[str, str]] = {
        "add-remove": "adding or removing one row",
        "zero-out": "emptying the place of one row",
    }


Rule = Literal["joint", "per_block", "per_value"]
UNITS: dict[str, type[Unit]] = registry(User, Subject, Example)
"""Name on the command line and in files -> unit, the largest first."""

SLACK = 2.0**-34
"""Vectors are clipped to norm (1 - SLACK), so that no rounding of the clip itself, nor of the
sum of up to 2**18 squares (or absolute values) that checks it, can hide a true norm above 1."""

_SMALLEST = 1e-100  # a norm whose square is not a normal float could not be checked
_MOST_INTEGER = 2**31  # largest integer norm: its quotients with other integers are exact about 1
_LARGEST = 1e50  # largest number, in norms: its square, and a sum of squares, is a normal float


@dataclass(frozen=True)
class Bound:
    """Shape of a contribution, and the bound of one client, or one row.

    Attributes
    ----------
    lengths
        numbers in each block
    norms
        bound of each block in the statistic's own units; empty = not bounded (no privacy)
    rule
        how the blocks' norms combine, see the module's table
    order
        1 or 2, the norm that is bounded
    per
        "client", or "subject" or "row" if the addend of each is clipped before a client sums them
    whole
        all addends are integers within the norms, which are integers, equal ones for rule "joint"
    """

    lengths: tuple[int, ...]
    norms: tuple[float, ...] = ()
    rule: Rule = "joint"
    order: Literal[1, 2] = field(default=2, repr=False)
    per: Per = field(default="client", repr=False)
    whole: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 1 or self.length > MOST_NUMBERS:
            allowed = f"blocks of length >= 1, and at most {MOST_NUMBERS:,} numbers"
            raise InputError(f"a contribution needs {allowed}, got {self.lengths!s:.80}")
        one_of("rule", self.rule, get_args(Rule))
        integer("order", self.order, 1, 2)
        one_of("per", self.per, get_args(Per))
        inside = all(_SMALLEST <= c <= 1 / _SMALLEST for c in self.norms)
        if not inside or len(self.norms) not in (0, len(self.lengths)):
            allowed = f"finite and > 0 ({_SMALLEST:g} to {1 / _SMALLEST:g})"
            raise InputError(
                f"clip norms must be {allowed}, one for each of {len(self.lengths)} blocks, "
                f"got {self.norms}"
            )
        equal = self.rule != "joint" or len(set(self.norms)) == 1
        integers = equal and all(c == int(c) <= _MOST_INTEGER for c in self.norms)
        summed = self.finite and self.order == 1 and self.per != "client"
        if self.whole and not (integers and summed):
            raise InputError(
                f"a bound of integers needs L1 norms of parts of clients that are integers, got "
                f"{self.norms} of order {self.order} per {self.per}"
            )

    @property
    def key(self) -> tuple[Any, ...]:
        """Values that identify the bound, for `streams.key_of`."""
        mark = ("whole",) if self.whole else ()
        return (self.lengths, self.norms, self.rule, self.order, self.per, *mark)

    @property
    def length(self) -> int:
        """Number of numbers in a contribution."""
        return sum(self.lengths)

    @property
    def firsts(self) -> Integers:
        """Index of each block's first number, shape (blocks,)."""
        return np.cumsum((0, *self.lengths[:-1]))

    @property
    def finite(self) -> bool:
        """Condition that a client's influence is bounded."""
        return bool(self.norms)

    @property
    def most(self) -> float:
        """Largest norm that `bounded` leaves, in units of the bound."""
        return 1.0 if self.whole else 1.0 - SLACK

    @property
    def sensitivity(self) -> float:
        """Largest L2 norm of one member, each block in units of its norm."""
        return {
            "joint": 1.0,
            "per_block": math.sqrt(len(self.lengths)),
            "per_value": math.sqrt(self.length),
        }[self.rule]

    @property
    def l1_sensitivity(self) -> float:
        """Largest L1 norm of one member, each block in units of its norm."""
        if self.rule == "per_value":
            return float(self.length)
        if self.order == 1:
            return 1.0 if self.rule == "joint" else float(len(self.lengths))
        if self.rule == "joint":
            return math.sqrt(self.length)
        return sum(math.sqrt(n) for n in self.lengths)

    @cached_property
    def scale(self) -> Floats:
        """Norm of the block that each coordinate belongs to, shape (length,)."""
        norms = self.norms or (1.0,) * len(self.lengths)
        return np.repeat(np.array(norms, np.float64), self.lengths)

    def norms_of(self, x: Floats) -> Floats:
        """Return the norms that the rule limits to 1, (clients, length) -> (clients, groups)."""
        if self.rule == "per_value":
            return np.asarray(np.abs(x) / self.scale)
        if self.whole and self.rule == "joint":  # integers add up without rounding
            return np.asarray(np.abs(x).sum(axis=1, keepdims=True) / self.norms[0])
        sizes = self._blocks_sum(x) / np.array(self.norms) ** self.order
        if self.rule == "joint":
            sizes = sizes.sum(axis=1, keepdims=True)
        return np.asarray(sizes if self.order == 1 else np.sqrt(sizes))

    def _blocks_sum(self, x: Floats) -> Floats:
        """Return each block's sum of squares (order 2) or absolute values, (clients, blocks)."""
        y = np.abs(x) if self.order == 1 else x
        ones = np.ones_like(y) if self.order == 1 else y
        if len(set(self.lengths)) == 1:
            shape = (len(x), len(self.lengths), self.lengths[0])
            return np.asarray(np.einsum("kbi,kbi->kb", y.reshape(shape), ones.reshape(shape)))
        edges = np.cumsum(self.lengths)[:-1]
        pairs = zip(np.split(y, edges, axis=1), np.split(ones, edges, axis=1), strict=True)
        return np.stack([np.einsum("ki,ki->k", a, b) for a, b in pairs], axis=1)

    def scaled(self, x: Floats, factors: Floats) -> Floats:
        """Return each group of numbers times its factor, (clients, length), (clients, groups)."""
        each = factors if self.rule != "per_block" else np.repeat(factors, self.lengths, axis=1)
        return x * each


def bounded(x: Floats, bound: Bound) -> Floats:
    """Clip each contribution to exactly the query's bound; this is the only clipping.

    Parameters
    ----------
    x
        (clients, length) contributions in the statistic's own units; (rows, length) if the bound
        is per row
    bound
        from the query, never from the client

    Raises
    ------
    ContributionRefused
        If the shape is not the query's.
    """
    if x.ndim != 2 or x.shape[1] != bound.length:
        raise ContributionRefused(
            f"a contribution has shape {x.shape}, the query asks for (clients, {bound.length})"
        )
    if not bound.finite:
        return x
    if bound.whole:
        x = np.trunc(x)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = bound.norms_of(x)
    if not np.isfinite(norms).all():
        x = np.clip(np.where(np.isnan(x), 0.0, x), -_LARGEST * bound.scale, _LARGEST * bound.scale)
        norms = bound.norms_of(x)
    over = norms > bound.most
    if over.any():
        x = bound.scaled(x, np.where(over, bound.most / np.where(over, norms, 1.0), 1.0))
    return np.trunc(x) if bound.whole else x


def encode_bounded(x: Floats, bound: Bound, ring: Ring) -> Words:
    """Clip, encode on the ring's grid (truncating toward zero) and check the norm once more.

    The last check is on the integers that leave the client, so it covers every rounding on the
    way. It cannot fail for a vector that `bounded` clipped; it exists because a release
    without a bound must never happen.

    Returns
    -------
    Words
        (clients, length) uint64, integers mod 2**64
    """
    words = ring.encode(bounded(x, bound))
    if bound.finite:
        sent: Floats = words.view(np.int64) * np.float64(ring.grid)
        if not (bound.norms_of(sent) <= (bound.most + 1.0) / 2).all():
            raise ContributionRefused("an encoded contribution exceeds the query's bound")
    return words
