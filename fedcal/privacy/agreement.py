"""Terms of a job: all that a site agrees to, as data, and whether a request follows from them.

The coordinator's method makes them (`fedcal.strategies.server.job.Job.terms`). A site believes
nothing in them: before it accepts them it makes the plan again from its facts, bound, rounds and
rates (`Terms.check`), and later it answers what they name and nothing else.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from fedcal.core.checks import damaged, integer, read, same
from fedcal.core.options import strict
from fedcal.privacy.agreed_plan import AgreedPlan
from fedcal.privacy.privacy import FIELDS
from fedcal.privacy.query import Asked, Query, Question, Request, check_question
from fedcal.units import Bound

AGREED: Mapping[str, type[Any]] = {
    "method": str,
    "settings": str,
    "secure-aggregation": str,
    "input": str,
    "class-digest": str,
    "roster": str,
    **FIELDS,
}
"""The public facts of a job that a server and its sites must agree on, and what each is. How the
server keeps its books, where it writes, how long it waits and its seed are its own affair."""

PROTOCOL = "protocol"
"""`secure-aggregation` of a job whose contributions are summed by a committee of the sites."""

_PURPOSE = "fedcal/job/2"


_OPEN = ("classes", "input", "class-digest")
"""Facts that a run config may leave to the sites, by 0 or ""; the plan and questions have them."""


@dataclass(frozen=True)
class Terms:
    """All that a site holds the requests of a job against.

    Attributes
    ----------
    job
        the public facts, all that are `AGREED`
    plan
        what is protected, and by which noise
    questions
        what each round may ask
    form
        of the result, a key of `fedcal.storage.artifact.ARTIFACTS`
    norms
        what each block of an exact answer is clipped to; () = nothing is
    result_bytes
        of the arrays that a result has before the first round: about as many as at the end
    """

    job: Mapping[str, Any]
    plan: AgreedPlan
    questions: tuple[Question, ...]
    form: str = ""
    norms: tuple[float, ...] = ()
    result_bytes: int = 0

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for a strict JSON file, for `from_plain`; no seed is in them."""
        questions = [question.to_plain() for question in self.questions]
        own = {"job": strict(self.job), "plan": self.plan.to_plain(), "questions": questions}
        own |= {"norms": list(self.norms), "form": self.form, "result_bytes": self.result_bytes}
        return own

    @classmethod
    def from_plain(cls, values: Any) -> Self:
        """Return the terms of `to_plain` values, which nobody has checked; see `check`.

        Raises InputError if they are none.
        """
        with damaged("what is asked cannot be read as the terms of a job"):
            facts = {**values["job"]}
            for name in ("epsilon", "delta", "quorum", "sampling-rate"):
                facts[name] = float(facts[name])
            return cls(
                {name: read(facts, name, kind) for name, kind in AGREED.items()},
                AgreedPlan.from_plain(values["plan"]),
                tuple(Question.from_plain(question) for question in values["questions"]),
                str(values["form"]),
                tuple(float(norm) for norm in values["norms"]),
                integer("result-bytes", values["result_bytes"], 0),
            )

    @cached_property
    def key(self) -> str:
        """Digest of the job and its plan, by which requests name the terms; see `key_of_job`."""
        return key_of_job(self.job, self.plan)

    def check_job(self, fields: Mapping[str, Any]) -> None:
        """Refuse a run config that states other public facts; it may leave those of `_OPEN` out."""
        for name, kind in AGREED.items():
            asked, own = read(fields, name, kind), self.job[name]
            if asked or name not in _OPEN:
                same(f"{name} of the run, by the accepted terms,", asked, own)

    def request(self, asked: Asked) -> Request:
        """Return what is asked as a site answers it: bound, ring, noise and coins are the plan's.

        Formal guarantee: an answer to what is returned is clipped to the bound and, where clients
        add it, has the noise that the stated epsilon and delta need under these terms. It answers
        a question of theirs in a round that has it; parameters that follow from earlier releases
        lie within declared ranges, and whether they do follow from them cannot be seen here.
        Assumed is that the site answers each round once.

        Raises InputError, one line that names the first thing that differs.
        """
        same("terms that a request is of", asked.terms, self.key)
        integer("the round of a request", asked.round, 1, self.plan.rounds)
        check_question(self.questions, asked.round, asked.query)
        return request_under(self.plan, asked.query, asked.round, self.norms)


def key_of_job(job: Mapping[str, Any], plan: AgreedPlan) -> str:
    """Return the digest of a job's public facts, but for those of `_OPEN`, and of its plan.

    Server and sites compute it: equal exactly where all facts are, floats to their last bit.
    Raises InputError if a fact is missing or is of another kind.
    """
    agreed = sorted((name, kind) for name, kind in AGREED.items() if name not in _OPEN)
    return _digest([_PURPOSE, [[name, read(job, name, kind)] for name, kind in agreed], plan.key])


def job_digest(key: str, run: str) -> str:
    """Return the digest of one run of a job, by which all its participants name it.

    Parameters
    ----------
    key
        of the job (`Terms.key`)
    run
        the run's name: the same facts twice are two jobs

    Returns
    -------
    str
        SHA-256, 64 hexadecimal digits
    """
    return _digest([_PURPOSE, run, key])


def _digest(values: list[Any]) -> str:
    text = json.dumps(values, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def request_under(
    plan: AgreedPlan, query: Query, number: int, norms: tuple[float, ...] = ()
) -> Request:
    """Return a plan's request for a query in a round; server and sites make the same.

    Parameters
    ----------
    norms
        what each block of an exact answer is clipped to; () = nothing is
    """
    bound = plan.bound or Bound(query.lengths(), norms, "per_block" if norms else "joint")
    return Request(
        *(query, bound, plan.ring, number),
        noise=plan.noise if plan.model.noise_by == "client" else None,
        rate=1.0 if query.everyone else plan.own_rate,
        row_rate=plan.row_rate,
    )
