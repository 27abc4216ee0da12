"""Real sites say what does not fit before anybody books a run: by name, and nothing of a row."""

import logging
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accepted import accept
from flwr.app import ConfigRecord, Message, RecordDict
from policies import policy
from refusals import refused

import fedcal.strategies.server_app as server
from fedcal.clients.questions.temperature import TemperatureScores
from fedcal.clients.site.guard import TERMS, prepared
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.process import site_app
from fedcal.clients.site.store import RECORDS, SiteRecords, records_of
from fedcal.core.checks import FedcalError, InputError, RoundFailed
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import Federation
from fedcal.run.engines.flower import InProcessGrid
from fedcal.secure_aggregation.keys import make_key
from fedcal.secure_aggregation.roster import Committee, Member, Roster
from fedcal.strategies.server.checkpoint import read_notices, read_progress
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome
from fedcal.strategies.server.participation import READY
from fedcal.strategies.server.transport import ANSWER

NAMES = ("birch", "dogwood", "elm")
NODES = [60, 61, 62]
ROWS = 137


def rows(k: int, columns: bool = True) -> Shards:
    rng = np.random.default_rng(k)
    labels = rng.integers(0, 3, ROWS)
    logits = 3 * (rng.normal(size=(ROWS, 3)) + np.eye(3)[labels])
    subjects = np.sort(rng.integers(0, 40, ROWS)) if columns else None
    return rows_by_owner(logits, labels, np.zeros(ROWS, np.int64), 1, subjects=subjects)


class Sites(InProcessGrid):
    """Three sites of a federation.

    `lacks` = who has no column subject; `rules` = what else a policy says.
    """

    def __init__(
        self, folder: Path, *, lacks: Iterable[str] = (), rules: dict[str, Any] | None = None
    ) -> None:
        self.folder, self.asked = folder, list[tuple[str, str]]()
        self.before: Callable[[str, str], object] = lambda name, kind: None
        self.lies: dict[tuple[str, str], str] = {}
        keys = [make_key(folder / f"{name}.pem") for name in NAMES]
        members = tuple(Member(n, key.public) for n, key in zip(NAMES, keys, strict=True))
        self.roster = Roster("trees", members, Committee((0, 1, 2), 2))
        for k, name in enumerate(NAMES):
            own = policy(
                federation=self.roster.digest,
                epsilon_total=1.5,
                delta_total=1e-2,
                **{"answers": 2, **(rules or {}).get(name, {})},
            )
            files = {"roster": self.roster, "sign_key": folder / f"{name}.pem", "policy": own}
            prepare(folder / name, rows(k, name not in lacks), **files)
        super().__init__(site_app.site_app(folder), NODES)
        self._apps = [site_app.site_app(folder / name) for name in NAMES]

    def _deliver(self, message: Message) -> Message:
        k, kind = NODES.index(message.metadata.dst_node_id), message.metadata.message_type
        self.asked.append((NAMES[k], kind))
        self.before(NAMES[k], kind)
        self._app = self._apps[k]
        if (reply := self.lies.get((NAMES[k], kind))) is not None:
            content = RecordDict({"ready": ConfigRecord({"why": reply})})
            return Message(content, reply_to=message)
        return super()._deliver(message)

    def run(self, method: str = "fedoneshot", quorum: float = 1.0, **change: Any) -> list[str]:
        """Serve the job; the server's notices."""
        facts: dict[str, Any] = {"epsilon": 1.0, "unit": "subject", "noise_source": "system"}
        facts |= {"trust": "distributed", "committee": 3, "threshold": 2, "colluding": 0}
        job = Job(
            method,
            Federation(3, 3, rounds=2 if method == "fednewton" else None, quorum=quorum, **facts),
            settings={"rows_per_client": 50},
            **{"tolerant": True, "timeout": 2.0, "grace": 0.2, "ledger": self._ledger, "cap": 1.0},
            secure_aggregation="protocol",
            roster=self.roster.to_text(),
        )
        out = self.folder / "out"
        fields = {**job.to_fields(), "classes": 0, "input": "", "data": "", "partition": ""}
        fields |= {"out": str(out), **server.FRESH, **change}
        for name in NAMES:
            accept(self.folder / name, job)
        for context in self._contexts.values():
            context.run_config = fields
        server.serve(self, fields)
        return self.notices

    @property
    def _ledger(self) -> str:
        return str(self.folder / "ledger.db")

    @property
    def notices(self) -> list[str]:
        return read_notices(self.folder / "out")

    def assert_nothing_was_booked(self) -> None:
        assert {kind for _, kind in self.asked} == {"query.who", READY}
        with Ledger(self._ledger) as ledger:
            assert ledger.entries() == ()
        for name in NAMES:
            with SiteRecords(self.folder / name / RECORDS) as records:
                assert records.booked() == ()
                assert records.unfinished == 0


@pytest.fixture(autouse=True)
def _notices(caplog):
    caplog.set_level(logging.INFO, "flwr")
    caplog.set_level(logging.INFO, site_app.LOGGER)


