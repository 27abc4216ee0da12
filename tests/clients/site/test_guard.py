"""What a site checks before it answers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policies import policy
from refusals import each_is_refused, refused

from fedcal.clients.site import guard
from fedcal.clients.site.guard import Prepared, prepared
from fedcal.clients.site.preparing import prepare
from fedcal.core.checks import InputError
from fedcal.core.naming import digest_of
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy import Federation
from fedcal.privacy.agreement import key_of_job
from fedcal.privacy.query import Asked, Request
from fedcal.secure_aggregation.keys import make_key
from fedcal.secure_aggregation.roster import Committee, Member, Roster
from fedcal.strategies.server.job import Job

FEDERATION = Federation(5, 2, epsilon=1.0, trust="local", noise_source="system")
JOB = Job("fedbin", FEDERATION)
FIELDS: dict[str, Any] = JOB.to_fields()
ROWS = rows_by_owner(
    np.linspace(-1, 1, 12).reshape(6, 2), np.array([0, 1] * 3), np.zeros(6, np.int64), 1
)


def check(fields: dict[str, Any], asked: Asked, site: Prepared) -> Request:
    return guard.check(fields, asked, site)[0]


def opened(job: Job = JOB) -> Request:
    return job.strategy().open_round(1).request


def asked(job: Job = JOB) -> Asked:
    request = opened(job)
    return Asked(request.query, 1, "run-1", key_of_job(job.to_fields(), job.plan))


@pytest.fixture
def site(tmp_path):
    return site_of(tmp_path, JOB)


def site_of(tmp_path: Path, job: Job, shards: Shards = ROWS, **more: Any) -> Prepared:
    """A site that has accepted a job."""
    prepare(tmp_path / "site", shards, names=["healthy", "disease"], terms=job.terms(), **more)
    return prepared(tmp_path / "site")


def test_a_run_that_is_another_is_refused(site):
    table: list[tuple[dict[str, Any], str]] = [
        ({"class-digest": digest_of(["disease", "healthy"])}, "class-digest of the run"),
        ({"classes": 3}, "classes of the run"),
        ({"epsilon": 2.0}, "epsilon"),
        ({"trust": "central"}, "trust"),
        ({"clients": 4}, "clients of the run"),
        ({"unit": "example"}, "unit"),
        ({"noise-source": "seeded"}, "noise-source of the run"),
    ]
    each_is_refused(table, lambda fields: check({**FIELDS, **fields}, asked(), site))


def test_terms_of_other_rows_than_a_site_has_are_refused(tmp_path):
    table = [
        (replace(JOB, class_digest=digest_of(["disease", "healthy"])), "class-digest of the job"),
        (replace(JOB, input="probs"), "input of the job must be 'logits', got 'probs'"),
        (replace(JOB, federation=replace(FEDERATION, classes=3)), "number of classes must be 2"),
        (
            replace(JOB, federation=replace(FEDERATION, noise_source="seeded")),
            "noise-source of the job must be 'system', got 'seeded'",
        ),
    ]
    each_is_refused(table, lambda job: site_of(tmp_path, job))


def test_a_share_of_the_noise_alone_is_not_sent(tmp_path):
    """The server says of how many: of ten million it has a three-thousandth of the std."""
    shared = Federation(10**7, 2, epsilon=1.0, trust="distributed", noise_source="system")
    job = Job("fedbin", shared)
    site = site_of(tmp_path, job)
    with pytest.raises(InputError, match="needs secure aggregation among the sites"):
        check(job.to_fields(), asked(job), site)


def test_an_oversized_answer_is_refused_before_it_is_computed(site, monkeypatch):
    monkeypatch.setattr(guard, "MOST_NUMBERS", 100)
    refused("length of an answer must be", check, FIELDS, asked(), site)


def test_a_promise_to_subjects_needs_subjects(tmp_path):
    federation = Federation(5, 2, epsilon=1.0, unit="subject", noise_source="system")
    job = Job("fedbin", federation)
    refused("column subject", check, job.to_fields(), asked(job), site_of(tmp_path, job))


def test_a_question_about_scores_is_not_for_rows_to_train_on(tmp_path):
    site = site_of(tmp_path, JOB, replace(ROWS, inputs=np.zeros((6, 4))))
    with pytest.raises(InputError, match="about scores, this site has rows to train on"):
        check(FIELDS, asked(), site)


def test_what_the_policy_does_not_allow_is_refused(tmp_path):
    key = make_key(tmp_path / "own.pem").public
    roster = Roster("hearts", (Member("a", key), Member("b", bytes(32))), Committee((0, 1), 2))
    own = {"roster": roster, "sign_key": tmp_path / "own.pem"}
    facts = Federation(
        *(2, 2), epsilon=1.0, trust="distributed", noise_source="system", committee=2, threshold=2
    )
    job = Job("fedbin", facts, secure_aggregation="protocol", roster=roster.to_text())
    for epsilon in (1.0, 0.99):
        rules = policy(federation=roster.digest, epsilon_total=epsilon, answers=2)
        site = site_of(tmp_path, job, policy=rules, **own)
        question = asked(job)
        if epsilon == 1.0:
            answered = check(job.to_fields(), question, site)
            assert answered.noise == job.plan.noise
        else:
            refused(
                *("policy refuses the epsilon: asked is 1", check, job.to_fields(), question, site)
            )
