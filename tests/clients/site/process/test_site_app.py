"""The app of a real site: what it answers, what it refuses, what its log tells and what not."""

import io
import json
import logging
import re
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accepted import accept
from flwr.app import ConfigRecord, Message, RecordDict

from fedcal.calibrators import TemperatureScaling
from fedcal.clients import replies
from fedcal.clients.answers import contribute
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.process import site_app
from fedcal.clients.site.results import RESULTS
from fedcal.clients.site.store import RECORDS
from fedcal.core.checks import ContributionRefused
from fedcal.core.naming import digest_of
from fedcal.core.scores import rows_by_owner
from fedcal.core.shards import Shards
from fedcal.privacy import Federation
from fedcal.privacy.agreement import key_of_job
from fedcal.privacy.query import Asked, Request
from fedcal.privacy.wire import asked_records
from fedcal.run.engines.flower import InProcessGrid
from fedcal.strategies.server.job import Job

ROWS = 4321
"""How many rows the site has: a number that no log may tell."""

NODE = 70
OWN_NOISE = Federation(3, 2, epsilon=1.0, trust="local", noise_source="system")


def rows(seed: int = 0, n: int = ROWS) -> Shards:
    rng = np.random.Generator(np.random.Philox(key=seed))
    logits, labels = 3 * rng.normal(size=(n, 2)), rng.integers(2, size=n)
    return rows_by_owner(logits, labels, np.zeros(n, np.int64), 1)


class Site:
    """A site in this process, and a run that it is asked for."""

    def __init__(self, folder: Path, federation: Federation = OWN_NOISE) -> None:
        self.folder, self.run = folder, "run-1"
        self.grid = InProcessGrid(site_app.site_app(folder), [NODE])
        self.job = Job("fedoneshot", federation, settings={"rows_per_client": 50})
        self.config: dict[str, Any] = {**self.job.to_fields(), "class-digest": ""}
        accept(folder, self.job)

    def request(self) -> Request:
        opened = self.job.strategy().open_round(1)
        return opened.request

    def ask(self, kind: str, **records: ConfigRecord) -> Message:
        self.grid._contexts[NODE].run_config = self.config
        content = RecordDict(dict(records))
        message = Message(content, NODE, f"query.{kind}", group_id="1")
        (reply,) = self.grid.send_and_receive([message])
        return reply

    def answered(self) -> str:
        """The name of a run that it has answered in."""
        request = self.request()
        assert not self.answer(request).has_error()
        return self.run

    def answer(self, request: Request, **records: ConfigRecord) -> Message:
        return self.ask("answer", **self.asked(request), **records)

    def asked(self, request: Request) -> dict[str, ConfigRecord]:
        key = key_of_job(self.job.to_fields(), self.job.plan)
        asked = Asked(request.query, 1, self.run, key)
        return {name: ConfigRecord(of) for name, of in asked_records(asked).items()}


@pytest.fixture
def site(tmp_path, caplog):
    caplog.set_level(logging.INFO, site_app.LOGGER)
    prepare(tmp_path / "site", rows(), names=["healthy", "disease"])
    return Site(tmp_path / "site")


def words_of(reply: Message) -> list[int]:
    return [int(v) for v in reply.content.array_records["answer"]["words"].numpy()]


def refused(reply: Message) -> str:
    """The whole text that the server sees."""
    assert reply.has_error()
    return str(reply.error.reason)


def test_noise_is_the_systems_and_the_same_question_gets_the_same_words(site):
    request = site.request()
    first = words_of(site.answer(request))
    assert words_of(site.answer(request)) == first
    fresh = Site(site.folder)  # another process, the same run
    assert words_of(fresh.answer(request)) == first
    seeded = contribute(rows(), request, np.array([0]))[0]
    assert first != seeded.tolist()
    site.run = "run-2"
    assert words_of(site.answer(request)) != first


def test_masks_are_for_simulations(site):
    masking = ConfigRecord({"seed": 9, "cohort": [0, 1, 2]})
    assert "InputError" in refused(site.answer(site.request(), masking=masking))


