"""A run over real sites: started on a SuperLink that is up, followed, stopped, and gone on with.

The folder of a run must be reachable under one path for this process and for the SuperLink's
executor: both run on the server's machine, or share a volume. In it lie `run.json` (how the run was
started) and `server/` (what the executor writes: progress, checkpoint, outcome).
"""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedcal.core import checks
from fedcal.core.checks import same
from fedcal.run.engines import superlink as flower
from fedcal.run.engines.tls import check_control, read_address, trusted
from fedcal.storage.artifact import CHECKPOINT, OUTCOME
from fedcal.storage.atomic import path_of, write_file
from fedcal.strategies.server import checkpoint
from fedcal.strategies.server.checkpoint import Checkpoint
from fedcal.strategies.server.job import Job
from fedcal.strategies.server.outcome import Outcome, Progress
from fedcal.strategies.server_app import WITHOUT_UNREADY

STARTED, SERVER = "run.json", "server"
"""Files of a run's folder: how it was started, and what the executor writes."""

AGAIN = "the same command, in a minute, goes on with it, and it is charged once"

_TICK_S, _ASK_S = 0.2, 15.0
"""Seconds between looks into the folder, and between questions to the SuperLink."""
_ENDS_S = 60.0
"""Seconds that a server may take to end after its run."""
_GONE_S = 180.0
"""Seconds without a word of the run after which the SuperLink is taken to be gone."""


