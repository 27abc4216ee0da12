"""The terms that a site accepts and keeps: read again as they were, and of no other job."""

import json
import math
from dataclasses import fields
from typing import Any

import pytest
from refusals import refused

from fedcal.mechanisms import MECHANISMS
from fedcal.privacy import Federation
from fedcal.privacy.agreement import Terms
from fedcal.privacy.making import check_terms
from fedcal.privacy.query import QUERIES
from fedcal.strategies.server.job import Job


def job_with(name: str) -> Job:
    """A job by each mechanism."""
    noisy = {"epsilon": 1.0, "trust": "central", "unit": "user", "noise_source": "system"}
    if name == "exponential":
        return Job("fedoneshot", Federation(5, 2, **noisy), {"rows_per_client": 10.0})
    if name == "unary":
        return Job("evaluate", Federation(5, 3, **{**noisy, "trust": "local"}), {"bins": 8})
    if name == "protocol":
        shared = Federation(5, 2, **{**noisy, "trust": "distributed"}, committee=5, threshold=4)
        return Job("fedbin", shared, secure_aggregation="protocol")
    if name == "none":
        return Job("fedbin", Federation(5, 2, epsilon=math.inf))
    return Job("fedbin", Federation(5, 2, mechanism=name, **noisy))


@pytest.mark.parametrize("name", [*MECHANISMS, "protocol"])
def test_kept_terms_are_the_terms(name, tmp_path):
    terms = job_with(name).terms()
    plan = terms.plan
    assert plan.committee if name == "protocol" else plan.mechanism.name == name
    again = Terms.from_plain(json.loads(json.dumps(terms.to_plain(), allow_nan=False)))
    assert again.plan.to_plain() == plan.to_plain()
    assert again.plan.key == plan.key
    assert again.plan.noise == plan.noise
    assert (again.job, again.form, again.key) == (terms.job, terms.form, terms.key)
    check_terms(again)


def in_plan(**change: Any) -> Any:
    return lambda plain: plain["plan"] | change


def noise(factor: float) -> Any:
    def change(plain: dict[str, Any]) -> dict[str, Any]:
        name, parts = plain["plan"]["mechanism"]
        return plain["plan"] | {"mechanism": [name, {k: factor * v for k, v in parts.items()}]}

    return change


def facts(**change: Any) -> Any:
    return lambda plain: plain["plan"] | {"federation": plain["plan"]["federation"] | change}


HOSTILE: dict[str, tuple[Any, str]] = {
    "two thirds of the noise": (noise(2 / 3), "noise of the plan"),
    "three halves of it": (noise(3 / 2), "noise of the plan"),
    "another epsilon": (in_plan(epsilon=0.5), "epsilon of the plan"),
    "another epsilon of the facts": (facts(epsilon=8.0), "epsilon of the plan"),
    "another delta": (in_plan(delta=1e-6), "delta of the plan"),
    "more rounds": (in_plan(rounds=3), "noise of the plan"),
    "another rate of clients": (facts(sampling_rate=0.5), "sampling_rate of the plan"),
    "another rate of rows": (in_plan(row_rate=0.5), "take part by chance|noise of the plan"),
    "another number of clients": (facts(clients=50), "clients of the plan"),
    "a quorum of more": (in_plan(quorum=9), "quorum of the plan"),
    "another diameter": (in_plan(diameter=3), "diameter of the plan"),
    "another unit": (facts(unit="example"), "unit of the plan"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("distribution", ["gaussian", "protocol"])
def test_a_plan_that_does_not_follow_from_its_question_and_budget_is_refused(name, distribution):
    change, why = HOSTILE[name]
    plain = json.loads(json.dumps(job_with(distribution).terms().to_plain()))
    check_terms(Terms.from_plain(plain))
    refused(why, lambda: check_terms(Terms.from_plain(plain | {"plan": change(plain)})))


def asks(**change: Any) -> Any:
    return lambda plain: {"questions": [plain["questions"][0] | change]}


QUESTIONS: dict[str, tuple[Any, str]] = {
    "none": (lambda plain: {"questions": []}, "number of questions"),
    "an unknown one": (asks(kind="rows"), "question"),
    "an open parameter": (asks(fixed={}), "parameters of the question"),
    "parameters of another": (asks(kind="accuracy_gap"), "parameters of the question"),
    "what all clients answer": (
        asks(kind="class_counts", fixed={"classes": 2}),
        "which all clients answer",
    ),
    "no rounds": (asks(rounds=[1]), "cannot be read"),
    "another job": (lambda plain: {"job": plain["job"] | {"epsilon": 2.0}}, "epsilon of the plan"),
    "no facts": (lambda plain: {"job": {}}, "cannot be read"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_that_leave_something_open_are_refused(name):
    change, why = QUESTIONS[name]
    plain = json.loads(json.dumps(job_with("gaussian").terms().to_plain()))
    refused(why, lambda: check_terms(Terms.from_plain(plain | change(plain))))


def test_a_question_is_bounded_as_the_plan_counts_on():
    """One row may move the single 1 of a cell: its answers are no sums over rows."""
    rows = Job("fedbin", Federation(5, 2, epsilon=1.0, unit="example", trust="central"))
    cell = {"kind": "score_cell", "fixed": {}, "moving": {}, "rounds": [1, 1], "cells": "inf"}
    cell["fixed"] = dict.fromkeys([field.name for field in fields(QUERIES["score_cell"])], 1)
    plain = json.loads(json.dumps(rows.terms().to_plain()))
    asked = Terms.from_plain(plain | {"questions": [cell]})
    refused("bound of the question 'score_cell' is per must be 'client'", check_terms, asked)
    full = json.loads(json.dumps(job_with("unary").terms().to_plain()))
    counts = plain["questions"][0]
    refused(
        "unary encoding|in a job of parts",
        lambda: check_terms(Terms.from_plain(full | {"questions": [counts]})),
    )
