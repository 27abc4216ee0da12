"""The server with real sites, in this process: dropouts, quorum, classes, checkpoint and resume."""

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accepted import accept
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from policies import policy
from refusals import refused

import fedcal.strategies.server_app as server
from fedcal import calibrators
from fedcal.clients.questions.temperature import TemperatureScores
from fedcal.clients.site.guard import TERMS, prepared
from fedcal.clients.site.policy import JobFacts
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.process.site_app import LOGGER, site_app
from fedcal.clients.site.results import RESULTS
from fedcal.clients.site.store import RECORDS, SiteRecords, records_of
from fedcal.core.checks import FedcalError, InputError, RoundFailed
from fedcal.core.naming import digest_of
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.metrics import nll
from fedcal.privacy.ledger import Ledger
from fedcal.privacy.noise_plan import Federation
from fedcal.results.labels import sentences
from fedcal.run.engines.flower import InProcessGrid
from fedcal.run.engines.inline import run_inline
from fedcal.secure_aggregation.keys import make_key
from fedcal.secure_aggregation.roster import Committee, Member, Roster
from fedcal.storage.artifact import CHECKPOINT
from fedcal.strategies.server import checkpoint
from fedcal.strategies.server.checkpoint import Checkpoint, read_error, read_notices, read_progress
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome
from fedcal.strategies.server.participation import READY, SITE_INFO, NodeInfo
from fedcal.strategies.server.transport import ANSWER

CLIENTS, CLASSES, NAMES = 4, 3, ("cat", "dog", "owl")
WIDTH = 5
NODES = [60, 61, 62, 63, 64]
Broken = Callable[[int, Message], bool]


@pytest.fixture(autouse=True)
def _notices(caplog):
    caplog.set_level(logging.INFO, "flwr")
    caplog.set_level(logging.INFO, LOGGER)


def rows() -> Shards:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, 160)
    logits = rng.normal(0, 4, (160, CLASSES)) + 3 * np.eye(CLASSES)[labels]
    return rows_by_owner(logits, labels, rng.integers(0, CLIENTS, 160), CLIENTS)


def features(clients: int = CLIENTS) -> Shards:
    """Rows to train on, of the first clients."""
    rng = np.random.default_rng(2)
    x = rng.normal(0, 0.5, (320, WIDTH)).astype(np.float32)
    y = (x[:, :CLASSES] + rng.gumbel(0, 0.2, (320, CLASSES))).argmax(axis=1)
    owner = rng.integers(0, clients, 320)
    return rows_by_owner(np.zeros((320, CLASSES)), y, owner, CLIENTS, inputs=x)


class Grid(InProcessGrid):
    """Real sites' apps, each over its own folder."""

    def __init__(self, folders: list[Path], unavailable: Broken | None = None) -> None:
        super().__init__(site_app(Path("/nowhere")), NODES[: len(folders)], unavailable)
        self._apps, self.asked = [*map(site_app, folders)], list[tuple[int, str]]()
        self.before: Callable[[int, Message], Any] = lambda site, message: None
        self.lies: Callable[[int, Message], RecordDict | None] = lambda site, message: None

    def _deliver(self, message: Message) -> Message:
        site = NODES.index(message.metadata.dst_node_id)
        self.asked.append((site, message.metadata.message_type))
        self._app = self.before(site, message) or self._apps[site]
        if (lie := self.lies(site, message)) is not None:
            return Message(lie, reply_to=message)
        return super()._deliver(message)

    def serve(self, fields: dict[str, Any]) -> None:
        for context in self._contexts.values():
            context.run_config = fields
        server.serve(self, fields)


class Sites(Grid):
    """Sites that are numbered as they come, or by number.

    `seeded` ones draw from the request's seed as simulated sites do, so that bits can be compared.
    """

    def __init__(
        self,
        folder: Path,
        fields: dict[str, Any],
        *,
        sites: int = CLIENTS,
        names: dict[int, tuple[str, ...]] | None = None,
        seeded: bool = True,
        shards: Shards | None = None,
        raises: Broken = lambda site, message: False,
        lies: Broken = lambda site, message: False,
        unavailable: Broken | None = None,
    ) -> None:
        shards = shards or rows()
        job = Job.from_fields(fields, sites, shards.classes, shards.input)
        for k in range(sites):
            mine = shards.block(k % CLIENTS, k % CLIENTS + 1)
            known: Any = {"number": k if seeded else None, "simulated": seeded}
            known["seed"] = job.plan.client_seed
            prepare(folder / f"site-{k}", mine, names=(names or {}).get(k, NAMES), **known)
            accept(folder / f"site-{k}", job)
        super().__init__([folder / f"site-{k}" for k in range(sites)], unavailable)
        broken = site_app(Path("/nowhere"))
        wrong = RecordDict({"answer": ArrayRecord({"words": Array(np.zeros(1, np.uint64))})})
        self.before = lambda k, message: broken if raises(k, message) else None
        self.lies = lambda k, message: wrong if lies(k, message) else None

    @property
    def answered(self) -> list[int]:
        return [site for site, kind in self.asked if kind == ANSWER]


