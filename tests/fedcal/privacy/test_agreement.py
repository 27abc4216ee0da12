"""A site's own plan equals the server's, and a request that differs from it is refused."""

import json
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
from fedcal.core.checks import InputError
from fedcal.privacy import Federation
from fedcal.privacy.agreement import AGREED, PROTOCOL, Terms, job_digest, key_of_job
from fedcal.privacy.making import check_terms
from fedcal.privacy.query import QUERIES, Asked, Request
from fedcal.privacy.wire import asked_records
from fedcal.strategies import STRATEGIES
from fedcal.strategies.server.job import Job
from fedcal.strategies.settings import settings_of
from fedcal.trust import NOISY, TRUSTS
from fedcal.units import UNITS

JOB = Job("fedtemp", Federation(12, 3, epsilon=1.0, trust="local"), class_digest="0" * 64)
FIELDS = JOB.to_fields()
OWN = {"ledger", "cap", "cap-delta", "seed", "dropout", "tolerant", "timeout", "grace"}
"""Facts that a server decides by itself."""


def test_every_field_of_a_job_is_agreed_on_or_the_server_s_own_affair():
    assert OWN.isdisjoint(AGREED)
    assert FIELDS.keys() <= AGREED.keys() | OWN
    assert AGREED.keys() - FIELDS.keys() <= {"committee", "threshold", "roster"}


def changed(kind: type, value: Any) -> Any:
    if kind is str:
        return f"{value}x"
    return value + 1 if kind is int else math.nextafter(value, 9.0)


OPEN = {"classes", "input", "class-digest"}
"""Facts that a server may leave to the sites: plan and questions follow from the sites' own."""


@pytest.mark.parametrize("name", AGREED)
def test_each_fact_counts_to_the_last_bit(name):
    given = {"committee": 0, "threshold": 0, "roster": "", **FIELDS}
    other = {**given, name: changed(AGREED[name], given[name])}
    same = key_of_job(other, JOB.plan) == key_of_job(given, JOB.plan)
    assert same == (name in OPEN)
    if not same:
        refused(name, key_of_job, {**given, name: None}, JOB.plan)


def test_nothing_else_counts_but_plan_and_run():
    first = key_of_job(FIELDS, JOB.plan)
    assert len(first) == 64
    more = {**FIELDS, **dict.fromkeys(OWN, "other"), "out": "/tmp/x", "committee": 0, "roster": ""}
    assert key_of_job(dict(reversed(more.items())), JOB.plan) == first
    assert key_of_job({**FIELDS, "epsilon": 1}, JOB.plan) == first  # a float as a whole number
    other = replace(JOB, federation=replace(JOB.federation, clients=13))
    assert key_of_job(FIELDS, other.plan) != first
    assert job_digest(first, "r") == job_digest(first, "r") != job_digest(first, "s")


def test_the_digest_of_a_job_never_changes():
    """Server and sites may run different versions of fedcal: what is hashed is part of the wire."""
    facts = {name: {str: name, int: 7, float: 0.1}[kind] for name, kind in AGREED.items()}
    exact = Job("fedtemp", Federation(12, 3)).plan
    assert job_digest(key_of_job(facts, exact), "run") == (
        "b3bd2e96c6676ccd4c643df4373be47402169a84f73f5498fcf10468d699a5fd"
    )


COMMITTEE: Mapping[str, Any] = {"committee": 7, "threshold": 5, "colluding": 2}


def jobs(name: str) -> Iterator[Job]:
    """Small jobs that between them reach every branch of the method's plan."""
    method = STRATEGIES[name]
    rates = cycle(((1.0, "masks"), (0.5, "masks"), (0.5, PROTOCOL), (1.0, PROTOCOL)))
    rows = {"rows_per_client": 9.0} if "rows_per_client" in settings_of(name) else {}
    first, *others = method.examples
    cases = [(first, pair) for pair in product(TRUSTS, UNITS)]
    cases += [(given, pair) for given in others for pair in zip(TRUSTS, cycle(UNITS), strict=False)]
    for given, (trust, unit) in cases:
        epsilon = 1.0 if trust in NOISY else math.inf
        if method.exact_only and trust in NOISY:
            continue
        rate, secure = next(rates)
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
    """The first question, as an honest server's curator makes it."""
    return job.strategy().open_round(1).request


