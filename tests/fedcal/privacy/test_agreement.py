"""A site's own plan equals the server's, and a request that differs from it is refused."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import pytest
from refusals import refused

from fedcal.clients.questions.histograms import BinOutcomes, ClassCounts, ClassHistograms
from fedcal.clients.questions.search import AccuracyGap
from fedcal.clients.questions.temperature import TemperatureScores
from fedcal.core.errors import InputError
from fedcal.mechanisms import Noise
from fedcal.privacy import Federation
from fedcal.privacy.agreement import AGREED, PROTOCOL, job_digest, own_request
from fedcal.privacy.query import QUERIES
from fedcal.privacy.request import Request
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import settings_of
from fedcal.trust import NOISY, TRUSTS
from fedcal.units import UNITS
from fedcal.units.bounding import Bound

JOB = Job("fednewton", Federation(12, 3, epsilon=1.0, trust="local"), class_digest="0" * 64)
FIELDS = JOB.to_fields()
OWN = {"ledger", "cap", "cap-delta", "seed", "dropout", "tolerant", "timeout", "grace"}
"""What a server decides by itself."""


def test_every_field_of_a_job_is_agreed_on_or_the_server_s_own_affair():
    assert OWN.isdisjoint(AGREED)
    assert FIELDS.keys() <= AGREED.keys() | OWN
    assert AGREED.keys() - FIELDS.keys() <= {"committee", "threshold", "roster"}


def changed(kind: type, value: Any) -> Any:
    if kind is str:
        return f"{value}x"
    return value + 1 if kind is int else math.nextafter(value, 9.0)


@pytest.mark.parametrize("name", AGREED)
def test_each_fact_counts_to_the_last_bit(name):
    given = {"committee": 0, "threshold": 0, "roster": "", **FIELDS}
    other = {**given, name: changed(AGREED[name], given[name])}
    assert job_digest(other, "r") != job_digest(given, "r")
    refused(name, job_digest, {**given, name: None}, "r")


def test_nothing_else_counts_but_the_run():
    first = job_digest(FIELDS, "r")
    assert len(first) == 64
    more = {**FIELDS, **dict.fromkeys(OWN, "other"), "out": "/tmp/x", "committee": 0, "roster": ""}
    assert job_digest(dict(reversed(more.items())), "r") == first
    assert job_digest({**FIELDS, "epsilon": 1}, "r") == first  # a float written as a whole number
    assert job_digest(FIELDS, "s") != first


def test_the_digest_of_a_job_never_changes():
    """Server and sites may run different versions of fedcal: what is hashed is part of the wire."""
    facts = {name: {str: name, int: 7, float: 0.1}[kind] for name, kind in AGREED.items()}
    assert job_digest(facts, "run") == (
        "4dc57cd52e2eb550fab59f19443669f39eac14e79dfc3b03b69159395073ee6e"
    )


COMMITTEE: Mapping[str, Any] = {"committee": 7, "threshold": 5, "colluding": 2}


def jobs(name: str) -> Iterator[Job]:
    """Small jobs that between them reach every branch of the method's plan."""
    method = STRATEGIES[name]
    ways = cycle(((1.0, "masks"), (0.5, "masks"), (0.5, PROTOCOL), (1.0, PROTOCOL)))
    rows = {"rows_per_client": 9.0} if "rows_per_client" in settings_of(name) else {}
    for given, (trust, unit) in product(method.examples, product(TRUSTS, UNITS)):
        epsilon = 1.0 if trust in NOISY else math.inf
        if method.exact_only and trust in NOISY:
            continue
        rate, secure = next(ways)
        federation = Federation(
            *(12, 3),
            epsilon=epsilon,
            trust=trust,
            unit=unit,
            sampling_rate=rate,
            noise_source="system",
            **(COMMITTEE if secure == PROTOCOL else {}),
        )
        try:
            job = Job(name, federation, {**rows, **given}, secure_aggregation=secure)
            assert job.plan
        except InputError:
            continue  # the method, or these settings, do not go with it
        yield job


