"""The app of a real site: what it answers, what it refuses, what its log tells and what not."""

import logging
import re
import traceback
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from asked_site import Site, rows_of
from flwr.app import Message
from hostile_server import FEDERATION, JOB, asked_by, hostile

from fedcal.clients import replies
from fedcal.clients.answers import contribute
from fedcal.clients.questions.score_cell import ScoreCell
from fedcal.clients.site.process import site_app
from fedcal.clients.site.results import RESULTS
from fedcal.clients.site.store import RECORDS
from fedcal.core.checks import ContributionRefused
from fedcal.core.naming import digest_of
from fedcal.privacy import Federation
from fedcal.strategies.server.job import Job

ROWS = 4321
"""How many rows the site has: a number that no log may tell."""
RUN = "run-1"
REFUSED = "Refused: InputError; see the site's own log"


@pytest.fixture(autouse=True)
def _all_is_logged(caplog):
    caplog.set_level(logging.INFO, site_app.LOGGER)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site", ROWS)


def words_of(reply: Message) -> list[int]:
    return [int(v) for v in reply.content.array_records["answer"]["words"].numpy()]


def refused(reply: Message) -> str:
    """The whole text that the server sees."""
    assert reply.has_error()
    return str(reply.error.reason)


def test_noise_is_the_systems_and_the_same_question_gets_the_same_words(site):
    first = words_of(site.answer())
    assert words_of(site.answer()) == first
    assert words_of(Site(site.folder, ROWS).answer()) == first  # another process, the same run
    request = JOB.strategy().open_round(1).request
    assert first != contribute(rows_of(ROWS), request, np.array([0]))[0].tolist()
    site.run = "run-2"
    assert words_of(site.answer()) != first


@pytest.mark.parametrize("name", hostile(RUN))
def test_what_was_not_agreed_is_refused(tmp_path, caplog, name):
    """`tests/fedcal/sites/test_hostile_server.py` asks the same through a real SuperLink."""
    site = Site(tmp_path / "site")
    assert refused(site.answer(hostile(RUN)[name])) == REFUSED
    line = caplog.messages[-1]
    assert line.startswith("refused to answer: ")
    assert "\n" not in line
    assert site.booked() == 0
    assert not site.answer().has_error()  # it spent nothing
    assert site.booked() == 1


def test_what_else_is_refused_books_nothing_and_forges_no_line(site, caplog):
    config, asked = site.config, asked_by(JOB, RUN)
    for change in ({"class-digest": digest_of(["disease", "healthy"])}, {"epsilon": 8.0}):
        site.config = config | change
        assert refused(site.answer()) == REFUSED
        assert next(iter(change)) in caplog.messages[-1]
    site.config = config
    masking = {"seed": 9, "cohort": [0, 1, 2]}  # masks are for simulations
    assert refused(site.answer(masking=masking)) == REFUSED
    for kind, records in (
        *(("answer", {}), ("answer", {"query": asked["query"]}), ("result", {}), ("rows", {})),
    ):
        assert site.ask(kind, **records).has_error()
    assert not (site.folder / RECORDS).exists()
    caplog.clear()
    asked["query"]["kind"] = "x\n2026-01-01 answered: all is well " * 99
    site.answer(asked)
    assert "\n" not in caplog.text.rstrip("\n")
    assert len(caplog.messages[-1]) < 400


def test_an_error_among_the_rows_tells_nobody_of_them(site, caplog, monkeypatch):
    raised: list[Exception] = [ContributionRefused("a contribution leaves the ring")]

    def fails(*_: object, **__: object) -> None:
        raise raised[-1]

    monkeypatch.setattr(replies, "contribute", fails)
    assert "ContributionRefused" in refused(site.answer())
    assert caplog.messages[-1] == "refused to answer: a contribution leaves the ring"
    raised.append(ValueError("label 17 of Mrs Smith is out of range"))
    assert refused(site.answer()) == "Refused: ValueError; see the site's own log"
    line = r"refused to answer: ValueError in test_site_app.py, line \d+"
    assert re.fullmatch(line, caplog.messages[-1])
    assert "Smith" not in caplog.text


