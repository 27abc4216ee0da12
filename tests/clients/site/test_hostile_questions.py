"""What `hostile_server` asks of a site: refused in one line, nothing sent, nothing booked.

`tests/fedcal/sites/test_hostile_server.py` asks the same through a real SuperLink.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message
from hostile_server import FEDERATION, JOB, asked_by, content_of, hostile

from fedcal.clients.questions.score_cell import OutcomeCell
from fedcal.clients.site.guard import prepared
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.process.site_app import site_app
from fedcal.clients.site.site_log import LOGGER
from fedcal.clients.site.store import records_of
from fedcal.core.shards import Shards
from fedcal.run.engines.flower import InProcessGrid
from fedcal.strategies.server.job import Job

NODE, RUN = 70, "0123456789abcdef"


class Site:
    """A site in this process."""

    def __init__(self, folder: Path, rows: int = 60, job: Job = JOB) -> None:
        rng = np.random.Generator(np.random.Philox(key=1))
        logits, labels = rng.normal(size=(rows, 2)), rng.integers(2, size=rows)
        prepare(folder, Shards(logits, labels, np.array([0, rows])), terms=job.terms())
        self.folder = folder
        self.grid = InProcessGrid(site_app(folder), [NODE])

    def ask(self, request: Any, fields: dict[str, Any], **more: ConfigRecord) -> Message:
        self.grid._contexts[NODE].run_config = fields
        message = Message(content_of(request, **more), NODE, "query.answer", group_id="1")
        (reply,) = self.grid.send_and_receive([message])
        return reply

    def booked(self) -> int:
        """Jobs that were booked."""
        with records_of(prepared(self.folder)) as records:
            return len(records.booked())


@pytest.fixture
def site(tmp_path, caplog):
    caplog.set_level(logging.INFO, LOGGER)
    return Site(tmp_path / "site")


def refused(reply: Message, caplog: pytest.LogCaptureFixture) -> str:
    """The line in the log; the server hears no more than the class."""
    assert reply.has_error()
    assert reply.error.reason == "Refused: InputError; see the site's own log"
    line = caplog.messages[-1]
    assert line.startswith("refused to answer: ")
    assert "\n" not in line
    return line


@pytest.mark.parametrize("name", hostile(RUN))
def test_what_was_not_agreed_is_refused(site, caplog, name):
    refused(site.ask(hostile(RUN)[name], JOB.to_fields()), caplog)
    assert site.booked() == 0
    assert not site.ask(asked_by(JOB, RUN), JOB.to_fields()).has_error()  # it spent nothing
    assert site.booked() == 1


@pytest.mark.parametrize("rows", [1, 2])
def test_the_server_does_not_learn_on_which_rows_a_question_fails(
    tmp_path, caplog, monkeypatch, rows
):
    """A statistic that takes one row, and fails on more of them."""
    job = Job("dp-histogram", replace(FEDERATION, clients=300, mechanism="unary"))
    cell = OutcomeCell.sums

    def fails_on_two(self: OutcomeCell, shards: Shards, sites: Any = None) -> Any:
        if len(shards.labels) > 1:
            raise ValueError("row 1")
        return cell(self, shards)

    monkeypatch.setattr(OutcomeCell, "sums", fails_on_two)
    site = Site(tmp_path / "site", rows, job)
    assert not site.ask(asked_by(job, RUN), job.to_fields()).has_error()
    assert site.booked() == 1
    assert sum("fails on this site's rows" in line for line in caplog.messages) == (rows > 1)
