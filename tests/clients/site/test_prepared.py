"""A site's folder: private, mapped rather than read, and refused in one line where damaged."""

import os
import shutil
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from policies import policy
from refusals import refused

from fedcal.clients.site.guard import SITE, Prepared, alone, own_terms, prepared
from fedcal.clients.site.policy import JobFacts
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.store import answer_once, finish
from fedcal.core.checks import BudgetExceeded, InputError
from fedcal.core.naming import digest_of
from fedcal.core.numerics import Words
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy.agreement import job_digest
from fedcal.privacy.privacy import Federation
from fedcal.secure_aggregation.keys import SigningKey, make_key
from fedcal.secure_aggregation.roster import Committee, Member, Roster
from fedcal.strategies.server.job import Job

ROWS = rows_by_owner(
    np.linspace(-1, 1, 12).reshape(6, 2),
    np.array([0, 1, 1, 0, 1, 0]),
    np.zeros(6, np.int64),
    1,
    "probs",
    np.array([0, 0, 1, 1, 2, 2]),
    groups=np.array([0, 1, 1, 0, 0, 1]),
    group_names=("ward 1", "ward 2"),
    other=np.linspace(1, -1, 12).reshape(6, 2),
)


def test_what_was_written_is_read(tmp_path):
    prepare(tmp_path / "a", ROWS, names=["x", "y"], number=3, simulated=True)
    site = prepared(tmp_path / "a")
    for name in ("logits", "labels", "offsets", "subjects", "groups", "group_names", "other"):
        assert np.array_equal(getattr(site.shards, name), getattr(ROWS, name))
    assert (site.shards.input, site.names, site.number) == ("probs", ("x", "y"), 3)
    assert site.simulated
    assert site.digest == digest_of(["x", "y"])
    prepare(tmp_path / "b", Shards(ROWS.logits, ROWS.labels, ROWS.offsets))
    real = prepared(tmp_path / "b")
    assert (real.names, real.number, real.simulated) == (("0", "1"), None, False)
    assert real.shards.subjects is real.shards.groups is real.shards.other is None