def job_of(epsilon: float = 1.0, rounds: int = 3, **options: Any) -> Job:
    federation = Federation(
        CLIENTS,
        CLASSES,
        rounds=rounds,
        epsilon=epsilon,
        unit="example",
        trust=options.pop("trust", None),
    )
    waits = {"tolerant": True, "timeout": 2.0, "grace": 0.2}
    return Job("fednewton", federation, {}, **{**waits, **options})


def fields_of(job: Job, out: Path, **change: Any) -> dict[str, Any]:
    here = {"data": "", "partition": "", "out": str(out), **server.FRESH}
    return {**job.to_fields(), "classes": 0, "input": "", **here, **change}


def training(method: str = "fedsgd", **options: Any) -> Job:
    job = job_of(epsilon=8.0, rounds=4, **options)
    more = {"batch": 40.0, "rows_per_client": 80.0, "momentum": 0.5, "lr": 0.05}
    more = more if method == "fedsgd" else {}
    return replace(job, method=method, settings={"shape": WIDTH, **more})


def run(
    folder: Path, job: Job, change: dict[str, Any] | None = None, **grid: Any
) -> tuple[Outcome, Sites]:
    fields = fields_of(job, folder / "out", **(change or {}))
    sites = Sites(folder, fields, **grid)
    sites.serve(fields)
    return Outcome.load(folder / "out"), sites


def inline(
    job: Job, alive: Iterable[int] = range(CLIENTS), shards: Shards | None = None
) -> Outcome:
    gone, shards = np.setdiff1d(np.arange(CLIENTS), list(alive)), shards or rows()
    job = replace(job, ledger=None, cap=None)
    return job.run(lambda s: run_inline(s, shards, unavailable=lambda number: gone))


def answers_of(site: int) -> Broken:
    return lambda k, message: k == site and message.metadata.message_type == ANSWER


def test_same_bits_as_inline_and_bytes_of_the_messages(tmp_path):
    """And a private run's checkpoint holds noisy sums alone."""
    job, exact = job_of(epsilon=8.0, trust="local"), job_of(epsilon=np.inf, rounds=1)
    found, _ = run(tmp_path, job)
    want = inline(job)
    assert found.records == want.records
    assert Checkpoint.load(tmp_path / "out").job["class-digest"] == digest_of(NAMES)
    text = (tmp_path / "out" / CHECKPOINT).read_text()
    kept = json.loads(text)["releases"]
    assert [one["values"] for one in kept] == [one["values"] for one in found.records]
    (sums,) = inline(exact).records  # the first question's
    assert not any(repr(value) in text for value in sums["values"])


def test_a_site_that_fails_is_a_dropout_and_is_named(tmp_path):
    job = job_of()
    expected = inline(job, alive=(0, 1, 3)).records
    for how in ("raises", "lies", "unavailable"):
        found, _ = run(tmp_path / how, job, **{how: answers_of(2)})
        assert found.records == expected, how
        notices = read_notices(tmp_path / how / "out")
        assert [n for n in notices if "of 4 clients answered" in n] == [
            f"fedcal: round {number}: 3 of 4 clients answered, not site 2" for number in (1, 2, 3)
        ]
        absent = {"enrolled": 4, "answered": 3, "absent": ["site 2"], "missed": {}}
        assert found.sites == absent

    def second(k: int, message: Message) -> bool:
        return answers_of(1)(k, message) and message.metadata.group_id == "2"

    found, _ = run(tmp_path / "once", job, unavailable=second)
    assert sentences(found.sites) == ["site 1 missed round 2."]


