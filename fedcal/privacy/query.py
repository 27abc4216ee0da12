"""Base class of questions: typed parameters, the shape of the answer, and its public bound.

A question is checked where it is made, on the server, and where it is read, on the client: a
client's computation never depends on a number that no server of this version would send.

Questions that the rounds of a job may ask: fixed parameters, and ranges of moving ones.

A method declares its questions before anything is learned (`Method.questions`). The server asks no
other questions, and a site that builds the method from the job's settings answers no others.

Request from the server to a client: a question, its bound and its context.

The question and its bound are one record of a message. The versions and public facts in the other
are in no noise key and do not count as payload.
"""

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np

from fedcal.core.checks import InputError, damaged, fraction, integer, one_of, same
from fedcal.core.imports import Lazy
from fedcal.core.numerics import Floats, Integers, Words, check_seed, key_of
from fedcal.core.options import MOST_TEXT, CheckedFields, Scalar, set_checked, shaped, strict
from fedcal.core.shards import Shards
from fedcal.mechanisms import Noise
from fedcal.secure_aggregation import Ring
from fedcal.units import SLACK, UNITS, Bound, Per, Rule

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
    one_hot
        an answer is a single 1 among zeros, for unary encoding
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
    one_hot: ClassVar[bool] = False
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

    def counts_integers(self, part: Part) -> bool:
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
        if order == 1 and self.counts_integers(part):
            return Bound(lengths, (norm,) * len(lengths), self.rule, order, part, whole=True)
        norm = norm if client else self.unclipped(norm)
        return Bound(lengths, (norm,) * len(lengths), self.rule, order)

    def unclipped(self, norm: float) -> float:
        """Return a bound for what has this norm; a bit more, where the clip should cut nothing."""
        return norm


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


_ROUNDING = 1e-9
"""Relative error of a parameter: exp(log(x)) is not x, and types of CPU differ in last digits."""


@dataclass(frozen=True)
class Range:
    """Allowed values of a parameter that moves from round to round.

    Attributes
    ----------
    low, high
        of each number, both included
    least, most
        numbers of a vector; 0 and 0 = a single number
    whole
        whether numbers must be whole
    """

    low: float = -math.inf
    high: float = math.inf
    least: int = 0
    most: int = 0
    whole: bool = False

    def holds(self, value: Any) -> bool:
        """Return whether a parameter lies within the range."""
        if isinstance(value, bool) or not isinstance(value, Real | np.ndarray | tuple):
            return False
        numbers = np.asarray(value, np.float64)
        if numbers.ndim != bool(self.most) or not self.least <= numbers.size <= max(self.most, 1):
            return False
        ends = [abs(end) for end in (self.low, self.high) if math.isfinite(end)]
        room = _ROUNDING * max(ends, default=0.0)
        within = (numbers >= self.low - room) & (numbers <= self.high + room)
        return bool(within.all()) and not (self.whole and (numbers != np.round(numbers)).any())


SEED = Range(0, 2.0**64, whole=True)
"""Seed that chooses rows by a hash, or their order; it is not a fact of the job."""


@dataclass(frozen=True)
class Question:
    """Kind of question that some rounds of a job may ask.

    Attributes
    ----------
    kind
        of the query
    fixed
        field -> its only value; every field that does not move
    moving
        field -> its range
    rounds
        first and last round that may ask it
    cells
        maximum numbers of an answer: rows are partitioned into no more cells. Infinite where the
        server chooses the cells in the run
    """

    kind: str
    fixed: Mapping[str, Any]
    moving: Mapping[str, Range]
    rounds: tuple[int, int]
    cells: float

    @classmethod
    def like(cls, query: Query, rounds: tuple[int, int], **moving: Range) -> Self:
        """Declare a query, of which the fields in `moving` may change.

        Parameters
        ----------
        query
            an example of it; with the longest answer, where answers differ
        rounds
            first and last round that may ask it
        moving
            a vector that keeps the example's length needs no `least` and `most`
        """
        values = {f.name: getattr(query, f.name) for f in fields(query)}
        for name, allowed in moving.items():
            if not allowed.most and isinstance(example := values[name], np.ndarray | tuple):
                moving[name] = replace(allowed, least=len(example), most=len(example))
        fixed = {name: value for name, value in values.items() if name not in moving}
        anywhere = any(name in moving for name in query.cuts)
        cells = math.inf if anywhere else float(sum(query.lengths()))
        return cls(query.kind, fixed, moving, rounds, cells)

    def differs(self, query: Query) -> str:
        """Return the first parameter of a query that is not as declared, in words; "" = none."""
        for name, own in self.fixed.items():
            if not _same(value := getattr(query, name), own):
                return f"{name} = {_short(value)} instead of {_short(own)}"
        for name, allowed in self.moving.items():
            if not allowed.holds(value := getattr(query, name)):
                return f"{name} = {_short(value)} instead of {allowed}"
        numbers = sum(query.lengths())
        return "" if numbers <= self.cells else f"{numbers} cells instead of {self.cells:g} at most"

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for a strict JSON file, for `from_plain`."""
        moving = {
            name: {**asdict(allowed), "low": float(allowed.low), "high": float(allowed.high)}
            for name, allowed in self.moving.items()
        }
        plain: dict[str, Any] = strict({**vars(self), "moving": moving})
        return plain

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Self:
        """Return the question of `to_plain` values, whoever wrote them; see `check_declared`."""
        moving = {
            str(name): Range(
                **{**allowed, "low": float(allowed["low"]), "high": float(allowed["high"])}
            )
            for name, allowed in values["moving"].items()
        }
        first, last = values["rounds"]
        own = {"moving": moving, "rounds": (int(first), int(last)), "cells": float(values["cells"])}
        return cls(**{**values, **own})


def check_question(questions: Sequence[Question], round_number: int, query: Query) -> None:
    """Refuse a query that no question declares for this round.

    Raises InputError with one line that names the difference.
    """
    may = [q for q in questions if q.rounds[0] <= round_number <= q.rounds[1]]
    why = [q.differs(query) for q in may if q.kind == query.kind]
    if "" in why:
        return
    kinds = " or ".join(sorted({q.kind for q in may})) or "nothing"
    difference = why[0] if why else f"it may ask {kinds}"
    raise InputError(
        f"the question '{query.kind}' of round {round_number} is not one of the job's method with "
        f"its settings: {difference}"
    )


def _same(value: Any, own: Any) -> bool:
    """Return whether two values are equal up to the rounding of another type of CPU."""
    vector, own_vector = (np.ndim(v) > 0 for v in (value, own))
    if vector or own_vector:
        return np.shape(value) == np.shape(own) and np.allclose(value, own, _ROUNDING, 0.0)
    if isinstance(value, float) and isinstance(own, float):
        return math.isclose(value, own, rel_tol=_ROUNDING)
    return isinstance(value, bool) == isinstance(own, bool) and bool(value == own)


def _short(value: Any) -> str:
    return " ".join(str(value).split())[: MOST_TEXT // 3]


Field = Scalar | bytes | list[int] | list[float] | list[str] | list[bytes] | list[bool]

VERSION = 1
"""Version of the wire form."""

RUN = re.compile(r"[\w.:-]{1,64}")
"""Form of a run's name."""


