"""The plan that a site makes and keeps: read again as it was, and never another run's."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from policies import policy_text
from refusals import each_is_refused, refused

from fedcal.clients.site.guard import own_terms, plan_fields, plan_from
from fedcal.clients.site.prepared import prepare, prepared
from fedcal.core.errors import InputError
from fedcal.core.kinds import Kind
from fedcal.core.shards import Shards
from fedcal.mechanisms import MECHANISMS
from fedcal.privacy import Federation
from fedcal.privacy.agreement import Terms
from fedcal.strategies.server.job import Job, terms_of_job

FEDERATION = Federation(5, 2, epsilon=1.0, trust="distributed", noise_source="system")
FIELDS: dict[str, Any] = Job("fedbin", FEDERATION).to_fields()

POLICY = policy_text(settings={"fedbin": {"bins_exponent": [3, 6]}})


class Planner:
    """Counts the plans that are made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, fields: Mapping[str, Any], classes: int, input: Kind) -> Terms:
        self.made += 1
        return terms_of_job(fields, classes, input)


@pytest.fixture
def site(tmp_path):
    rows = Shards(np.zeros((6, 2)), np.array([0, 1] * 3), np.array([0, 6]))
    prepare(tmp_path / "site", rows)
    return prepared(tmp_path / "site")


def law_job(name: str) -> Job:
    """A job by each mechanism."""
    noisy = {"epsilon": 1.0, "trust": "central", "unit": "user", "noise_source": "system"}
    if name == "exponential":
        return Job("nllt", Federation(5, 2, **noisy), {"search": "exponential", "clip": 2.0})
    if name == "unary":
        return Job("evaluate", Federation(5, 3, **{**noisy, "trust": "local"}), {"bins": 8})
    if name == "protocol":
        shared = Federation(5, 2, **{**noisy, "trust": "distributed"}, committee=5, threshold=4)
        return Job("fedbin", shared, secure_aggregation="protocol")
    if name == "none":
        return Job("fedbin", Federation(5, 2, epsilon=math.inf))
    return Job("fedbin", Federation(5, 2, mechanism=name, **noisy))


@pytest.mark.parametrize("name", [*MECHANISMS, "protocol"])
def test_a_kept_plan_is_the_plan(name):
    plan = law_job(name).plan
    assert plan.committee if name == "protocol" else plan.mechanism.name == name
    again = plan_from(json.loads(json.dumps(plan_fields(plan))))
    assert again == plan
    assert again.key == plan.key
    assert again.noise == plan.noise


def test_it_is_made_once_in_a_run(site):
    planner = Planner()
    plans = [own_terms(FIELDS, run, site, planner) for run in ("r", "s", "r", "s")]
    assert planner.made == 2
    assert len({terms.plan.key for terms in plans}) == 1
    assert plans[2] == plans[0]  # read from the file, with its questions
    later = {**FIELDS, "resume": True, "out": "elsewhere", "ledger": "/tmp/other"}
    assert own_terms(later, "r", site, planner) == plans[0]  # a server that goes on
    assert planner.made == 2


def test_a_run_stays_the_job_that_it_was(site):
    fields, planner = {**FIELDS, "input": ""}, Planner()
    own_terms(fields, "r", site, planner)
    for change in (
        {"epsilon": 2.0},
        {"method": "fedbbq"},
        {"settings": '{"bins_exponent": 3}'},
        {"clients": 6},
        {"class-digest": "0" * 64},
        {"input": "logits"},
        {"committee": 3},
    ):
        with pytest.raises(InputError):
            own_terms({**fields, **change}, "r", site, planner)
    assert planner.made == 1


def test_a_run_has_a_name(site):
    table = [(run, "the name of a run must be") for run in ("", "a/b", "x" * 65, "r\n", "\0")]
    each_is_refused(table, lambda run: own_terms(FIELDS, run, site, terms_of_job))


def test_nothing_is_made_of_settings_that_the_policy_does_not_allow(site):
    planner = Planner()
    (site.folder / "site.toml").write_text(POLICY, "utf-8")
    limited = replace(site, has_policy=True)
    for change in ({"method": "fedbbq"}, {"settings": '{"bins_exponent": 40}'}):
        refused("policy refuses", own_terms, {**FIELDS, **change}, "r", limited, planner)
    assert planner.made == 0
    own_terms({**FIELDS, "settings": '{"bins_exponent": 5}'}, "r", limited, planner)
    assert planner.made == 1