def test_of_a_secret_sample_only_clients_that_were_never_there_are_reported(tmp_path):
    """A site that is there and fails whenever it is asked looks like one that nobody asked."""
    sampled = replace(job_of().federation, sampling_rate=0.5, trust="central")
    job = replace(job_of(), federation=sampled)
    assert job.plan.secret_sample
    secret: dict[str, Any] = {"enrolled": 4, "answered": None, "absent": [], "missed": {}}
    failing, sites = run(tmp_path / "failing", job, raises=answers_of(2))
    assert failing.sites == secret
    assert 2 in sites.answered
    away, _ = run(tmp_path / "away", job, sites=3)
    assert away.sites == {**secret, "absent": ["site 3"]}
    (line,) = sentences(away.sites)
    assert "3 of the 4 enrolled sites were there (the sample of a round is secret" in line
    for name in ("failing", "away"):
        kept = json.loads((tmp_path / name / "out" / CHECKPOINT).read_text())["took_part"]
        assert kept["asked"] == kept["answered"] == {}
        assert not any("answered" in line for line in read_notices(tmp_path / name / "out"))


def test_the_run_begins_without_a_site_that_is_away_but_not_with_none(tmp_path):
    job = job_of()
    found, _ = run(tmp_path / "three", job, sites=3)
    assert found.records == inline(job, alive=range(3)).records
    assert "3 of 4 sites are connected" in read_notices(tmp_path / "three" / "out")[0]
    for sites in (0, 5):
        expected = rf"{sites} of 4 sites had connected after 0\.2 s, and .* no question was sent"
        with pytest.raises(RoundFailed, match=expected):
            run(tmp_path / f"{sites}", job, sites=sites, seeded=False)


def test_sites_that_do_not_know_their_number_are_numbered_as_they_come(tmp_path):
    job = replace(job_of(), federation=replace(job_of().federation, noise_source="system"))
    _, sites = run(tmp_path, job, seeded=False)
    assert sorted(sites.answered) == sorted([0, 1, 2, 3] * 3)
    strategy = job.strategy()
    strategy.tolerant = True
    strategy.assign_sites([NodeInfo(7), NodeInfo(8, site=0)])
    assert strategy.roster == {8: 0, 7: 1}  # nobody gets the number of another one


def test_a_site_with_other_classes_stops_the_run_before_anything_is_asked(tmp_path):
    file = tmp_path / "ledger.db"
    job = job_of(ledger=str(file), cap=1.0)
    with pytest.raises(InputError, match=r"classes of site 3 .all need the same --class-names"):
        run(tmp_path, job, names={3: ("cat", "owl", "dog")})
    assert isinstance(read_error(tmp_path / "out"), InputError)
    with Ledger(file) as ledger:
        assert ledger.entries() == ()


def test_shares_of_noise_go_to_no_server_that_sees_each(tmp_path):
    with pytest.raises(InputError, match="would see each share of the noise"):
        run(tmp_path, job_of(trust="distributed"), seeded=False)


def test_the_result_is_delivered_to_each_site_that_has_answered(tmp_path):
    outcome, _ = run(tmp_path, job_of(), {"deliver": True}, raises=answers_of(1))
    assert not (tmp_path / "site-1" / RESULTS).exists()
    for k in (0, 2, 3):
        (kept,) = (tmp_path / f"site-{k}" / RESULTS).iterdir()
        assert kept.name == outcome.run
        calibrator = calibrators.load(next(kept.glob("*.npz")))
        rows = prepared(tmp_path / f"site-{k}").shards
        assert nll(calibrator.predict_proba(rows.logits), rows.labels) < nll(
            rows.probs, rows.labels
        )


CLASSES_LIE = [{"names": "", "input": "logits", "classes": n} for n in (1e999, 10**12, -1, [3])]
LIARS = [RecordDict({"who": ConfigRecord(reply)}) for reply in CLASSES_LIE]
CHOKES = (b"PK\x03\x04 no archive", b"\x93NUMPY\x01\x00\x06\x00{'a'(\n")
WORDS = [Array("uint64", (1,), "numpy.ndarray", sent) for sent in CHOKES]
NO_ANSWERS = [RecordDict({"answer": ArrayRecord({"words": array})}) for array in WORDS]


@pytest.mark.parametrize(
    ("kind", "lies"), [(SITE_INFO, LIARS[:3]), (SITE_INFO, LIARS[3:]), (ANSWER, NO_ANSWERS)]
)
def test_a_site_that_says_nonsense_is_passed_over(kind, lies, tmp_path):
    job = job_of(rounds=1)
    fields = fields_of(job, tmp_path / "out")
    sites = Sites(tmp_path, fields)
    liars = dict(enumerate(lies))
    sites.lies = lambda k, of: liars.get(k) if of.metadata.message_type == kind else None
    sites.serve(fields)
    honest = range(len(lies), CLIENTS)
    assert Outcome.load(tmp_path / "out").records == inline(job, alive=honest).records


