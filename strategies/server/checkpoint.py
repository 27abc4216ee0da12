"""What a deployed run goes on from when its server stopped: what was released, and under which run.

A checkpoint is written after the noise: it holds noisy releases (exact sums where there is no
privacy, as the outcome does), never what a client sent. It is written before anybody hears of the
release. So a round that the ledger has charged and the checkpoint does not know was seen by
nobody but the server: it is asked again, and not charged again. Sites answer the same question
with the same words (`fedcal.clients.site.guard`), which under trust `local` is what keeps a second
answer from being a second release.

Never put an older checkpoint in the place of a newer one: its last round would be released twice.
"""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedcal.core.checks import damaged, same, system_errors
from fedcal.core.numerics import Floats
from fedcal.privacy.curator import Release
from fedcal.storage.atomic import write_whole
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.server.participation import Participation

CHECKPOINT = "checkpoint.json"
"""The file's name in the folder of a run."""

VERSION = 1

WAITING = ("timeout", "grace")
"""Keys of a job that may change when it goes on."""


@dataclass
class Checkpoint:
    """State of an unfinished run.

    Attributes
    ----------
    run
        names the run to sites and ledger
    job
        the fields of its job: another job cannot go on from here
    releases
        so far, in order
    seconds
        that the rounds took so far
    roster
        Flower's number of a node -> the client's number
    state
        of a method whose releases are not kept, after the last of them
    sent
        payload bytes so far, up and down, of such a method
    took_part
        which sites did, so far
    """

    run: str
    job: Mapping[str, Any]
    releases: list[Release] = field(default_factory=list)
    seconds: float = 0.0
    roster: dict[int, int] = field(default_factory=dict)
    state: Mapping[str, Floats] | None = None
    sent: tuple[float, float] = (0.0, 0.0)
    took_part: Participation = field(default_factory=Participation)

    def save(self, folder: Path) -> None:
        """Write the complete checkpoint to disk.

        FedcalError or InputError if that fails: the run must stop then. It is flushed, as the
        ledger is: a power failure must not take back what sites have seen, or the round would be
        released again under the charge that is there.
        """
        releases = [
            {**vars(release), "values": release.values.tolist(), "std": release.std.tolist()}
            for release in self.releases
        ]
        plain = {**vars(self), "version": VERSION, "job": dict(self.job), "releases": releases}
        plain["took_part"] = self.took_part.to_json()
        if self.state is not None:
            plain["state"] = {name: _packed(value) for name, value in self.state.items()}
        write_whole(folder / CHECKPOINT, json.dumps(plain), durable=True)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the saved checkpoint; InputError if it is missing or incomplete."""
        path = folder / CHECKPOINT
        with system_errors(f"there is no run to continue: {path}"):
            content = path.read_bytes()
        with damaged(f"{path} is damaged"):
            plain = json.loads(content)
            same(f"version of {path}", plain["version"], VERSION)
            releases, (up, down) = plain["releases"], plain.get("sent", (0.0, 0.0))
            of: dict[str, Any] = {"round": int, "kind": str, "values": _array, "std": _array}
            return cls(
                run=str(plain["run"]),
                job=dict(plain["job"]),
                releases=[Release(**{k: of[k](v) for k, v in one.items()}) for one in releases],
                seconds=float(plain["seconds"]),
                roster={int(node): int(site) for node, site in plain["roster"].items()},
                state=None
                if (state := plain.get("state")) is None
                else {k: _array(v) for k, v in state.items()},
                sent=(float(up), float(down)),
                took_part=Participation.from_json(plain["took_part"]),
            )

    @classmethod
    def follow(
        cls,
        strategy: FederatedStrategy,
        job: Mapping[str, Any],
        folder: Path,
        *,
        resume: bool,
        every: int = 1,
    ) -> Self:
        """Keep a fresh strategy's checkpoint from now on.

        Parameters
        ----------
        resume
            bring the strategy first to where the checkpoint in `folder` stands
        every
            releases between two writings

        Raises
        ------
        InputError
            If there is none, or it is not one of this job.
        """
        checkpoint = cls.load(folder) if resume else cls(strategy.run, job)
        if resume:
            for key in sorted({*checkpoint.job, *job} - set(WAITING)):
                same(f"{key} of a run that continues", job.get(key), checkpoint.job.get(key))
            strategy.roster.update(checkpoint.roster)
            strategy.took_part = checkpoint.took_part
            if strategy.keeps_releases:
                strategy.resume(checkpoint.run, checkpoint.releases)
            elif checkpoint.state is None:
                strategy.resume_after(checkpoint.run, 0)
            else:
                strategy.restore(checkpoint.run, checkpoint.state)
                strategy.bytes_up, strategy.bytes_down = checkpoint.sent
        before, start, report = checkpoint.seconds, time.perf_counter(), strategy.on_release

        def write(release: Release) -> None:
            checkpoint.releases = list(strategy.releases)
            checkpoint.state = strategy.state()
            checkpoint.sent = (strategy.bytes_up, strategy.bytes_down)
            checkpoint.roster, checkpoint.took_part = dict(strategy.roster), strategy.took_part
            if not strategy.plan.secret_sample:  # how long a round takes tells how many were asked
                checkpoint.seconds = before + time.perf_counter() - start
            if release.round % every == 0:
                checkpoint.save(folder)
            if report is not None:
                report(release)

        strategy.on_release = write
        checkpoint.save(folder)
        return checkpoint


def _packed(values: Floats) -> dict[str, Any]:
    """Return a network's weights as text; one number at a time is twice as long, and slow."""
    raw = np.ascontiguousarray(values, "<f8").tobytes()
    return {"shape": list(values.shape), "float64": base64.b64encode(raw).decode()}


def _array(value: Any) -> Floats:
    if isinstance(value, dict):
        raw = base64.b64decode(value["float64"], validate=True)
        return np.frombuffer(raw, "<f8").reshape(value["shape"]).copy()
    return np.array(value, np.float64)