def opened(job: Job) -> Request:
    """The first question, as it arrives at a site."""
    asked = job.strategy().open_round(1)
    sent = asked.request
    fields = sent.to_fields(noise=job.secure_aggregation != PROTOCOL)
    return Request.from_fields(fields, sent.context_fields())


def planned(fields: Mapping[str, Any]) -> Any:
    return Job.from_fields({**fields, "classes": 0, "input": ""}, classes=3).terms()


def refuses(fields: Mapping[str, Any], request: Request, what: str = ".") -> None:
    """Refused, in one line: there is no such plan, or it is another one."""
    refused(what, lambda: own_request(fields, request, planned(fields)))


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_site_makes_the_server_s_plan_from_public_facts(name):
    found = list(jobs(name))
    assert found
    for job in found:
        fields, request = job.to_fields(), opened(job)
        terms = planned(fields)
        plan = terms.plan
        assert plan == job.plan
        own = own_request(fields, request, terms)
        assert own.noise == (plan.noise if plan.model.noise_by == "client" else None)
        if plan.committee:
            assert plan.committee == (7, 5)
            assert request.noise is None
            assert {request.rate, request.row_rate} == {1.0}
            assert own.row_rate == plan.row_rate
            rate = job.federation.sampling_rate
            assert own.rate == (1.0 if own.query.everyone else rate)
        else:
            assert own == request


def softer(noise: Noise | None) -> Noise:
    return replace(noise, scales=tuple(s * 2 / 3 for s in noise.scales))


def in_context(**change: Any) -> Any:
    return lambda r: {"context": replace(r.context, **change)}