def test_what_is_refused_is_one_line_here_and_a_class_there(site, caplog):
    config = site.config
    for change, why in (
        ({"class-digest": digest_of(["disease", "healthy"])}, "class-digest of the run"),
        ({"epsilon": 8.0}, "epsilon"),
    ):
        site.config = config | change
        reply = site.answer(site.request())
        assert refused(reply) == "Refused: InputError; see the site's own log"
        last = caplog.messages[-1]
        assert last.startswith("refused to answer: ")
        assert why in last
        assert "\n" not in last
    site.config = config
    for reply in (
        site.ask("answer"),
        site.ask("answer", query=site.asked(site.request())["query"]),
        site.ask("result"),
        site.ask("rows"),
    ):
        assert reply.has_error()
    assert not (site.folder / RECORDS).exists()
    caplog.clear()  # what a server writes cannot forge a line of the log
    asked = site.asked(site.request())
    asked["query"]["kind"] = "x\n2026-01-01 answered: all is well " * 99
    site.ask("answer", **asked)
    assert "\n" not in caplog.text.rstrip("\n")
    assert len(caplog.messages[-1]) < 400


def test_an_error_among_the_rows_tells_nobody_of_them(site, caplog, monkeypatch):
    raised: list[Exception] = [ContributionRefused("a contribution leaves the ring")]

    def fails(*_: object, **__: object) -> None:
        raise raised[-1]

    monkeypatch.setattr(replies, "contribute", fails)
    assert "ContributionRefused" in refused(site.answer(site.request()))
    assert caplog.messages[-1] == "refused to answer: a contribution leaves the ring"
    raised.append(ValueError("label 17 of Mrs Smith is out of range"))
    assert refused(site.answer(site.request())) == ("Refused: ValueError; see the site's own log")
    assert re.fullmatch(
        r"refused to answer: ValueError in test_site_app.py, line \d+", caplog.messages[-1]
    )
    assert "Smith" not in caplog.text


def test_memory_that_runs_out_on_rows_is_seen_in_exact_sums_alone(
    site, tmp_path, caplog, monkeypatch
):
    def hungry(shards: Shards, *rest: Any, **named: Any) -> Any:
        if len(shards.labels):
            raise MemoryError
        return contribute(shards, *rest, **named)

    monkeypatch.setattr(replies, "contribute", hungry)
    assert not site.answer(site.request()).has_error()
    why = "it takes more memory than this site gives a message"
    assert f"the question fails on this site's rows, none are counted: {why}" in caplog.messages
    exact = Site(site.folder, Federation(3, 2, noise_source="system"))
    assert refused(exact.answer(exact.request())) == ("Refused: OverLimit; see the site's own log")
    assert caplog.messages[-1] == f"refused to answer: {why}"


def test_flowers_own_log_does_not_show_what_an_error_came_from():
    with (
        pytest.raises(site_app.Refused) as error,
        site_app._hide_error_from_server("answer"),
        site_app._hide_private_errors(),
    ):
        raise ValueError("Mrs Smith")
    shown = "".join(traceback.format_exception(error.value))
    assert "Mrs Smith" not in shown.replace('ValueError("Mrs Smith")', "")  # but for this line


