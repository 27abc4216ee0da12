"""What a site checks before it answers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policies import policy
from refusals import each_is_refused, refused

from fedcal.clients.site import guard
from fedcal.clients.site.guard import TERMS, Prepared, check, own_terms, prepared
from fedcal.clients.site.preparing import prepare
from fedcal.core.naming import digest_of
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy import Federation
from fedcal.privacy.agreement import AGREED, PROTOCOL, key_of_job
from fedcal.privacy.query import Asked
from fedcal.strategies.server.job import Job

FEDERATION = Federation(5, 2, epsilon=1.0, trust="local", noise_source="system")
JOB = Job("fedbin", FEDERATION)
FIELDS: dict[str, Any] = JOB.to_fields()
ROWS = rows_by_owner(
    np.linspace(-1, 1, 12).reshape(6, 2), np.array([0, 1] * 3), np.zeros(6, np.int64), 1
)


def asked(job: Job = JOB) -> Asked:
    query = job.strategy().open_round(1).request.query
    return Asked(query, 1, "run-1", key_of_job(job.to_fields(), job.plan))


@pytest.fixture
def site(tmp_path):
    return site_of(tmp_path, JOB)


def site_of(tmp_path: Path, job: Job, shards: Shards = ROWS) -> Prepared:
    """A site that has accepted a job."""
    prepare(tmp_path / "site", shards, names=["healthy", "disease"], terms=job.terms())
    return prepared(tmp_path / "site")


def test_terms_are_of_every_run_of_their_job_and_of_no_other(site):
    own = own_terms(FIELDS, "r", site)
    open_to_sites = {"resume": True, "out": "elsewhere", "ledger": "/tmp/other", "input": ""}
    assert own_terms({**FIELDS, **open_to_sites, "classes": 0}, "s", site) is own
    another = {
        **{"class-digest": digest_of(["disease", "healthy"]), "classes": 3, "epsilon": 2.0},
        **{"trust": "central", "clients": 4, "unit": "example", "noise-source": "seeded"},
        **{"settings": '{"bins_exponent": 3}', "committee": 3},
    }
    for name, value in another.items():
        refused(f"{name} of the run", check, {**FIELDS, name: value}, asked(), site)
    for name in FIELDS.keys() & AGREED.keys():
        short = {key: value for key, value in FIELDS.items() if key != name}
        refused(name, own_terms, short, "r", site)
    for run in ("", "a/b", "r\n"):
        refused("the name of a run must be", own_terms, FIELDS, run, site)
    with_policy = replace(site, policy=policy())
    refused("this site's policy refuses the federation", own_terms, FIELDS, "r", with_policy)
    (site.folder / TERMS).unlink()
    refused("that this site has accepted is needed", own_terms, FIELDS, "r", prepared(site.folder))


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


def test_what_a_site_cannot_answer_is_refused(tmp_path, monkeypatch):
    """The server says how many shares make up the noise: of ten million each is next to nothing."""

    def of(clients: int = 5, **facts: Any) -> Job:
        facts = {"epsilon": 1.0, "noise_source": "system", **facts}
        how = PROTOCOL if facts.get("committee") else "none"
        return Job("fedbin", Federation(clients, 2, **facts), secure_aggregation=how)

    committee = {"committee": 3, "threshold": 3, "quorum": 1.0}
    subject, to_train_on = {"unit": "subject"}, replace(ROWS, inputs=np.zeros((6, 4)))
    table = [
        ((of(10**7, trust="distributed"), ROWS), "needs secure aggregation among the sites"),
        ((of(3, trust="local", **committee), ROWS), "a roster, a signing key and a policy"),
        ((of(**subject), ROWS), "column subject"),
        ((JOB, to_train_on), "about scores, this site has rows to train on"),
    ]

    def ask(given: tuple[Job, Shards]) -> None:
        job, shards = given
        check(job.to_fields(), asked(job), site_of(tmp_path, job, shards))

    each_is_refused(table, ask)
    monkeypatch.setattr(guard, "MOST_NUMBERS", 100)
    refused("length of an answer must be", ask, (JOB, ROWS))
