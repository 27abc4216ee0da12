"""A prepared site answers each round once, and books what it answers."""

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from policies import policy_text
from refusals import refused

from fedcal.clients.site.prepared import ANSWERS, Prepared, prepare, prepared
from fedcal.clients.site.records.job_facts import CLAIMED, OWN_NOISE, BudgetCaps
from fedcal.clients.site.records.records import (
    RECORDS,
    SiteRecords,
    answer_once,
    finish,
    records_of,
)
from fedcal.core.errors import BudgetExceeded, InputError
from fedcal.core.shards import Shards
from fedcal.core.types import Words
from fedcal.privacy import Federation
from fedcal.privacy.agreement import job_digest
from fedcal.privacy.request import Request
from fedcal.strategies.server.job import Job

ROWS = Shards.from_owner(
    np.linspace(-1, 1, 12).reshape(6, 2), np.array([0, 1] * 3), np.zeros(6, np.int64), 1
)
POLICY = policy_text(
    trust=["distributed", "central"],
    epsilon_per_run=2.0,
    epsilon_total=2.5,
    delta_per_run=1e-3,
    delta_total=1e-3,
)


class Run:
    """A job of some name, and its first question."""

    def __init__(self, trust: str = "distributed", epsilon: float = 1.0) -> None:
        federation = Federation(5, 2, epsilon=epsilon, trust=trust, noise_source="system")
        job = Job("fedbin", federation)
        strategy = job.strategy()
        opened = strategy.open_round(1)
        self.fields: dict[str, Any] = job.to_fields()
        self.plan, self.request, self.name = job.plan, opened.request, strategy.run
        self.drawn = 0

    def draw(self) -> Words:
        self.drawn += 1
        return np.frombuffer(os.urandom(32), np.uint64)

    def answer(self, site: Prepared, request: Request | None = None) -> tuple[Words, bool]:
        return answer_once(site, self.fields, self.plan, request or self.request, self.draw)


@pytest.fixture
def site(tmp_path):
    (tmp_path / "site.toml").write_text(POLICY)
    prepare(tmp_path / "site", ROWS, policy=tmp_path / "site.toml", server="hub:9092")
    return prepared(tmp_path / "site")


def test_a_round_is_answered_once_and_charged(site):
    run = Run()
    first, again = run.answer(site)
    assert not again
    for _ in range(2):  # each message is a process of its own
        words, again = run.answer(site)
        assert again
        assert (words.tolist(), words.dtype) == (first.tolist(), np.uint64)
    softer = replace(run.request.context, epsilon=2.0)
    with pytest.raises(InputError, match="a round that was asked before must be"):
        run.answer(site, replace(run.request, context=softer))
    assert run.drawn == 1
    with records_of(site) as records:
        (booked,) = records.booked()
    about = booked.about
    assert booked.job == job_digest(run.fields, run.name)
    assert (about.method, about.server, about.epsilon) == ("fedbin", "hub:9092", 1.0)
    assert (about.delta, about.rounds, about.verified) == (run.plan.delta, 1, OWN_NOISE)


def test_the_policy_s_total_is_kept_over_runs(site):
    for run in (Run(), Run("central")):
        run.answer(site)
    more = Run()
    refused(r"unit user: epsilon 2 of 2\.5 is spent", more.answer, site, error=BudgetExceeded)
    assert more.drawn == 0
    with SiteRecords(site.folder / RECORDS) as records:
        assert records.limits == BudgetCaps(2.5, 1e-3)
        assert [booked.about.verified for booked in records.booked()] == [OWN_NOISE, CLAIMED]


def test_a_run_that_has_its_result_is_not_answered_again(site):
    run = Run()
    run.answer(site)
    result = site.folder / "results" / run.name
    result.mkdir(parents=True)
    finish(site, run.fields, run.name, run.plan)
    charge = f"1,{run.plan.delta:g},user"
    assert (result / "receipt").read_text() == f"{job_digest(run.fields, run.name)} {charge}"
    refused("is no longer answered: finished", run.answer, site)
    assert not Run(epsilon=0.5).answer(site)[1]


def test_a_second_folder_of_one_key_answers_nothing(tmp_path):
    (tmp_path / "site.toml").write_text(POLICY)
    for name in ("first", "second"):
        files = {"policy": tmp_path / "site.toml", "count": tmp_path / "signing.pem.records"}
        prepare(tmp_path / name, ROWS, **files)
    Run().answer(prepared(tmp_path / "first"))
    more = Run()
    with pytest.raises(InputError, match=r"signing\.pem\.records, the file of this site's key"):
        more.answer(prepared(tmp_path / "second"))
    assert more.drawn == 0


def test_a_site_that_gets_another_key_keeps_its_records(tmp_path):
    (tmp_path / "site.toml").write_text(POLICY)
    files = {"policy": tmp_path / "site.toml"}
    for count in (None, tmp_path / "a.records", tmp_path / "b.records", tmp_path / "b.records"):
        prepare(tmp_path / "site", ROWS, **files, count=count)
        if count != tmp_path / "a.records":  # nothing was asked while it had that key
            Run(epsilon=0.5).answer(prepared(tmp_path / "site"))
    with records_of(prepared(tmp_path / "site")) as records:
        assert len(records.booked()) == 3


def test_answers_that_the_records_do_not_know_are_refused(site):
    (site.folder / ANSWERS).mkdir()
    run = Run()
    for use in (run.answer, lambda site: prepare(site.folder, ROWS)):
        refused("Delete it after its runs have ended", use, site)
    assert run.drawn == 0
    (site.folder / ANSWERS).rmdir()
    run.answer(site)