def test_rows_are_mapped_not_read_in_a_folder_that_nobody_else_can_enter(tmp_path):
    (tmp_path / "a").mkdir(mode=0o755)
    prepare(tmp_path / "a", ROWS)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    logits = prepared(tmp_path / "a").shards.logits
    assert isinstance(logits.base, np.memmap)
    assert not logits.flags.writeable
    prepare(tmp_path / "a", Shards(np.zeros((0, 2)), np.zeros(0, np.int64), np.array([0, 0])))
    assert prepared(tmp_path / "a").shards.rows.tolist() == [0]  # a site may have no rows


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    refused("contains something else", prepare, tmp_path, ROWS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_site_that_runs_is_not_prepared_again(tmp_path):
    prepare(tmp_path, ROWS)
    with alone(tmp_path), pytest.raises(InputError, match="another process runs"):
        prepare(tmp_path, ROWS)
    prepare(tmp_path, ROWS)


def test_a_damaged_file_is_one_line(tmp_path):
    for name, damage in product((SITE, "logits.npy"), ("gone", "empty", "cut", "no")):
        prepare(tmp_path, ROWS)
        path = tmp_path / name
        damaged = {"empty": b"", "cut": path.read_bytes()[:-9], "no": os.urandom(80)}
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(damaged[damage])
        refused("this site", prepared, tmp_path)


@pytest.fixture
def files(tmp_path):
    """A federation of three with this site as its second, its key and its policy."""
    key = make_key(tmp_path / "signing.pem")
    others = [SigningKey(bytes([n]) * 32).public for n in (1, 2)]
    sites = tuple(Member(f"site {n}", k) for n, k in enumerate((others[0], key.public, others[1])))
    roster = Roster("hearts", sites, Committee((0, 1, 2), 3), digest_of(["x", "y"]))
    rules = policy(federation=roster.digest, epsilon_total=2.5, delta_total=1e-3)
    return {"roster": roster, "sign_key": tmp_path / "signing.pem", "policy": rules}


def test_federation_key_and_policy_go_together(files, tmp_path):
    for name in files:
        two = {key: path for key, path in files.items() if key != name}
        refused("a roster, a signing key and a policy", prepare, tmp_path / "a", ROWS, **two)
    assert not (tmp_path / "a").exists()
    prepare(tmp_path / "a", ROWS, names=["x", "y"], **files)


def test_what_does_not_go_together_is_refused_at_the_start(files, tmp_path):
    refused("class digest of the federation hearts must be", prepare, tmp_path / "a", ROWS, **files)
    make_key(tmp_path / "other.pem")
    wrong = {**files, "sign_key": tmp_path / "other.pem"}
    with pytest.raises(InputError, match=r"with the public key of .* has none"):
        prepare(tmp_path / "a", ROWS, names=["x", "y"], **wrong)
    files["roster"] = replace(files["roster"], name="lungs")
    with pytest.raises(InputError, match="policy refuses the federation"):
        prepare(tmp_path / "a", ROWS, names=["x", "y"], **files)
    assert not (tmp_path / "a").exists()


def test_under_the_protocol_a_site_needs_a_policy(tmp_path):
    facts = {"clients": 3, "classes": 2, "epsilon": 1.0, "trust": "local"}
    facts["noise_source"] = "system"
    for committee in ({}, {"committee": 3, "threshold": 3, "quorum": 1.0}):
        how = "protocol" if committee else "none"
        job = Job("fedbin", Federation(**facts, **committee), secure_aggregation=how)
        prepare(tmp_path / how, replace(ROWS, input="logits"), terms=job.terms())
        asked = job.to_fields(), "r", prepared(tmp_path / how)
        if committee:
            refused("needs a roster, a signing key and a policy", own_terms, *asked)
        else:
            assert own_terms(*asked).key == job.terms().key


class Run:
    """A job of some name, and its first question."""

    def __init__(self, epsilon: float = 1.0) -> None:
        facts = {"trust": "distributed", "noise_source": "system"}
        strategy = Job("fedbin", Federation(5, 2, epsilon=epsilon, **facts)).strategy()
        self.request, self.name = strategy.open_round(1).request, strategy.run
        self.terms = Job("fedbin", Federation(5, 2, epsilon=epsilon, **facts)).terms()
        self.drawn = 0

    def facts(self, site: Prepared) -> JobFacts:
        return JobFacts.of(self.terms, self.name, site.server)

    def draw(self) -> Words:
        self.drawn += 1
        return np.frombuffer(os.urandom(32), np.uint64)

    def answer(self, site: Prepared, **change: Any) -> tuple[Words, bool]:
        request = replace(self.request, **change)
        return answer_once(site, self.facts(site), request, self.draw)


@pytest.fixture
def make(files, tmp_path):
    """Prepares the site in a folder of this name, under the key in this file, or a copy of it."""

    def made(name: str = "site", file: str = "signing.pem") -> Prepared:
        if not (tmp_path / file).exists():
            shutil.copy(tmp_path / "signing.pem", tmp_path / file)
        own = files | {"sign_key": tmp_path / file}
        prepare(tmp_path / name, ROWS, names=["x", "y"], server="hub:9092", **own)
        return prepared(tmp_path / name)

    return made


def test_a_round_is_answered_once_and_charged_to_the_policy_s_total(make):
    run, site = Run(), make()
    first, _ = run.answer(site)
    words, again = run.answer(site)  # each message is a process of its own
    assert (words.tolist(), again, words.dtype) == (first.tolist(), True, np.uint64)
    refused("a round that was asked before must be", run.answer, site, rate=0.5)
    assert run.drawn == 1
    Run().answer(site)
    more = Run()
    refused(r"unit user: epsilon 2 of 2\.5 is spent", more.answer, site, error=BudgetExceeded)
    assert more.drawn == 0


def test_a_run_that_has_its_result_is_not_answered_again(make):
    run, site = Run(), make()
    run.answer(site)
    result = site.folder / "results" / run.name
    result.mkdir(parents=True)
    finish(site, run.facts(site), run.name)
    charge = f"1,{run.terms.plan.delta:g},user"
    assert (result / "receipt").read_text() == f"{job_digest(run.terms.key, run.name)} {charge}"
    refused("is no longer answered: finished", run.answer, site)
    assert not Run(epsilon=0.5).answer(site)[1]


def test_a_second_folder_and_a_second_key_answer_nothing(make):
    Run(epsilon=0.5).answer(make("first"))
    for site, message in (
        (make("second"), r"signing\.pem\.records, the file of this site's key"),
        (make("first", "new.pem"), "restored from a backup"),
    ):
        more = Run()
        refused(message, more.answer, site)
        assert more.drawn == 0
    assert not Run(epsilon=0.5).answer(make("first"))[1]