def asked_of(job: Job, **change: Any) -> Asked:
    """The first question, as it arrives at a site."""
    request = opened(job)
    key = key_of_job(job.to_fields(), job.plan)
    asked = replace(Asked(request.query, 1, "run-1", key), **change)
    return Asked.from_records(asked_records(asked))


def refuses(job: Job, what: str = ".", **change: Any) -> None:
    """Refused, in one line."""
    refused(what, lambda: job.terms().request(asked_of(job, **change)))


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_site_answers_the_server_s_request_from_its_own_terms(name):
    found = list(jobs(name))
    assert found
    for job in found:
        plain = json.loads(json.dumps(job.terms().to_plain(), allow_nan=False))
        terms = Terms.from_plain(plain)
        check_terms(terms)
        assert terms.plan.to_plain() == job.plan.to_plain()
        request, own = opened(job), terms.request(asked_of(job))
        assert own == replace(request, seed=None)
        assert own.digest == request.digest


STATED = {"noise": "laplace", "rate": 0.5, "seed": 7, "norms": [1e9], "clients": 3, "epsilon": 8.0}


def test_a_question_that_states_more_than_itself_is_refused():
    for (name, value), record in product(STATED.items(), ("query", "context")):
        records = asked_records(asked_of(JOB))
        records[record][name] = value
        refused(f"a question to a site states no '{name}'", Asked.from_records, records)


def test_a_question_is_of_the_terms_and_of_a_round():
    refuses(JOB, "terms that a request is of", terms="0" * 64)
    refuses(JOB, "round of a request", round=JOB.plan.rounds + 1)
    for change in ({"run": "a b"}, {"terms": "x"}, {"round": 0}, {"round": 1.5}, {"round": True}):
        refused(".", lambda change=change: asked_of(JOB, **change))
    for gone in ("kind", "round", "run", "terms", "version", "query-version"):
        records = asked_records(asked_of(JOB))
        short = {k: {n: v for n, v in of.items() if n != gone} for k, of in records.items()}
        refused("a question cannot be read|version|round", Asked.from_records, short)
    refused("a question cannot be read", Asked.from_records, {"query": {}})


LEVELS = Federation(12, 3, epsilon=1.0, trust="local", noise_source="system")
OTHERS = (
    (Job("fedtemp", Federation(12, 3, epsilon=1.0)), ClassCounts(3)),  # other lengths
    (Job("evaluate", LEVELS, {"bins": 8}), ClassHistograms(3, 12)),  # in other blocks
    (Job("evaluate", LEVELS, {"bins": 8}), TemperatureScores(0.5, 2.0, 72)),  # asked in each round
)


@pytest.mark.parametrize(("job", "query"), OTHERS)
def test_a_question_that_the_plan_was_not_made_for_is_refused(job, query):
    refuses(job, "question", query=query)


def test_under_exact_sums_no_other_kind_of_question_is_answered():
    """One site gave 891 cells of one row each to whoever had it agree to `fednewton`."""
    job = Job("fednewton", Federation(12, 3))
    job.terms().request(asked_of(job))
    own = opened(job).query.kind
    for kind, query in QUERIES.items():
        if kind != own:
            refuses(job, "question", query=query(**query.examples[0]))


def test_a_setting_of_another_value_and_a_parameter_out_of_its_range_are_refused():
    job = Job("dp-histogram", Federation(12, 3), {"bins": 15})
    fine = BinOutcomes(2**15, "correct_wrong")
    refuses(job, "bins = 32768 instead of 15", query=fine)
    job = Job("acct", Federation(12, 3), {"low": 0.5, "high": 3.0})
    job.terms().request(asked_of(job, query=AccuracyGap(3.0)))
    refuses(job, r"instead of Range\(low=0.5, high=3.0", query=AccuracyGap(3.001))


def test_a_round_asks_its_own_question():
    """The counts of classes are asked in the first round alone."""
    job = Job("fedbbq", Federation(12, 3, rounds=3))
    assert opened(job).query.kind == "class_counts"
    refuses(job, "question 'class_counts' of round 2", round=2)