CHANGES: Mapping[str, Any] = {
    "epsilon": in_context(epsilon=0.5),
    "delta": in_context(delta=1e-9),
    "number of rounds": lambda r: {"context": replace(r.context, rounds=r.context.rounds + 1)},
    "unit": lambda r: {
        "context": replace(r.context, unit="user" if r.context.unit != "user" else "example")
    },
    "trust": in_context(trust="nobody"),
    "mechanism": in_context(mechanism="nothing"),
    "plan": in_context(plan="0" * 64),
    "ring": lambda r: {"ring": replace(r.ring, grid=2 * r.ring.grid)},
    "bound": lambda r: {"bound": replace(r.bound, norms=tuple(2 * c for c in r.bound.norms))},
    "secret coin": lambda r: {"rate": r.rate / 2},
    "share of rows": lambda r: {"row_rate": r.row_rate / 2},
}
OF_NOISE: Mapping[str, Any] = {
    "scales": lambda r: {"noise": softer(r.noise)},
    "shares": lambda r: {"noise": replace(r.noise, shares=r.noise.shares + 1)},
    "none": lambda r: {"noise": None},
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_request_that_differs_in_one_thing_is_refused(name):
    for job in jobs(name):
        if job.federation.unit == "subject":
            continue  # as "example", here
        fields, request = job.to_fields(), opened(job)
        terms = planned(fields)
        plan = terms.plan
        changes = dict(CHANGES)
        if plan.committee:  # it names none of these
            del changes["secret coin"], changes["share of rows"]
        if not plan.private:
            del changes["bound"]  # the method bounds each question by itself
        if request.noise is not None:
            changes |= OF_NOISE
        for what, change in changes.items():
            try:
                other = replace(request, **change(request))
            except InputError:  # no such request: it is refused where it is read
                continue
            kind = "noise" if what in OF_NOISE else what
            why = f"request's {kind}, by the job.s public|mechanism of the noise must be 'nothing'"
            refused(why, own_request, fields, other, terms)


def test_other_public_facts_are_noticed():
    shared = Federation(12, 3, epsilon=1.0, trust="distributed", sampling_rate=0.5)
    job = Job("fedtemp", shared, {"clip": 0.5})
    request = opened(job)
    own_request(job.to_fields(), request, planned(job.to_fields()))
    others = {"clients": 13, "epsilon": 2.0, "delta": 1e-6, "unit": "example", "quorum": 0.5}
    others |= {"rounds": 9, "sampling-rate": 0.25, "trust": "central", "method": "fedcal"}
    others |= {"mechanism": "laplace", "secure-aggregation": PROTOCOL}
    for name, value in (*others.items(), ("settings", '{"clip": 0.25}')):
        refuses({**job.to_fields(), name: value}, request)


LEVELS = Federation(12, 3, epsilon=1.0, trust="local", noise_source="system")
OTHERS = (
    (Job("fedtemp", Federation(12, 3, epsilon=1.0)), ClassCounts(3)),  # other lengths
    (Job("evaluate", LEVELS, {"bins": 8}), ClassHistograms(3, 12)),  # in other blocks
    (Job("evaluate", LEVELS, {"bins": 8}), TemperatureScores(0.5, 2.0, 72)),  # asked in each round
)


@pytest.mark.parametrize(("job", "query"), OTHERS)
def test_a_question_that_the_plan_was_not_made_for_is_refused(job, query):
    request = opened(job)
    bound = request.bound
    if sum(query.lengths()) != bound.length:  # no request: refused where it is read
        bound = replace(bound, lengths=query.lengths())
    refuses(job.to_fields(), replace(request, query=query, bound=bound), "bound|question")


def test_an_exact_answer_has_the_question_s_own_blocks():
    job = Job("fedbin", Federation(12, 3))
    request = opened(job)
    for change in ({"lengths": (request.bound.length,)}, {"per": "row"}):
        other = replace(request, bound=replace(request.bound, **change))
        refuses(job.to_fields(), other, "bound of .*, an exact sum")


@pytest.mark.parametrize("trust", NOISY)
def test_under_the_protocol_the_noise_is_the_site_s_own(trust):
    shared = Federation(12, 3, epsilon=1.0, trust=trust, sampling_rate=0.5, **COMMITTEE)
    job = Job("fedtemp", shared, secure_aggregation=PROTOCOL)
    fields, request = job.to_fields(), opened(job)
    terms = planned(fields)
    plan, own = terms.plan, own_request(fields, request, terms)
    assert (own.noise is None) == (trust == "central")
    assert own.rate == 0.5
    if own.noise is not None:
        whole = plan.quorum - 2 if trust == "distributed" else 1  # two of them may tell theirs
        assert own.noise.shares == whole
    for change in (
        ({"noise": softer(own.noise)} if own.noise else {}),
        {"rate": 0.25},
        {"row_rate": 0.5},
    ):
        if change:
            refused(
                "noise that a request under secure aggregation names",
                own_request,
                fields,
                replace(request, **change),
                terms,
            )
    with pytest.raises(InputError):  # the message's own noise, in a run without the protocol
        own_request({**fields, "secure-aggregation": "none"}, request, terms)


def test_under_exact_sums_no_other_kind_of_question_is_answered():
    """One site gave 891 cells of one row each to whoever had it agree to `fednewton`."""
    job = Job("fednewton", Federation(12, 3))
    fields, request = job.to_fields(), opened(job)
    own_request(fields, request, planned(fields))
    for kind, query in QUERIES.items():
        if kind != request.query.kind:
            other = query(**query.examples[0])
            refuses(fields, replace(request, query=other, bound=Bound(other.lengths())), "question")


def test_a_setting_of_another_value_and_a_parameter_out_of_its_range_are_refused():
    job = Job("dp-histogram", Federation(12, 3), {"bins": 15})
    fine = BinOutcomes(2**15, "correct_wrong")
    other = replace(opened(job), query=fine, bound=Bound(fine.lengths()))
    refuses(job.to_fields(), other, "bins = 32768 instead of 15")
    job = Job("acct", Federation(12, 3), {"low": 0.5, "high": 3.0})
    request = opened(job)
    for t, why in ((3.0, ""), (3.001, r"instead of a number in \[0.5, 3\]")):
        asked = replace(request, query=AccuracyGap(t))
        if why:
            refuses(job.to_fields(), asked, why)
        else:
            own_request(job.to_fields(), asked, planned(job.to_fields()))


def test_a_round_asks_its_own_question():
    """The counts of classes are asked in the first round alone."""
    job = Job("fedbbq", Federation(12, 3, rounds=3))
    request = opened(job)
    assert request.query.kind == "class_counts"
    later = replace(request, round=2, context=replace(request.context, round=2))
    refuses(job.to_fields(), later, "question 'class_counts' of round 2")
