"""Base class of questions: typed parameters, the shape of the answer, and its public bound.

A question is checked where it is made, on the server, and where it is read, on the client: a
client's computation never depends on a number that no server of this version would send.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from fedcal.core.checks import one_of, same
from fedcal.core.fields import CheckedFields
from fedcal.core.imports import Lazy
from fedcal.core.numerics import Floats, Integers, Words, key_of
from fedcal.core.shards import Shards
from fedcal.secure_aggregation import Ring
from fedcal.units import UNITS
from fedcal.units.bounding import SLACK, Bound, Per, Rule

Part = Per
"""Unit whose contribution is bounded: a complete client, or one subject or one row of a client."""

Order = Literal[1, 2]


@dataclass(frozen=True, eq=False)
class Query(CheckedFields, ABC):
    """Question to the clients: its parameters, its public bound, and what a client answers.

    A subclass is a frozen dataclass (with `eq=False` where a field is an array). It is known in
    `QUERIES` by its `kind` as soon as it is defined, in whatever package.

    Attributes
    ----------
    kind
        name on the wire
    version
        of the parameters' meaning; a client refuses any but its own
    row_sums
        whether a client's answer is a sum of contributions of its rows, so that the contribution of
        a row, or of a subject, may be clipped by itself
    signed
        whether a number of an answer may be negative
    everyone
        ask all enrolled clients, not this round's sample (no privacy only)
    asked_once
        each client answers in one round of a run only: rounds are for disjoint parts of the clients
    fine
        an answer sums many rows: its grid is as fine as the rows leave capacity for (`Plan.fine`)
    cuts
        fields that define the cells rows are counted in: a server that chooses these in the run
        chooses how few rows a count is of
    facts
        fields that are not parameters of the statistic, but of the bound and the lengths: public
        facts such as `classes`. They are sent beside the question, and are in no noise key
    learned
        parameters computed from earlier answers whose digits depend on the processor (of clients'
        own fits, of differences near 0). They are in no noise key, because one digit would change
        the round's noise. Two runs with the same seed and plan whose questions differ only in these
        share the round's noise, as they share the first round's noise for any rows: seeds are for
        simulation, and sites draw from the operating system
    examples
        small constructor arguments, for a problem of three classes; at most ten
    """

    version: ClassVar[int] = 1
    row_sums: ClassVar[bool] = True
    signed: ClassVar[bool] = True
    everyone: ClassVar[bool] = False
    asked_once: ClassVar[bool] = False
    fine: ClassVar[bool] = False
    cuts: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...] | None] = ("subject_rows",)
    learned: ClassVar[tuple[str, ...]] = ()
    examples: ClassVar[tuple[Mapping[str, Any], ...]]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "kind" in vars(cls):
            register(cls)

    @abstractmethod
    def lengths(self) -> tuple[int, ...]:
        """Return the numbers in each block of an answer."""

    @abstractmethod
    def sums(self, shards: Shards, sites: Integers | None = None) -> Floats:
        """Return what each client's rows add up to, (clients, numbers); zeros without rows.

        The numbers are neither clipped nor noisy: both happen elsewhere, for all questions alike.

        Parameters
        ----------
        shards
            rows of many clients
        sites
            (clients,) the number of each client's site; None = 0 of all, or parts of clients
        """

    def prepare(self, shards: Shards, sites: Integers | None) -> None:
        """Compute what `sums` of parts of clients takes from all rows of a client."""
        return None

    def row_words(self, shards: Shards, bound: Bound, ring: Ring) -> Words | None:
        """Return each client's sum over its rows, every row clipped and encoded by itself.

        A faster way to the same words, (clients, length) uint64; None = row after row.
        """
        return None

    @abstractmethod
    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound on the contribution of a client, or of a part of it, to the answer.

        Parameters
        ----------
        part
            "client": bounded by `clips`; "subject", "row": bounded by the question alone
        clips
            the method's own public clip values, in the units of the answer
        order
            norm that is bounded, 1 or 2

        Raises
        ------
        InputError
            If the answer is not a sum over rows, or the number of clips is wrong.
        """

    def whole(self, part: Part) -> bool:
        """Return whether each such part adds integers alone, of an L1 norm that is one, too.

        Such counts have their Laplace noise on the integers. `bound` says so by `Bound.whole`.
        """
        return False

    @property
    def key(self) -> str:
        """Text that identifies the question."""
        return key_of(self.kind, self.params())

    @property
    def noise_key(self) -> str:
        """Text `key` without the `learned` parameters: part of the key of seeded noise."""
        return key_of(self.kind, {k: v for k, v in self.params().items() if k not in self.learned})

    @property
    def reads(self) -> tuple[int, ...] | None:
        """Shape of one input of the question's network; None = the question is about scores."""
        return None

    def costs(self, sums: Floats) -> Floats | None:
        """Return the cost of each candidate of a draw from exact sums; None = by absolute values.

        `sums` and the costs are (length,), (candidates,). The changes of two candidates' costs by
        one neighbour must differ by at most two norms of the bound.
        """
        return None

    @classmethod
    def part(cls, unit: str) -> Part:
        """Return the part of a client that is clipped by itself if `unit` is protected."""
        return UNITS[unit].per if cls.row_sums else "client"

    def takes_clips(self, part: Part, clips: Sequence[float], number: int) -> bool:
        """Return whether a bound is for a complete client, by `number` clips.

        Raises InputError if the number of clips differs, or the answer is not a sum over rows.
        """
        parts = get_args(Part) if self.row_sums else ("client",)
        if one_of("part", part, parts) == "client":
            same(f"number of clips of the query {self.kind!r}", len(clips), number)
        return part == "client"