def test_a_site_that_cannot_take_part_is_named_and_nobody_books_the_run(tmp_path):
    """A file without the column, a sum of too few by a policy: at once."""
    sites = Sites(tmp_path, lacks=["birch"], rules={"dogwood": {"answers": 4}})
    refused(r"birch, dogwood cannot take part.*nothing is booked", sites.run)
    assert sites.notices == [
        "fedcal: birch: unit 'subject' needs a column subject, which names the subject of each row",
        "fedcal: dogwood: this site's policy refuses the fewest contributions in a sum: asked is "
        "3, allowed at least 4",
    ]
    sites.assert_nothing_was_booked()


def test_the_operator_may_say_that_the_run_goes_on_without_them(tmp_path):
    sites = Sites(tmp_path, lacks=["birch"])
    named = [line for line in sites.run(quorum=0.6, **{"without-unready": True}) if "birch" in line]
    assert named[1:] == ["fedcal: round 1: 2 of 3 clients answered, not birch"]
    found = Outcome.load(tmp_path / "out")
    assert len(found.records) == 1
    assert found.sites == {"enrolled": 3, "answered": 2, "absent": ["birch"], "missed": {}}
    assert {kind for name, kind in sites.asked if name == "birch"} == {"query.who", READY}


def test_one_that_comes_late_and_cannot_take_part_stops_nobody(tmp_path):
    sites = Sites(tmp_path, rules={"elm": {"answers": 3}})
    everybody = sites.get_node_ids
    sites.get_node_ids = lambda: [*everybody()][: 3 if read_progress(tmp_path / "out") else 2]
    notices = sites.run("fednewton", quorum=0.6)
    assert sum(line.startswith("fedcal: elm: this site's policy") for line in notices) == 1
    assert len(Outcome.load(tmp_path / "out").records) == 2
    assert {kind for name, kind in sites.asked if name == "elm"} == {"query.who", READY}


def test_a_budget_that_does_not_suffice_is_reported_without_its_books(tmp_path, caplog):
    sites = Sites(tmp_path)
    sites.run()
    (tmp_path / "ledger.db").unlink()
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(InputError, match="birch, dogwood, elm cannot take part"):
        sites.run()  # epsilon 1 once more, of 1.5 in all
    reply = "its remaining budget does not suffice for this run"
    assert sites.notices == [f"fedcal: {name}: {reply}" for name in NAMES]
    assert any("epsilon" in line for line in caplog.messages if line.startswith("cannot take part"))


def test_what_stays_at_the_site_stops_the_run_without_a_reason(tmp_path, caplog):
    sites = Sites(tmp_path)

    def lose(name: str, kind: str) -> None:
        if (name, kind) == ("birch", READY):
            (tmp_path / "birch" / "logits.npy").unlink()
        if (name, kind) == ("elm", READY):  # its terms cannot be read
            (tmp_path / "elm" / TERMS).unlink()
            (tmp_path / "elm" / TERMS).mkdir()

    sites.before = lose
    refused("birch, elm cannot take part", sites.run, error=RoundFailed)
    not_ready = "is not ready (see its own log)"
    assert sites.notices == [f"fedcal: birch {not_ready}", f"fedcal: elm {not_ready}"]
    assert any("logits.npy of this site cannot be read" in line for line in caplog.messages)
    sites.assert_nothing_was_booked()


def test_a_site_says_nothing_of_its_rows_before_it_answers(tmp_path, monkeypatch):
    """Neither that a question fails on them nor how many there are."""
    looked_at: dict[str, int] = {READY: 0, ANSWER: 0}
    sums = TemperatureScores.sums

    def fails(self: TemperatureScores, shards: Shards, _: Any = None) -> Any:
        looked_at[sites.asked[-1][1]] += len(shards.labels)
        if len(shards.labels):
            raise InputError("row 17 of Mrs Smith is not finite")
        return sums(self, shards)

    monkeypatch.setattr(TemperatureScores, "sums", fails)
    sites = Sites(tmp_path)
    assert not any("Smith" in line for line in sites.run())
    assert looked_at[READY] == 0
    assert looked_at[ANSWER] > 0  # of noise alone


def test_a_run_that_goes_on_is_not_counted_twice(tmp_path):
    """Its epsilon is booked already, of a budget for it alone."""
    sites = Sites(tmp_path)

    def dies(name: str, kind: str) -> None:
        if kind == "query.confirm":
            raise FedcalError("the server dies")

    sites.before = dies
    refused("the server dies", sites.run, error=FedcalError)
    with records_of(prepared(tmp_path / "elm")) as records:
        assert [job.epsilon for job in records.booked()] == [1.0]
    sites.before = lambda name, kind: None
    sites.asked.clear()
    sites.run(resume=True)
    assert [kind for _, kind in sites.asked].count(READY) == 3
    assert len(Outcome.load(tmp_path / "out").records) == 1


def test_what_a_site_writes_is_one_printable_line(tmp_path):
    sites = Sites(tmp_path)
    sites.lies["elm", READY] = "\x1b[2Jall is well\nfedcal: birch: \u202edone" + "x" * 1000
    refused("elm cannot take part", sites.run)
    (line,) = sites.notices
    assert line.isprintable()
    assert line.startswith(r"fedcal: elm: \x1b[2Jall is well\nfedcal: birch: \u202edonexxx")
    assert len(line) < 330