@dataclass(frozen=True)
class Asked:
    """Question from a server to a site with a guard, which takes all else from its own terms.

    Attributes
    ----------
    query
        the question
    round
        its number, from 1
    run
        name of the run
    terms
        digest of the job and its plan (`fedcal.privacy.agreement.Terms.key`)
    """

    query: Query
    round: int
    run: Annotated[str, shaped(RUN)]
    terms: Annotated[str, shaped(re.compile("[0-9a-f]{64}"))]

    @classmethod
    def from_records(cls, records: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return what `wire.asked_records` asks; InputError for what does not, or states more."""
        with damaged("a question cannot be read"):
            fields, context = records["query"], records["context"]
            known = {"kind", "round", "version", "query-version", "run", "terms"}
            for name in (*fields, *context):
                if name not in known and not name.startswith(("param.", "fact.")):
                    raise InputError(f"a question to a site states no {name!r:.80}: its terms do")
            number = integer("the round of a question", fields["round"], 1)
            asked = cls(query_in(fields, context), number, context["run"], context["terms"])
            set_checked(asked)
            return asked


@dataclass(frozen=True)
class Request:
    """Question with its bound and its ring, which is all that a client needs to answer.

    No claim of a client about its own bound is trusted: the client clips to `bound`,
    and the mechanism takes its sensitivity from the same field of the plan.

    Attributes
    ----------
    noise
        noise that each client adds to its answer (trust `distributed`, `local`); None = none
    rate
        each client's rows take part with this probability, by its own coin (`distributed`)
    seed
        of a simulated client's noise and coins; a real site accepts none from a message
    row_rate
        each row takes part with this probability, by a coin of its client
    """

    query: Query
    bound: Bound
    ring: Ring
    round: int
    noise: Noise | None = None
    rate: float = 1.0
    seed: int | None = None
    row_rate: float = 1.0

    def __post_init__(self) -> None:
        for rate in (self.rate, self.row_rate):
            fraction("the sampling rate", rate, "(]")
        if self.seed is not None:
            check_seed(self.seed)
        length = self.bound.length
        same("length of the answer", sum(self.query.lengths()), length)
        if self.noise is not None:
            same("length of the noise", sum(self.noise.lengths), length)

    @property
    def key(self) -> str:
        """Key of the question and of all that the noise on its answer depends on, except the round.

        The same noise on two different answers, or at two scales, would reveal both.
        """
        return self._key(self.query.noise_key)

    def _key(self, question: str) -> str:
        ring, noise = self.ring, self.noise
        return key_of(
            question,
            self.bound.key,
            (ring.clients, ring.grid, self.rate),
            noise and (noise.mechanism.name, noise.lengths, noise.scales, noise.shares),
            *((self.row_rate,) if self.row_rate < 1 else ()),
        )

    @property
    def digest(self) -> str:
        """Digest, in hex, of the complete question, of all that is in `key`, and of its round.

        A site answers only one digest in a round of a job, ever.
        """
        return hashlib.sha256(key_of(self._key(self.query.key), self.round).encode()).hexdigest()


def query_in(fields: Mapping[str, Any], context: Mapping[str, Any]) -> Query:
    """Return the question of `wire.params_of` and `facts_of` records, or raise InputError."""
    integer("the version of the wire form", context["version"], VERSION, VERSION)
    query = QUERIES[one_of("query", fields["kind"], sorted(QUERIES))]
    ours = query.version
    integer(f"the version of the query {query.kind!r}", context["query-version"], ours, ours)
    params, facts = (
        {
            key.removeprefix(start): np.array(v, np.float64) if isinstance(v, list) else v
            for key, v in record.items()
            if key.startswith(start)
        }
        for record, start in ((fields, "param."), (context, "fact."))
    )
    return query.read(params, facts)