def carried_out(
    job: Job,
    out: Path,
    at: str,
    root_certificates: Path,
    *,
    without_unready: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Run a job over the sites of a SuperLink, or go on with the run of it that is there.

    Parameters
    ----------
    job
        among the sites of a roster
    out
        folder of the run: a run that is there is followed if its server is at it, else gone on
        with from its checkpoint; an outcome that is there is taken
    at, root_certificates
        HOST:PORT of the SuperLink's control port, and what verifies it
    without_unready
        go on without sites that say that they cannot take part; else they stop a run that has
        released nothing
    progress
        called after each round

    Raises
    ------
    InputError
        Anything that is not allowed, also by a site's terms; nothing was asked.
    RoundFailed
        Too few sites answered.
    FedcalError
        The SuperLink is away, or the run failed there.
    Interrupted
        Ctrl-C: the run goes on without this process.
    """
    work = out / SERVER
    begun = (work / CHECKPOINT).exists()
    if begun:
        then = Checkpoint.load(work).job.get("roster")
        same(f"federation of {out} (else choose another name)", then, job.roster)
    if not (work / OUTCOME).exists():
        with checks.system_errors(f"cannot write {work}"):
            work.mkdir(parents=True, exist_ok=True)
        with control(at, root_certificates) as superlink:
            if begun and _goes_on(superlink, out):
                warnings.warn("the run has not ended: followed as it was started", stacklevel=2)
            elif not (work / OUTCOME).exists():
                with checkpoint.alone(work):
                    pass
                _start(superlink, job, out, begun, without_unready)
            _follow(superlink, out, progress)
    return Outcome.load(work)


def _goes_on(superlink: Control, out: Path) -> bool:
    """Return whether a server is at the run; one whose run Flower has ended is awaited.

    Raises FedcalError if that one does not end.
    """
    deadline = time.monotonic() + _ENDS_S
    while True:
        try:
            with checkpoint.alone(out / SERVER):
                return False
        except checks.InputError as held:
            if not superlink.flower.status(flower_run(out)).startswith(ENDED):
                return True
            if time.monotonic() > deadline:
                raise checks.FedcalError(f"{held}, but Flower's has: end its process") from None
        time.sleep(_TICK_S)


def _start(superlink: Control, job: Job, out: Path, resume: bool, without_unready: bool) -> None:
    work = out / SERVER
    here = {"data": "", "partition": "", "out": str(work), "resume": resume, "deliver": True}
    superlink.flower.write_app({**job.to_fields(), **here, WITHOUT_UNREADY: without_unready})
    # the outcome of an earlier run must not be taken for this one's
    checkpoint.forget(work, checkpoint=not resume)
    write_file(out / STARTED, json.dumps({"flower_run": superlink.flower.submit()}))


def _follow(superlink: Control, out: Path, progress: Progress | None) -> None:
    """Return once the outcome is there and delivered; raise what stopped the run.

    A SuperLink that does not answer, or does not know the run, is asked again for `_GONE_S`
    after the last word of the run, be it from the SuperLink or in the folder.
    """
    work, seen, asked = out / SERVER, 0, time.monotonic()
    number, reported, last_report = flower_run(out), 0, asked
    try:
        going = True
        while going:
            going = not checkpoint.ended(work)
            notices = checkpoint.read_notices(work)
            for line in notices[reported:]:
                warnings.warn(line.removeprefix("fedcal: "), stacklevel=2)
            reported = len(notices)
            done = checkpoint.read_progress(work)
            for pair in done[seen:]:
                last_report = time.monotonic()
                if progress is not None:
                    progress(*pair)
            seen = len(done)
            if going and time.monotonic() - asked > _ASK_S:
                asked = time.monotonic()
                status = superlink.flower.status(number)
                if status.startswith(ENDED) and not checkpoint.ended(work):
                    raise _failure(work, status)
                if status != flower.UNKNOWN:
                    last_report = time.monotonic()
                elif time.monotonic() - last_report > _GONE_S and not checkpoint.ended(work):
                    raise checks.FedcalError(
                        f"the server has not reported the release for {_GONE_S:g} s (it is gone, "
                        f"hangs, or was restarted without its database): {AGAIN}"
                    )
            time.sleep(_TICK_S if going else 0)
    except KeyboardInterrupt:
        raise checks.Interrupted(f"the release continues without this command: {AGAIN}") from None
    if not (work / OUTCOME).exists() or checkpoint.read_error(work) is not None:
        raise _failure(work, superlink.flower.status(number))


def _failure(work: Path, status: str) -> checks.FedcalError:
    ended = checks.RoundFailed(f"Flower ended the run as '{status}'; {AGAIN}")
    return checkpoint.read_error(work) or ended


def flower_run(out: Path) -> int:
    """Flower's number of the run in this folder; InputError if there is none."""
    with checks.damaged(f"{out} holds no run", OSError):
        return int(json.loads((out / STARTED).read_text("utf-8"))["flower_run"])


ENDED = "finished"
"""Beginning of Flower's word for the state of a run that is over."""


class Control:
    """The commands of `flwr` to one SuperLink."""

    def __init__(self, link: flower.FlowerRun) -> None:
        self.flower = link

    def register(self, key: Path) -> str:
        """Let in the site with this public key; one that is known stays so.

        Returns Flower's number of its node, or "" where it was known before: a key that was
        unregistered once cannot come back. Raises FedcalError if the SuperLink refuses it.
        """
        words = "supernode", "register", key.resolve(), "--name", key.stem
        answer = self._ask(f"the SuperLink did not take {key}", *words, unless="already")
        return str(answer.get("node-id", ""))

    def nodes(self) -> dict[str, str]:
        """Flower's number of each registered site -> "online", "offline" or "registered"."""
        refused = "the SuperLink does not say which sites there are"
        answer = self._ask(refused, "supernode", "list")
        return {str(one["node-id"]): str(one["status"]) for one in answer["nodes"]}

    def revoke(self, node: str) -> None:
        """Let a site out, by Flower's number; its key can never come back.

        Raises FedcalError if the SuperLink refuses.
        """
        self._ask(f"site {node} was not unregistered", "supernode", "unregister", node)

    def _ask(self, refused: str, *words: str | Path, unless: str | None = None) -> dict[str, Any]:
        """Return the SuperLink's answer; raise FedcalError if it refuses.

        Then its words follow `refused`, `unless` they have this one.
        """
        reply = self.flower.flwr(*words, flower.CONNECTION, "--format", "json")
        answer = flower.json_in(reply)
        known = unless is not None and unless in reply
        if not (answer.get("success") or "nodes" in answer or known):
            raise checks.FedcalError(f"{refused}: {flower.complaint(reply)}")
        return answer


@contextlib.contextmanager
def control(address: str, root_certificates: str | Path) -> Iterator[Control]:
    """Connect to the control API at HOST:PORT.

    Raises
    ------
    InputError
        If the address or the certificates are none, or Flower's commands are missing.
    FedcalError
        If nobody listens there, or not the SuperLink that the certificates are for.
    """
    at, certificates = read_address("--control", address), path_of(root_certificates)
    check_control(at, trusted(certificates))
    with flower.run_folder() as folder:
        link = flower.FlowerRun(folder, flower.commands("grpc"), {})
        link.connect(str(at), certificates)
        yield Control(link)