class _Stop(Exception):
    """The server's process dies."""


def stopped_in_round(number: int, folder: Path, fields: dict[str, Any], **grid: Any) -> None:
    """A server that dies in a round, its answers received and charged, before it is released."""
    sites = Sites(folder, fields, **grid)
    original = sites.pull_messages

    def pull(ids: Iterable[str]) -> Iterable[Message]:
        replies = list(original(ids))
        for of in (reply.metadata for reply in replies):
            if of.message_type == ANSWER and int(of.group_id) == number:
                raise _Stop
        return replies

    sites.pull_messages = pull
    with pytest.raises(_Stop):
        sites.serve(fields)


@pytest.mark.parametrize(("number", "trust"), [(1, "central"), (2, "local")])
def test_a_run_goes_on_with_the_same_bits_and_is_charged_once(number, trust, tmp_path):
    file = tmp_path / "ledger.db"
    job = job_of(epsilon=8.0, trust=trust, ledger=str(file), cap=8.0)
    fields = fields_of(job, tmp_path / "out")
    stopped_in_round(number, tmp_path, fields)
    assert len(Checkpoint.load(tmp_path / "out").releases) == number - 1
    refused("a run has not ended", Sites(tmp_path, fields).serve, fields)
    again = {**fields, "resume": True, "timeout": 3.0}
    Sites(tmp_path, again).serve(again)
    found = Outcome.load(tmp_path / "out")
    want = inline(job)
    assert found.records == want.records
    assert (found.bytes_up, found.bytes_down) == (want.bytes_up, want.bytes_down)
    assert found.sites == {"enrolled": 4, "answered": 4, "absent": [], "missed": {}}
    with Ledger(file) as ledger:
        (entry,) = ledger.entries()
    assert (entry.run, entry.charged) == (found.run, (1, 2, 3))


def test_a_charged_round_that_nobody_saw_is_not_charged_again(tmp_path, monkeypatch):
    """The server dies after the charge: with a disk that is full, say."""
    file = tmp_path / "ledger.db"
    job = job_of(ledger=str(file), cap=1.0)
    fields = fields_of(job, tmp_path / "out")
    save = Checkpoint.save

    def full(kept: Checkpoint, folder: Path) -> None:
        if len(kept.releases) == 2:
            raise FedcalError("cannot write checkpoint.json: No space left on device")
        save(kept, folder)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", full)
        refused("No space left", Sites(tmp_path, fields).serve, fields, error=FedcalError)
    assert read_progress(tmp_path / "out") == [(1, 3)]  # nobody has heard of round 2
    with Ledger(file) as ledger:
        assert ledger.entries()[0].charged == (1, 2)
    again = {**fields, "resume": True}
    Sites(tmp_path, again).serve(again)
    assert Outcome.load(tmp_path / "out").records == inline(job).records
    with Ledger(file) as ledger:
        assert ledger.entries()[0].charged == (1, 2, 3)


