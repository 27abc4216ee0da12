"""The folder of a run, of one server at a time, and the checkpoint from which a run goes on.

Flower ends the server of a run that is stopped, but not at once.

A checkpoint is written after the noise: it holds noisy releases (exact sums where there is no
privacy, as the outcome does), never what a client sent. It is written before anybody hears of the
release. So a round that the ledger has charged and the checkpoint does not know was seen by
nobody but the server: it is asked again, and not charged again. Sites answer the same question
with the same words (`fedcal.clients.site.guard`), which under trust `local` is what keeps a second
answer from being a second release.

Never put an older checkpoint in the place of a newer one: its last round would be released twice.
"""

import base64
import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedcal.core import checks
from fedcal.core.checks import FedcalError, InputError, damaged, same, system_errors
from fedcal.core.numerics import Floats
from fedcal.privacy.curator import Release
from fedcal.storage.artifact import CHECKPOINT, OUTCOME
from fedcal.storage.atomic import locked, must_not_exist, write_file
from fedcal.strategies.base import FederatedStrategy
from fedcal.strategies.server.participation import Participation

LOCK = "lock"
"""File that the server of a run holds."""

RESULT = "result.json"
"""Files that a report makes of an outcome in its folder."""

_PROGRESS, _ERROR, _ENDED, _NOTICES = "progress", "error.json", "ended", "notices"
_log = logging.getLogger("flwr")


def alone(out: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the folder of a run; InputError if a server does.

    Two servers of one run would both release the round that is open, and charge it once.
    """
    return locked(out / LOCK, f"a server writes into {out}: its run has not ended")


def absolute(key: str, path: str) -> None:
    """Refuse a relative path in a run config: Flower decides where this process runs."""
    if not os.path.isabs(path):
        raise InputError(f"{key!r} of the run config must be an absolute path, got {path!r}")


@contextlib.contextmanager
def held(out: Path, *, resume: bool) -> Iterator[None]:
    """Have the folder for one run, and leave word there of warnings, of an error, and of the end.

    Raises InputError if it cannot be written, another server has it, or it holds a run that has not
    ended and is not gone on with.

    Parameters
    ----------
    out
        absolute; made if it is not there
    resume
        the checkpoint that is there is this run's
    """
    absolute("out", str(out))
    with system_errors(f"cannot write the outcome to {out}"):
        out.mkdir(parents=True, exist_ok=True)
    with alone(out):
        ended = "the result of a run. Choose another folder"
        open_run = "a run has not ended. Continue it (resume), or choose another folder"
        for name, why in {OUTCOME: ended, RESULT: ended, CHECKPOINT: open_run}.items():
            if not resume:
                must_not_exist(out / name, why)
        with system_errors(f"cannot write the outcome to {out}"):
            forget(out, checkpoint=not resume)
        with _left_for_reader(out):
            yield


def forget(out: Path, *, checkpoint: bool) -> None:
    """Remove what a server has said of an earlier run, its `checkpoint` too or not."""
    if checkpoint:  # first: without an outcome it would be that of a run that has not ended
        (out / CHECKPOINT).unlink(missing_ok=True)
    for name in (OUTCOME, _PROGRESS, _ERROR, _ENDED, _NOTICES):
        (out / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _left_for_reader(out: Path) -> Iterator[None]:
    handler = logging.FileHandler(out / _NOTICES, delay=True, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    level, ours = logging.WARNING, "fedcal: "
    handler.addFilter(lambda one: one.levelno == level and one.getMessage().startswith(ours))
    _log.addHandler(handler)
    try:
        yield
    except FedcalError as e:
        write_file(out / _ERROR, json.dumps({"kind": type(e).__name__, "message": str(e)}))
        raise
    finally:
        _log.removeHandler(handler)
        handler.close()
        with contextlib.suppress(OSError):
            (out / _ENDED).touch()


def note_progress(out: Path, done: int, planned: int) -> None:
    """Record that a round is done."""
    with (out / _PROGRESS).open("a", encoding="ascii") as file:
        file.write(f"{done} {planned}\n")


def read_progress(out: Path) -> list[tuple[int, int]]:
    """Return (rounds done, rounds planned) for each finished round."""
    return [(int(done), int(planned)) for done, planned in map(str.split, _lines(out / _PROGRESS))]


def read_notices(out: Path) -> list[str]:
    """Return one line for each event that was not planned, such as a site that is away."""
    return _lines(out / _NOTICES)


def _lines(file: Path) -> list[str]:
    """Whole lines; none of a file that is not there."""
    try:
        lines = file.read_text("utf-8").splitlines(keepends=True)
    except OSError:
        return []
    return [line.rstrip("\n") for line in lines if line.endswith("\n")]


def ended(out: Path) -> bool:
    """Return whether the server has finished there, successfully or not."""
    return (out / _ENDED).exists()


def read_error(out: Path) -> FedcalError | None:
    """Return fedcal's error that stopped the run with its outcome in `out`, if there is one."""
    try:
        record = json.loads((out / _ERROR).read_text("utf-8"))
    except OSError:
        return None
    error: FedcalError = getattr(checks, record["kind"])(record["message"])
    return error


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
        write_file(folder / CHECKPOINT, json.dumps(plain), durable=True)

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
