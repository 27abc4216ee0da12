"""Request from the server to a client: a question, its bound and its context.

The question and its bound are one record of a message. The versions and public facts in the other
are in no noise key and do not count as payload.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np

from fedcal.core.checks import InputError, damaged, fraction, one_of, same, whole
from fedcal.core.fields import Param, Scalar, set_checked, shaped
from fedcal.core.numerics import check_seed, key_of
from fedcal.mechanisms import Noise
from fedcal.privacy.query import QUERIES, Query
from fedcal.secure_aggregation import Ring
from fedcal.units.bounding import Bound

Field = Scalar | bytes | list[int] | list[float] | list[str] | list[bytes] | list[bool]

VERSION = 1
"""Version of the wire form."""

RUN = re.compile(r"[\w.:-]{1,64}")
"""Form of a run's name."""


@dataclass(frozen=True)
class Asked:
    """What a server asks a site that has a guard: the site takes all else from its own terms.

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

    def to_records(self) -> dict[str, dict[str, Field]]:
        """Return the records of a message, for `from_records`."""
        asked: dict[str, Field] = {"kind": self.query.kind, "round": self.round}
        context: dict[str, Field] = {"run": self.run, "terms": self.terms}
        return {"query": asked | params_of(self.query), "context": context | facts_of(self.query)}

    @classmethod
    def from_records(cls, records: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return what a message asks; InputError if it does not, or states anything else."""
        with damaged("a question cannot be read"):
            fields, context = records["query"], records["context"]
            known = {"kind", "round", "version", "query-version", "run", "terms"}
            for name in (*fields, *context):
                if name not in known and not name.startswith(("param.", "fact.")):
                    raise InputError(f"a question to a site states no {name!r:.80}: its terms do")
            number = whole("the round of a question", fields["round"], 1)
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
        whole = self._key(self.query.key)
        return hashlib.sha256(key_of(whole, self.round).encode()).hexdigest()


def params_of(query: Query) -> dict[str, Field]:
    """Return the parameters of a question, for a message."""
    return {
        f"param.{key}": value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in query.params().items()
    }


def facts_of(query: Query) -> dict[str, Field]:
    """Return the versions and public facts of a question, which do not count as payload."""
    fields: dict[str, Field] = {"version": VERSION, "query-version": query.version}
    return fields | {f"fact.{name}": getattr(query, name) for name in query.facts}


def query_in(fields: Mapping[str, Any], context: Mapping[str, Any]) -> Query:
    """Return the question of `params_of` and `facts_of` records, or raise InputError."""
    whole("the version of the wire form", context["version"], VERSION, VERSION)
    query = QUERIES[one_of("query", fields["kind"], sorted(QUERIES))]
    ours = query.version
    whole(f"the version of the query {query.kind!r}", context["query-version"], ours, ours)
    params, facts = (
        {k.removeprefix(start): _param(v) for k, v in record.items() if k.startswith(start)}
        for record, start in ((fields, "param."), (context, "fact."))
    )
    return query.read(params, facts)


def _param(value: Any) -> Param:
    """Return a scalar as it is, and a list as the vector it was."""
    if not isinstance(value, list):
        scalar: Scalar = value
        return scalar
    return np.array(value, np.float64)