@pytest.mark.parametrize("rows", [1, 2])
def test_the_server_does_not_learn_on_which_rows_a_question_fails(
    tmp_path, caplog, monkeypatch, rows
):
    """A statistic that takes one row, and fails on more of them."""
    job = Job("evaluate", replace(FEDERATION, clients=300, mechanism="unary"), {"height": 1})
    cell = ScoreCell.sums

    def fails_on_two(self: ScoreCell, shards: Any, sites: Any = None) -> Any:
        if len(shards.labels) > 1:
            raise ValueError("row 1")
        return cell(self, shards)

    monkeypatch.setattr(ScoreCell, "sums", fails_on_two)
    site = Site(tmp_path / "site", rows, job)
    assert not site.answer().has_error()
    assert site.booked() == 1
    assert sum("fails on this site's rows" in line for line in caplog.messages) == (rows > 1)


def test_memory_that_runs_out_on_rows_is_seen_in_exact_sums_alone(site, caplog, monkeypatch):
    def hungry(shards: Any, *rest: Any, **named: Any) -> Any:
        if len(shards.labels):
            raise MemoryError
        return contribute(shards, *rest, **named)

    monkeypatch.setattr(replies, "contribute", hungry)
    assert not site.answer().has_error()
    why = "it takes more memory than this site gives a message"
    assert f"the question fails on this site's rows, none are counted: {why}" in caplog.messages
    exact = replace(JOB, federation=Federation(3, 2, noise_source="system"))
    reply = Site(site.folder, ROWS, exact).answer()
    assert refused(reply) == "Refused: OverLimit; see the site's own log"
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


def result(weight: float = 2.0, **change: Any) -> dict[str, Any]:
    """A result of the run, whose numbers nobody has to read; a `weight` of some megabytes."""
    file = BytesIO()
    np.savez_compressed(file, w=weight)
    about = {"run": RUN, "form": "calibrator", **change}
    return {"files": {"calibrator.npz": file.getvalue()}, "run": about}


def test_a_result_is_kept_as_it_came_and_no_number_of_it_is_read(
    site, caplog, monkeypatch, tmp_path
):
    def fails(*_: object, **__: object) -> None:
        raise ValueError("row 7 of Mrs Smith is not finite")

    site.answer()
    files = {"large": {"calibrator.npz": bytes(2 << 20)}, "cut": {"calibrator.npz": b"PK"}}
    wrong = [
        *((result(run=other), "the name of a run must be") for other in ("../r", "")),
        (result(run="r1"), "has not answered in the run"),
        (result(form="page"), "allowed: calibrator"),
        (result(form="model"), "allowed: calibrator"),  # not what its method yields
        (result() | {"files": files["large"]}, "no file calibrator.npz of at most"),
        (result() | {"files": files["cut"]}, "not an intact .npz file"),
        (result(np.zeros(2 << 20)), "more than 8 MiB of numbers"),  # 16 KiB, unpacked 16 MiB
    ]
    monkeypatch.setattr(np.lib.format, "read_array", fails)
    for records, why in wrong:
        before = {path for path in tmp_path.rglob("*") if "records" not in path.name}
        assert site.ask("result", **records).has_error()
        assert {path for path in tmp_path.rglob("*") if "records" not in path.name} == before
        assert why in caplog.messages[-1]
    for _ in range(2):  # a message that comes twice
        assert list(site.ask("result", **result()).content) == ["ok"]
    assert site.ask("result", **result(3.0)).has_error()
    assert caplog.messages[-1].endswith("another result of this run came before")
    (kept,) = (site.folder / RESULTS / RUN).iterdir()
    assert kept.read_bytes() == result()["files"]["calibrator.npz"]


def test_the_log_is_in_plain_words_and_tells_of_no_row(site, caplog):
    words = words_of(site.answer())
    site.answer()
    site.ask("who")
    site.ask("result", **result())
    site.config["epsilon"] = 9.0
    site.answer()
    digest = digest_of(["healthy", "disease"])
    assert [line.partition(", ")[0] for line in caplog.messages] == [
        *("asked: run run-1", "answered: run run-1") * 2,
        f"asked which classes it has: answered with their digest {digest[:12]}",
        "result received: run run-1",
        "asked: run run-1",
        "refused to answer: the epsilon of the run",
    ]
    assert "epsilon 1, delta 1e-05, unit user, trust local" in caplog.messages[1]
    assert "again, with the same numbers" in caplog.messages[3]
    own = rows_of(ROWS)
    secrets = {str(ROWS), *map(str, np.bincount(own.labels)), *(f"{v:.4f}" for v in own.logits[0])}
    messages = set(re.findall(r"[\d.]+\d", caplog.text.replace(RUN, "")))
    assert not secrets & messages
    long = {str(word) for word in words if word > 1e9}  # a short one may be a line's number
    assert long
    assert not long & messages