def test_a_release_is_on_the_disk_before_anybody_hears_of_it(tmp_path, monkeypatch):
    """As the charge is: a power failure would take back the release alone, and it is made anew."""
    out, synced = tmp_path / "out", list[tuple[int, bool]]()
    fsync = os.fsync

    def noted(number: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{number}"))
        if path == out or path.parent == out:
            synced.append((len(read_progress(out)), path == out))
        fsync(number)

    monkeypatch.setattr(os, "fsync", noted)
    run(tmp_path, job_of(rounds=2))
    # the file, then the folder: at the beginning, and before each progress
    assert synced == [(done, folder) for done in (0, 0, 1) for folder in (False, True)]


def test_what_does_not_belong_together_does_not_go_on(tmp_path):
    file, out = tmp_path / "ledger.db", tmp_path / "out"
    fields = fields_of(job_of(ledger=str(file), cap=2.0), out)
    stopped_in_round(2, tmp_path, fields)
    older, books = (out / CHECKPOINT).read_bytes(), file.read_bytes()

    def resumed(words: str, **change: Any) -> None:
        refused(words, Sites(tmp_path, fields).serve, {**fields, "resume": True, **change})

    resumed("epsilon of a run that continues must be 1.0, got 2.0", epsilon=2.0)
    file.unlink()
    Ledger(file, 2.0).close()
    resumed("ledger.s reservation for run")
    file.write_bytes(books)
    plain = json.loads(older)
    with Ledger(file) as ledger:
        ledger.charge(plain["run"], 2)
        ledger.charge(plain["run"], 3)
    resumed("not its last checkpoint")
    (out / CHECKPOINT).write_text("{")
    resumed("is damaged")
    plain["releases"][0]["values"] = [1.0]
    (out / CHECKPOINT).write_text(json.dumps(plain))
    file.write_bytes(books)
    resumed("to belong to this run, must be")


def test_two_servers_never_have_one_folder(tmp_path):
    """Flower ends a stopped run's server late: it must not release a round beside another."""
    fields = fields_of(job_of(), tmp_path / "out")
    stopped_in_round(2, tmp_path, fields)
    again = {**fields, "resume": True}
    before = (tmp_path / "out" / CHECKPOINT).read_bytes()
    with (
        checkpoint.held(tmp_path / "out", resume=True),
        pytest.raises(InputError, match="its run has not ended"),
    ):
        Sites(tmp_path, again).serve(again)
    assert (tmp_path / "out" / CHECKPOINT).read_bytes() == before
    Sites(tmp_path, again).serve(again)
    assert checkpoint.ended(tmp_path / "out")
    assert len(Outcome.load(tmp_path / "out").records) == 3


def booked(folder: Path, site: int) -> tuple[JobFacts, ...]:
    with SiteRecords(folder / f"site-{site}" / RECORDS) as records:
        return records.booked()


@pytest.mark.parametrize(("number", "method"), [(1, "dp-fedavg"), (3, "fedsgd")])
def test_a_stopped_training_goes_on_and_counts_every_round_once(number, method, tmp_path):
    """And a site without rows is one that is away."""
    file, shards = tmp_path / "ledger.db", features(3)
    job = training(method, ledger=str(file), cap=8.0)
    stopped_in_round(number, tmp_path, fields_of(job, tmp_path / "out"), shards=shards)
    assert (Checkpoint.load(tmp_path / "out").state is None) == (number == 1)
    found, _ = run(tmp_path, job, {"resume": True}, shards=shards)
    want = inline(job, shards=shards)
    assert found.artifact.arrays()["w"].tobytes() == want.artifact.arrays()["w"].tobytes()
    assert found.records == want.records == inline(job, alive=range(3), shards=shards).records
    assert (found.bytes_up, found.bytes_down) == (want.bytes_up, want.bytes_down)
    with Ledger(file) as ledger:
        (entry,) = ledger.entries()
    assert entry.charged == (1, 2, 3, 4)
    plan = job.plan
    for site in range(3):  # each has booked the whole run, at its first answer
        (known,) = booked(tmp_path, site)
        assert (known.epsilon, known.delta) == (plan.epsilon, plan.delta)


# --- what does not fit is said before anybody books a run ----------------------------------------

TREES = ("birch", "dogwood", "elm")
ROWS = 137


def rows_of_tree(k: int, columns: bool = True) -> Shards:
    rng = np.random.default_rng(k)
    labels = rng.integers(0, 3, ROWS)
    logits = 3 * (rng.normal(size=(ROWS, 3)) + np.eye(3)[labels])
    subjects = np.sort(rng.integers(0, 40, ROWS)) if columns else None
    return rows_by_owner(logits, labels, np.zeros(ROWS, np.int64), 1, subjects=subjects)


class Trees(Grid):
    """Three sites of a federation.

    `lacks` = who has no column subject; `rules` = what else a policy says.
    """

    def __init__(
        self, folder: Path, *, lacks: Iterable[str] = (), rules: dict[str, Any] | None = None
    ) -> None:
        self.folder = folder
        keys = [make_key(folder / f"{name}.pem") for name in TREES]
        members = tuple(Member(n, key.public) for n, key in zip(TREES, keys, strict=True))
        self.roster = Roster("trees", members, Committee((0, 1, 2), 2))
        for k, name in enumerate(TREES):
            own = policy(
                federation=self.roster.digest,
                epsilon_total=1.5,
                delta_total=1e-2,
                **{"answers": 2, **(rules or {}).get(name, {})},
            )
            files = {"roster": self.roster, "sign_key": folder / f"{name}.pem", "policy": own}
            prepare(folder / name, rows_of_tree(k, name not in lacks), **files)
        super().__init__([folder / name for name in TREES])

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
        for name in TREES:
            accept(self.folder / name, job)
        self.serve(fields)
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
        for name in TREES:
            with SiteRecords(self.folder / name / RECORDS) as records:
                assert records.booked() == ()
                assert records.unfinished == 0


def test_a_site_that_cannot_take_part_is_named_and_nobody_books_the_run(tmp_path):
    """A file without the column, a sum of too few by a policy: at once."""
    sites = Trees(tmp_path, lacks=["birch"], rules={"dogwood": {"answers": 4}})
    refused(r"birch, dogwood cannot take part.*nothing is booked", sites.run)
    assert sites.notices == [
        "fedcal: birch: unit 'subject' needs a column subject, which names the subject of each row",
        "fedcal: dogwood: this site's policy refuses the fewest contributions in a sum: asked is "
        "3, allowed at least 4",
    ]
    sites.assert_nothing_was_booked()


def test_the_operator_may_say_that_the_run_goes_on_without_them(tmp_path):
    sites = Trees(tmp_path, lacks=["birch"])
    named = [line for line in sites.run(quorum=0.6, **{"without-unready": True}) if "birch" in line]
    assert named[1:] == ["fedcal: round 1: 2 of 3 clients answered, not birch"]
    found = Outcome.load(tmp_path / "out")
    assert len(found.records) == 1
    assert found.sites == {"enrolled": 3, "answered": 2, "absent": ["birch"], "missed": {}}
    assert {kind for site, kind in sites.asked if site == 0} == {"query.who", READY}


def test_one_that_comes_late_and_cannot_take_part_stops_nobody(tmp_path):
    sites = Trees(tmp_path, rules={"elm": {"answers": 3}})
    everybody = sites.get_node_ids
    sites.get_node_ids = lambda: [*everybody()][: 3 if read_progress(tmp_path / "out") else 2]
    notices = sites.run("fednewton", quorum=0.6)
    assert sum(line.startswith("fedcal: elm: this site's policy") for line in notices) == 1
    assert len(Outcome.load(tmp_path / "out").records) == 2
    assert {kind for site, kind in sites.asked if site == 2} == {"query.who", READY}


def test_a_budget_that_does_not_suffice_is_reported_without_its_books(tmp_path, caplog):
    sites = Trees(tmp_path)
    sites.run()
    (tmp_path / "ledger.db").unlink()
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(InputError, match="birch, dogwood, elm cannot take part"):
        sites.run()  # epsilon 1 once more, of 1.5 in all
    reply = "its remaining budget does not suffice for this run"
    assert sites.notices == [f"fedcal: {name}: {reply}" for name in TREES]
    assert any("epsilon" in line for line in caplog.messages if line.startswith("cannot take part"))


def test_what_stays_at_the_site_stops_the_run_without_a_reason(tmp_path, caplog):
    sites = Trees(tmp_path)

    def lose(site: int, message: Message) -> None:
        if (site, message.metadata.message_type) == (0, READY):
            (tmp_path / "birch" / "logits.npy").unlink()
        if (site, message.metadata.message_type) == (2, READY):  # its terms cannot be read
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
    sites = Trees(tmp_path)
    assert not any("Smith" in line for line in sites.run())
    assert looked_at[READY] == 0
    assert looked_at[ANSWER] > 0  # of noise alone


def test_a_run_that_goes_on_is_not_counted_twice(tmp_path):
    """Its epsilon is booked already, of a budget for it alone."""
    sites = Trees(tmp_path)

    def dies(site: int, message: Message) -> None:
        if message.metadata.message_type == "query.confirm":
            raise FedcalError("the server dies")

    sites.before = dies
    refused("the server dies", sites.run, error=FedcalError)
    with records_of(prepared(tmp_path / "elm")) as records:
        assert [job.epsilon for job in records.booked()] == [1.0]
    sites.before = lambda site, message: None
    sites.asked.clear()
    sites.run(resume=True)
    assert [kind for _, kind in sites.asked].count(READY) == 3
    assert len(Outcome.load(tmp_path / "out").records) == 1


def test_what_a_site_writes_is_one_printable_line(tmp_path):
    sites = Trees(tmp_path)
    why = "\x1b[2Jall is well\nfedcal: birch: \u202edone" + "x" * 1000
    lie, ready = RecordDict({"ready": ConfigRecord({"why": why})}), (2, READY)
    sites.lies = lambda k, of: lie if (k, of.metadata.message_type) == ready else None
    refused("elm cannot take part", sites.run)
    (line,) = sites.notices
    assert line.isprintable()
    assert line.startswith(r"fedcal: elm: \x1b[2Jall is well\nfedcal: birch: \u202edonexxx")
    assert len(line) < 330
