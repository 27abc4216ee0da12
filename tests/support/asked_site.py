"""A site in this process, which has accepted a job and is asked as its server would ask it."""

from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from hostile_server import JOB, Records, asked_by

from fedcal.clients.site.guard import prepared
from fedcal.clients.site.preparing import prepare
from fedcal.clients.site.process.site_app import site_app
from fedcal.clients.site.store import records_of
from fedcal.core.shards import Shards
from fedcal.run.engines.flower import InProcessGrid
from fedcal.strategies.server.job import Job

NODE = 70


def rows_of(n: int) -> Shards:
    """Rows of two classes."""
    rng = np.random.Generator(np.random.Philox(key=1))
    return Shards(3 * rng.normal(size=(n, 2)), rng.integers(2, size=n), np.array([0, n]))


class Site:
    """A site, and the run that it is asked for."""

    def __init__(self, folder: Path, rows: int = 60, job: Job = JOB) -> None:
        prepare(folder, rows_of(rows), names=["healthy", "disease"], terms=job.terms())
        self.folder, self.job, self.run = folder, job, "run-1"
        self.config: dict[str, Any] = job.to_fields()
        self.grid = InProcessGrid(site_app(folder), [NODE])

    def ask(self, kind: str, **records: Any) -> Message:
        self.grid._contexts[NODE].run_config = self.config
        content = RecordDict({name: ConfigRecord({**of}) for name, of in records.items()})
        message = Message(content, NODE, f"query.{kind}", group_id="1")
        (reply,) = self.grid.send_and_receive([message])
        return reply

    def answer(self, asked: Records | None = None, **more: Any) -> Message:
        return self.ask("answer", **(asked or asked_by(self.job, self.run)), **more)

    def booked(self) -> int:
        """Jobs that were booked."""
        with records_of(prepared(self.folder)) as records:
            return len(records.booked())