def result(folder: Path, of: str, temperature: float = 2.0, **change: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    calibrator = TemperatureScaling(temperature)
    calibrator.classes = 2
    calibrator.write(folder, "calibrator")
    files = {"calibrator.npz": (folder / "calibrator.npz").read_bytes()}
    output = {"run": of, "form": "calibrator", **change}
    return {"files": ConfigRecord(files), "run": ConfigRecord(output)}


def test_a_result_is_kept_as_it_came(site, tmp_path, caplog):
    run = site.answered()
    records = result(tmp_path / "server", run)
    for _ in range(2):  # a message that comes twice
        reply = site.ask("result", **records)
        assert dict(reply.content.config_records["ok"]) == {}
        assert list(reply.content) == ["ok"]
    another = result(tmp_path / "server", run, 3.0)
    assert site.ask("result", **another).has_error()
    assert "refused to keep a result: another result of this run came before" in caplog.messages
    caplog.clear()
    assert not site.ask("result", **records).has_error()
    folder = site.folder / RESULTS / run
    assert sorted(path.name for path in folder.iterdir()) == ["calibrator.npz", "receipt"]
    assert (folder / "calibrator.npz").read_bytes() == records["files"]["calibrator.npz"]
    assert caplog.messages[-1].startswith(f"result received: run {run}, fedcal site status")


def test_no_message_reads_a_result_s_numbers(site, tmp_path, monkeypatch):
    def fails(*_: object, **__: object) -> None:
        raise ValueError("row 7 of Mrs Smith is not finite")

    records = result(tmp_path / "server", site.answered())
    monkeypatch.setattr(TemperatureScaling, "load", fails)
    monkeypatch.setattr(np.lib.format, "read_array", fails)
    assert not site.ask("result", **records).has_error()


def test_a_result_that_is_none_leaves_nothing(site, tmp_path, caplog):
    run = site.answered()
    for change, why in (
        *(({"run": other}, "the name of a run must be") for other in ("../r", "")),
        ({"run": "r1"}, "has not answered in the run"),
        ({"form": "page"}, "allowed: calibrator"),
        ({"form": "model"}, "allowed: calibrator"),  # not what its method yields
    ):
        records = result(tmp_path / "server", run, **change)
        before = {path for path in tmp_path.rglob("*") if "records" not in path.name}
        assert site.ask("result", **records).has_error()
        assert {path for path in tmp_path.rglob("*") if "records" not in path.name} == before
        assert why in caplog.messages[-1]


def packed(**arrays: Any) -> ConfigRecord:
    file = io.BytesIO()
    header = json.dumps({"format": "fedcal-artifact", "version": 1, "form": "calibrator"})
    np.savez_compressed(file, header=np.array(header), **arrays)
    return ConfigRecord({"calibrator.npz": file.getvalue()})


def test_a_result_is_no_larger_than_its_method_makes_it(site, tmp_path, caplog):
    records = result(tmp_path / "server", site.answered())
    for files, why in (
        (ConfigRecord({"calibrator.npz": bytes(2 << 20)}), "no file calibrator.npz of at most"),
        (packed(w=np.zeros(2 << 20)), "more than 8 MiB of numbers"),  # 16 KiB, and unpacked 16 MiB
        (ConfigRecord({"calibrator.npz": b"PK"}), "not an intact .npz file"),
    ):
        assert site.ask("result", **{**records, "files": files}).has_error()
        assert why in caplog.messages[-1]
        assert not list(site.folder.rglob("calibrator.npz"))
    assert not site.ask("result", **records).has_error()


def test_the_log_is_in_plain_words_and_tells_of_no_row(site, tmp_path, caplog):
    request = site.request()
    run = "run-1"
    digest = digest_of(["healthy", "disease"])
    words = words_of(site.answer(request))
    site.answer(request)
    site.ask("who")
    site.ask("result", **result(tmp_path / "server", run))
    site.config["epsilon"] = 9.0
    site.answer(request)
    assert [re.sub(run, "RUN", line).partition(", ")[0] for line in caplog.messages] == [
        "asked: run RUN",
        "answered: run RUN",
        "asked: run RUN",
        "answered: run RUN",
        f"asked which classes it has: answered with their digest {digest[:12]}",
        "result received: run RUN",
        "asked: run RUN",
        "refused to answer: the epsilon of the run",
    ]
    assert "epsilon 1, delta 1e-05, unit user, trust local" in caplog.messages[1]
    assert "again, with the same numbers" in caplog.messages[3]
    own = rows()
    secrets = {str(ROWS), *map(str, np.bincount(own.labels)), *(f"{v:.4f}" for v in own.logits[0])}
    messages = set(re.findall(r"[\d.]+\d", caplog.text.replace(run, "")))
    assert not secrets & messages
    long = {str(word) for word in words if word > 1e9}  # a short one may be a line's number
    assert long
    assert not long & messages