class Summed(Query):
    """Question whose bound is one norm for all blocks of an answer equally, mostly a single one.

    Attributes
    ----------
    rule
        by which the norm bounds an answer's numbers
    """

    rule: ClassVar[Rule] = "joint"

    @abstractmethod
    def added(self, part: Part, order: Order) -> float:
        """Return the largest norm of the contribution of one row, or of one subject."""

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return the bound: the clip for a client, `added` for a row or a subject."""
        lengths, client = self.lengths(), self.takes_clips(part, clips, 1)
        norm = clips[0] if client else self.added(part, order)
        if order == 1 and self.whole(part):
            return Bound(lengths, (norm,) * len(lengths), self.rule, order, part, whole=True)
        norm = norm if client else self.unclipped(norm)
        return Bound(lengths, (norm,) * len(lengths), self.rule, order)

    def unclipped(self, norm: float) -> float:
        """Return a bound for what has this norm; a bit more, where the clip should cut nothing."""
        return norm


class OneHotQuery(Query):
    """Question for a single 1, from one row of each client, for unary encoding.

    The answer is not a sum over rows, because one row may move the 1. `bound` does not clip it.
    """

    row_sums = False
    signed = False

    seed: int

    def one_of_each(self, shards: Shards, cells: Integers) -> Floats:
        """Return a 1 in the cell of one row of each client, drawn by `seed`."""
        from fedcal.core.shards import drawn

        out, first = np.zeros((shards.clients, sum(self.lengths()))), drawn(shards, self.seed)
        out[shards.owner[first], cells[first]] = 1.0
        return out

    def bound(self, part: Part, clips: Sequence[float] = (), order: Order = 2) -> Bound:
        """Return a bound with capacity for the 1, which a norm of 1 would clip."""
        self.takes_clips(part, clips, 0)
        return Bound(self.lengths(), (2.0,), order=order)


QUERIES: Lazy[Query] = Lazy("kind", {})
"""Kind -> question, of all defined so far; of ours by `fedcal.clients.questions`."""


def register(query: type[Query]) -> None:
    """Add a question to `QUERIES`; TypeError if another class has its kind.

    The same class, defined anew, replaces the former one.
    """
    own = f"{query.__module__}.{query.__qualname__}"
    former: Any = QUERIES.data.get(query.kind, query)
    if isinstance(former, type):
        former = f"{former.__module__}.{former.__qualname__}"
    if former not in (own, query.__module__):
        raise TypeError(f"{former} and {own} are both questions of kind {query.kind!r}")
    QUERIES[query.kind] = query


ROOM = 1.0 + 2.0**-20
"""Factor above the norm of what a row adds, so that the clip's slack clips nothing."""


def with_room(norm: float) -> float:
    """Return a bound whose clip cuts nothing off what has this norm."""
    return norm * ROOM / (1.0 - SLACK)


def fits(bound: Bound, query: Query) -> bool:
    """Return whether a bound's blocks are the blocks of the answer, or parts of them."""
    ours, theirs = (set(np.cumsum(n).tolist()) for n in (query.lengths(), bound.lengths))
    return ours <= theirs and max(ours) == max(theirs)
